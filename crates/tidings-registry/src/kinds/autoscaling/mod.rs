//! The kind of the group `autoscaling`, HorizontalPodAutoscaler, in two versions. Objects are stored as v2.

pub(super) mod v1;
pub(super) mod v2;

use crate::kinds::names;
use crate::model::Kind;

fn plain() -> Kind {
    Kind {
        group: "autoscaling".into(),
        kind: "HorizontalPodAutoscaler".into(),
        plural: "horizontalpodautoscalers".into(),
        short_names: names(["hpa"]),
        categories: names(["all"]),
        go_package: "autoscaling",
        status: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![v2::kind(), v1::kind()]
}
