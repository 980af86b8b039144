//! The kinds of the group `flowcontrol.apiserver.k8s.io`, and the objects of them that every server has.

mod defaults;
mod flow_schema;
mod priority_level_configuration;

use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults, rule};
use crate::model::{Generation, Kind};
pub use defaults::{default_flow_schemas, default_priority_levels};

/// The group.
pub const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";

fn plain() -> Kind {
    Kind {
        group: FLOW_CONTROL.into(),
        go_package: "flowcontrol",
        namespaced: false,
        generation: Generation::Counted,
        status: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![flow_schema::kind(), priority_level_configuration::kind()]
}

/// Sets a number that is absent; zero is a number too.
fn set_absent(members: &mut tidings_json::Map, name: &str, number: i64) {
    if members.get(name).is_none_or(Value::is_null) {
        members.insert(name.into(), number.into());
    }
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "flowcontrol/v1.FlowSchemaSpec",
        &[("matchingPrecedence", "1000")],
    ),
    defaults(
        "flowcontrol/v1.QueuingConfiguration",
        &[
            ("queues", "64"),
            ("handSize", "8"),
            ("queueLengthLimit", "50"),
        ],
    ),
    rule(
        "flowcontrol/v1.ExemptPriorityLevelConfiguration",
        |members| {
            set_absent(members, "nominalConcurrencyShares", 0);
            set_absent(members, "lendablePercent", 0);
        },
    ),
    rule(
        "flowcontrol/v1.LimitedPriorityLevelConfiguration",
        |members| {
            set_absent(members, "nominalConcurrencyShares", 30);
            set_absent(members, "lendablePercent", 0);
        },
    ),
];
