//! The built-in kinds: all kinds of Kubernetes 1.36 that are generally available.
//!
//! A module is an API group. A kind with rules or a table of its own has one file there, with everything about the kind: its
//! entry, the defaults of its types, the fields that are filled in, checked and fixed, and the table that `kubectl get` shows.
//! Other kinds are entries in the group's `mod.rs`. Code that several kinds of a group share stands there too; code that several
//! groups share stands in `workload` and in [`crate::table`].
//!
//! Inside a group the kinds stand in the order of their plurals, as discovery lists them.

mod admissionregistration;
mod apiextensions;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod scheduling;
mod storage;
mod workload;

pub(crate) use authentication::token_request;
pub use authorization::check_review;
pub use certificates::{CertificateRequest, read_request};
pub(crate) use core::pod::{binding, eviction};
pub use flowcontrol::{FLOW_CONTROL, default_flow_schemas, default_priority_levels};

use crate::defaults::TypeDefaults;
use crate::model::{FixedField, FixedRefusal, Kind, Name, SelectableField};

/// A selectable field whose value is an empty text if it is absent.
const fn selectable(
    name: &'static str,
    paths: &'static [&'static [&'static str]],
) -> SelectableField {
    SelectableField {
        name,
        paths,
        absent: "",
    }
}

/// A field that no update may change.
const fn immutable(path: &'static [&'static str]) -> FixedField {
    FixedField {
        path,
        refusal: FixedRefusal::Immutable,
    }
}

/// A list of short names or categories.
fn names<const N: usize>(names: [&'static str; N]) -> Vec<Name> {
    names.into_iter().map(Name::from).collect()
}

/// Makes the kinds of a group, without their schemas and views.
type GroupKinds = fn() -> Vec<Kind>;

/// The groups, in the order in which upstream lists them.
const GROUPS: &[GroupKinds] = &[
    core::kinds,
    apps::kinds,
    events::kinds,
    authentication::kinds,
    authorization::kinds,
    autoscaling::kinds,
    batch::kinds,
    certificates::kinds,
    networking::kinds,
    policy::kinds,
    rbac::kinds,
    storage::kinds,
    admissionregistration::kinds,
    apiextensions::kinds,
    scheduling::kinds,
    coordination::kinds,
    node::kinds,
    discovery::kinds,
    flowcontrol::kinds,
];

/// The entries of all built-in kinds, without their schemas, views and members.
pub(crate) fn entries() -> impl Iterator<Item = Kind> {
    GROUPS.iter().flat_map(|kinds| kinds())
}

/// The defaults of all types, of all kinds.
pub(crate) fn defaults() -> impl Iterator<Item = &'static TypeDefaults> {
    [
        admissionregistration::DEFAULTS,
        admissionregistration::mutating_admission_policy::DEFAULTS,
        admissionregistration::mutating_webhook_configuration::DEFAULTS,
        admissionregistration::validating_admission_policy::DEFAULTS,
        admissionregistration::validating_webhook_configuration::DEFAULTS,
        apps::daemon_set::DEFAULTS,
        apps::deployment::DEFAULTS,
        apps::replica_set::DEFAULTS,
        apps::stateful_set::DEFAULTS,
        autoscaling::v2::DEFAULTS,
        batch::cron_job::DEFAULTS,
        batch::job::DEFAULTS,
        core::endpoints::DEFAULTS,
        core::limit_range::DEFAULTS,
        core::persistent_volume::DEFAULTS,
        core::persistent_volume_claim::DEFAULTS,
        core::pod::DEFAULTS,
        core::pod::volume::DEFAULTS,
        core::replication_controller::DEFAULTS,
        core::service::DEFAULTS,
        discovery::endpoint_slice::DEFAULTS,
        flowcontrol::DEFAULTS,
        networking::ingress_class::DEFAULTS,
        networking::network_policy::DEFAULTS,
        rbac::DEFAULTS,
        scheduling::priority_class::DEFAULTS,
        storage::csi_driver::DEFAULTS,
        storage::storage_class::DEFAULTS,
    ]
    .into_iter()
    .flatten()
}
