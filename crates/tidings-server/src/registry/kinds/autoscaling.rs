//! The kind of the group `autoscaling`, in its two versions.

use super::{PLAIN, spec, status};
use crate::printers::autoscaling;
use crate::registry::{Kind, StoredAs};

const AUTOSCALER: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    printer: &autoscaling::HORIZONTAL_POD_AUTOSCALER,
    short_names: &["hpa"],
    categories: &["all"],
    go_package: "autoscaling",
    status: true,
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        version: "v2",
        members: &[
            spec("v2.HorizontalPodAutoscalerSpec"),
            status(
                "v2.HorizontalPodAutoscalerStatus",
                r#"{"desiredReplicas":0,"currentMetrics":null}"#,
            ),
        ],
        bookmark: concat!(
            r#","spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"#,
            r#""status":{"desiredReplicas":0,"currentMetrics":null}"#
        ),
        ..AUTOSCALER
    },
    Kind {
        // `targetCPUUtilizationPercentage` is a metric of v2; what v1 has no member for stands in
        // annotations that begin with `autoscaling.alpha.kubernetes.io/`.
        version: "v1",
        stored_as: Some(StoredAs::AutoscalerV2),
        members: &[
            spec("v1.HorizontalPodAutoscalerSpec"),
            status(
                "v1.HorizontalPodAutoscalerStatus",
                r#"{"currentReplicas":0,"desiredReplicas":0}"#,
            ),
        ],
        bookmark: concat!(
            r#","spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"#,
            r#""status":{"currentReplicas":0,"desiredReplicas":0}"#
        ),
        ..AUTOSCALER
    },
];
