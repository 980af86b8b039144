//! The kinds of the group `apps`.

use super::{PLAIN, member, spec, status};
use crate::printers::apps;
use crate::registry::{Generation, Kind, NameRule, Scale, ScaleSelector, Shape, Special};

const APPS: Kind = Kind {
    group: "apps",
    go_package: "apps",
    ..PLAIN
};

const SCALE: Option<Scale> = Some(Scale {
    selector: ScaleSelector::LabelSelector,
});

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        printer: &apps::CONTROLLER_REVISION,
        members: &[
            member("data", Shape::Any, "null"),
            member("revision", Shape::Number("int64"), "0"),
        ],
        bookmark: r#","data":null,"revision":0"#,
        ..APPS
    },
    Kind {
        kind: "DaemonSet",
        plural: "daemonsets",
        printer: &apps::DAEMON_SET,
        short_names: &["ds"],
        categories: &["all"],
        members: &[
            spec("v1.DaemonSetSpec"),
            status(
                "v1.DaemonSetStatus",
                r#"{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#,
            ),
        ],
        // Besides, upstream counts changes of the template in the annotation
        // `deprecated.daemonset.template.generation`: "1" at creation, and "0" in a bookmark.
        generation: Generation::Counted,
        status: true,
        bookmark: concat!(
            r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"#,
            r#""updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"#,
            r#""desiredNumberScheduled":0,"numberReady":0}"#
        ),
        ..APPS
    },
    Kind {
        kind: "Deployment",
        plural: "deployments",
        printer: &apps::DEPLOYMENT,
        short_names: &["deploy"],
        categories: &["all"],
        members: &[
            spec("v1.DeploymentSpec"),
            status("v1.DeploymentStatus", "{}"),
        ],
        generation: Generation::CountedWithAnnotations,
        status: true,
        scale: SCALE,
        special: Special::Deployment,
        bookmark: concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"#,
            r#""strategy":{}},"status":{}"#
        ),
        ..APPS
    },
    Kind {
        kind: "ReplicaSet",
        plural: "replicasets",
        printer: &apps::REPLICA_SET,
        short_names: &["rs"],
        categories: &["all"],
        members: &[
            spec("v1.ReplicaSetSpec"),
            status("v1.ReplicaSetStatus", r#"{"replicas":0}"#),
        ],
        generation: Generation::Counted,
        status: true,
        scale: SCALE,
        bookmark: concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"#,
            r#""status":{"replicas":0}"#
        ),
        ..APPS
    },
    Kind {
        kind: "StatefulSet",
        plural: "statefulsets",
        printer: &apps::STATEFUL_SET,
        short_names: &["sts"],
        categories: &["all"],
        members: &[
            spec("v1.StatefulSetSpec"),
            status(
                "v1.StatefulSetStatus",
                r#"{"replicas":0,"availableReplicas":0}"#,
            ),
        ],
        name_rule: NameRule::Label, // its pods are called after it, and their host names are labels
        generation: Generation::Counted,
        status: true,
        scale: SCALE,
        bookmark: concat!(
            r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"#,
            r#""serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}"#
        ),
        ..APPS
    },
];
