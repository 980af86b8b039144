//! The built-in kinds: all kinds of Kubernetes 1.36 that are generally available, one file for each API group.
//!
//! Inside a group they stand in the order of their plurals, as discovery lists them.

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
mod networking;
mod node;
mod policy;
mod rbac;
mod scheduling;
mod storage;

use std::sync::LazyLock;

use crate::custom::Custom;
use crate::printers;

use super::{Generation, Kind, Member, NameRule, SelectableField, Shape, Special};

const fn member(name: &'static str, shape: Shape, absent: &'static str) -> Member {
    Member {
        name,
        shape,
        absent,
    }
}

/// A spec; where upstream refuses an object without one, `{}` stands for it.
const fn spec(go_type: &'static str) -> Member {
    member("spec", Shape::Object(go_type), "{}")
}

const fn status(go_type: &'static str, absent: &'static str) -> Member {
    member("status", Shape::Object(go_type), absent)
}

const fn field(name: &'static str, paths: &'static [&'static [&'static str]]) -> SelectableField {
    SelectableField {
        name,
        paths,
        absent: "",
    }
}

/// What most kinds have; an entry of a table changes what is different.
const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    go_package: "",
    namespaced: true,
    stored_as: None,
    review: None,
    members: &[],
    fields: &[],
    name_rule: NameRule::Subdomain,
    generation: Generation::None,
    status: false,
    scale: None,
    create_on_update: false,
    conditional_update: false,
    collection_delete: true,
    orphans: false,
    deprecated: "",
    returns_deleted: false,
    special: Special::None,
    printer: &printers::DEFAULT,
    bookmark: "",
    custom: None,
};

/// What all custom resources have.
pub(crate) const fn custom_kind(custom: &'static Custom) -> Kind {
    Kind {
        go_package: "unstructured",
        generation: Generation::Counted,
        conditional_update: true,
        custom: Some(custom),
        ..PLAIN
    }
}

/// The tables, in the order in which upstream lists their groups.
static GROUPS: &[&[Kind]] = &[
    core::KINDS,
    apps::KINDS,
    events::KINDS,
    authentication::KINDS,
    authorization::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    certificates::KINDS,
    networking::KINDS,
    policy::KINDS,
    rbac::KINDS,
    storage::KINDS,
    admissionregistration::KINDS,
    apiextensions::KINDS,
    scheduling::KINDS,
    coordination::KINDS,
    node::KINDS,
    discovery::KINDS,
];

/// The kinds that this server has.
pub(crate) static KINDS: LazyLock<Vec<&'static Kind>> =
    LazyLock::new(|| GROUPS.iter().flat_map(|kinds| kinds.iter()).collect());
