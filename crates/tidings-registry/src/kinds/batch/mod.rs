//! The kinds of the group `batch`.

pub(super) mod cron_job;
pub(super) mod job;

use crate::model::Kind;

fn plain() -> Kind {
    Kind {
        group: "batch".into(),
        go_package: "batch",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![cron_job::kind(), job::kind()]
}
