//! The kinds of the group without a name, which upstream calls core.

mod config_map;
pub(super) mod endpoints;
mod event;
pub(super) mod limit_range;
mod namespace;
mod node;
pub(super) mod persistent_volume;
pub(super) mod persistent_volume_claim;
pub(super) mod pod;
pub(super) mod replication_controller;
mod secret;
pub(super) mod service;

use crate::kind::{Generation, Kind};
use crate::kinds::names;
use crate::printers::core as printers;

fn plain() -> Kind {
    Kind {
        go_package: "core",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        config_map::kind(),
        endpoints::kind(),
        event::kind(),
        limit_range::kind(),
        namespace::kind(),
        node::kind(),
        persistent_volume_claim::kind(),
        persistent_volume::kind(),
        pod::kind(),
        Kind {
            kind: "PodTemplate".into(),
            plural: "podtemplates".into(),
            printer: &printers::POD_TEMPLATE,
            generation: Generation::Counted,
            returns_deleted: true,
            ..plain()
        },
        replication_controller::kind(),
        Kind {
            kind: "ResourceQuota".into(),
            plural: "resourcequotas".into(),
            printer: &printers::RESOURCE_QUOTA,
            short_names: names(["quota"]),
            status: true,
            returns_deleted: true,
            ..plain()
        },
        secret::kind(),
        Kind {
            kind: "ServiceAccount".into(),
            plural: "serviceaccounts".into(),
            printer: &printers::SERVICE_ACCOUNT,
            short_names: names(["sa"]),
            returns_deleted: true,
            ..plain()
        },
        service::kind(),
    ]
}
