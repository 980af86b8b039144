//! `LimitRange` of the core group: entry and defaults.

use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, member_text, rule};
use crate::kinds::names;
use crate::model::Kind;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "LimitRange".into(),
        plural: "limitranges".into(),
        short_names: names(["limits"]),
        create_on_update: true,
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] =
    &[rule("core/v1.LimitRangeItem", complete_item)];

/// Fills in the default limits and requests of containers from `max`, `default` and `min`.
fn complete_item(item: &mut Map) {
    if member_text(item, "type") != "Container" {
        return;
    }
    for (to, from) in [
        ("default", "max"),
        ("defaultRequest", "default"),
        ("defaultRequest", "min"),
    ] {
        let given = item.get(from).and_then(Value::as_object).cloned();
        for (name, value) in given.into_iter().flatten() {
            let own = item.entry(to).or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.entry(name).or_insert(value);
            }
        }
    }
}
