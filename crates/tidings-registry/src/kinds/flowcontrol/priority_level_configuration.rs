//! `PriorityLevelConfiguration` of `flowcontrol.apiserver.k8s.io`: entry, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_go::quote;
use tidings_json::Value;

use super::defaults::default_priority_levels;
use crate::model::{Draft, Kind, Strategy, Subresource};
use crate::table::fields::{field, name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "PriorityLevelConfiguration".into(),
        plural: "prioritylevelconfigurations".into(),
        printer: &PRINTER,
        strategy: Arc::new(PriorityLevelStrategy),
        ..super::plain()
    }
}

/// How many queues a level may have.
const QUEUES_MAX: i64 = 10_000_000;
/// How many bits the hash of a flow has, from which its hand of queues is dealt.
const HASH_BITS_MAX: f64 = 60.0;

#[derive(Debug)]
struct PriorityLevelStrategy;

impl Strategy for PriorityLevelStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        part: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if part == Some(Subresource::Status) {
            return;
        }
        check_spec(new, errors);
        for fixed in default_priority_levels().iter().take(2) {
            // The shares and what is lent of the exempt level may be changed.
            if new.meta.name == "exempt" && fixed["metadata"]["name"] == "exempt" {
                if new.text(&["spec", "type"]) != "Exempt" {
                    let path = "spec.type";
                    let why = "must be 'Exempt' if and only if `name` is 'exempt'";
                    errors.push(FieldError::invalid(path, new.text(&["spec", "type"]), why));
                }
                continue;
            }
            check_fixed(new, fixed, errors);
        }
    }
}

/// Refuses another spec of an object that is fixed.
pub(super) fn check_fixed(new: &Draft, fixed: &Value, errors: &mut FieldErrors) {
    let name = new.meta.name.as_str();
    let spec = new.members.get("spec");
    if fixed["metadata"]["name"] == name && spec.is_some_and(|spec| !is_same(spec, &fixed["spec"]))
    {
        let why = format!("spec of '{name}' must equal the fixed value");
        errors.push(FieldError::invalid_value(
            "spec",
            spec.unwrap_or(&Value::Null),
            why,
        ));
    }
}

/// True if two values are the same; what is unset in both counts as the same.
fn is_same(one: &Value, other: &Value) -> bool {
    let unset = |value: &Value| crate::defaults::is_zero(value);
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys());
            let mut names = names.map(|name| {
                let (one, other) = (one.get(name), other.get(name));
                match (one, other) {
                    (Some(one), Some(other)) => is_same(one, other),
                    (Some(only), None) | (None, Some(only)) => unset(only),
                    (None, None) => true,
                }
            });
            names.all(|same| same)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other,
    }
}

fn number(new: &Draft, path: &[&str]) -> Option<i64> {
    new.at(path).and_then(Value::as_i64)
}

fn check_spec(new: &Draft, errors: &mut FieldErrors) {
    let has = |name: &str| {
        new.at(&["spec", name])
            .is_some_and(|value| !value.is_null())
    };
    match new.text(&["spec", "type"]) {
        "Exempt" => {
            if new.meta.name != "exempt" {
                let why = "must be 'Exempt' if and only if `name` is 'exempt'";
                errors.push(FieldError::invalid("spec.type", "Exempt", why));
            }
            if has("limited") {
                let why = "must be nil if the type is not Limited";
                errors.push(FieldError::forbidden("spec.limited", why));
            }
            check_shares(new, "exempt", errors);
        }
        "Limited" => {
            if has("exempt") {
                let why = "must be nil if the type is Limited";
                errors.push(FieldError::forbidden("spec.exempt", why));
            }
            if has("limited") {
                check_shares(new, "limited", errors);
                check_response(new, errors);
            } else {
                let why = "must not be empty when type is Limited";
                errors.push(FieldError::required("spec.limited", why));
            }
        }
        "" => errors.push(FieldError::required("spec.type", "")),
        other => {
            let supported = ["Exempt", "Limited"];
            errors.push(FieldError::not_supported(
                "spec.type",
                quote(other),
                &supported,
            ));
        }
    }
}

fn check_shares(new: &Draft, of: &str, errors: &mut FieldErrors) {
    let value = |name: &str| number(new, &["spec", of, name]);
    let mut check = |name: &str, is_right: &dyn Fn(i64) -> bool, why: &str| {
        if let Some(value) = value(name).filter(|value| !is_right(*value)) {
            errors.push(FieldError::invalid_value(
                format!("spec.{of}.{name}"),
                value,
                why,
            ));
        }
    };
    let natural = |value: i64| value >= 0;
    check(
        "nominalConcurrencyShares",
        &natural,
        "must be a non-negative integer",
    );
    check(
        "lendablePercent",
        &|value| (0..=100).contains(&value),
        "must be between 0 and 100, inclusive",
    );
    check(
        "borrowingLimitPercent",
        &natural,
        "if specified, must be a non-negative integer",
    );
}

fn check_response(new: &Draft, errors: &mut FieldErrors) {
    let path = |name: &str| format!("spec.limited.limitResponse.{name}");
    let response = |name: &str| new.at(&["spec", "limited", "limitResponse", name]);
    let queuing = response("queuing").filter(|queuing| !queuing.is_null());
    match new.text(&["spec", "limited", "limitResponse", "type"]) {
        "Reject" => {
            if queuing.is_some() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(FieldError::forbidden(path("queuing"), why));
            }
        }
        "Queue" if queuing.is_none() => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(path("queuing"), why));
        }
        "Queue" => check_queues(new, errors),
        "" => errors.push(FieldError::required(path("type"), "")),
        other => {
            let supported = ["Queue", "Reject"];
            errors.push(FieldError::not_supported(
                path("type"),
                quote(other),
                &supported,
            ));
        }
    }
}

fn check_queues(new: &Draft, errors: &mut FieldErrors) {
    let of = |name: &str| {
        number(new, &["spec", "limited", "limitResponse", "queuing", name]).unwrap_or_default()
    };
    let (queues, hand, length) = (of("queues"), of("handSize"), of("queueLengthLimit"));
    let mut wrong = |name: &str, value: i64, why: String| {
        let path = format!("spec.limited.limitResponse.queuing.{name}");
        errors.push(FieldError::invalid_value(path, value, why));
    };
    if length <= 0 {
        wrong("queueLengthLimit", length, "must be positive".to_owned());
    }
    if queues <= 0 {
        wrong("queues", queues, "must be positive".to_owned());
    } else if queues > QUEUES_MAX {
        wrong(
            "queues",
            queues,
            format!("must not be greater than {QUEUES_MAX}"),
        );
    }
    // How many bits it takes to deal a hand: the number of hands is queues · (queues - 1) · …
    let bits = || {
        (0..hand)
            .map(|dealt| ((queues - dealt) as f64).log2())
            .sum::<f64>()
            .ceil()
    };
    if hand <= 0 {
        wrong("handSize", hand, "must be positive".to_owned());
    } else if hand > queues {
        wrong(
            "handSize",
            hand,
            format!("should not be greater than queues ({queues})"),
        );
    } else if bits() > HASH_BITS_MAX {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS_MAX}"
        );
        wrong("handSize", hand, why);
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Type", "Whether its requests are limited."),
        string(
            "NominalConcurrencyShares",
            "Its part of what may run at once.",
        ),
        string("Queues", "How many queues it has."),
        string("HandSize", "How many queues are dealt to a flow."),
        string("QueueLengthLimit", "How many requests may wait in a queue."),
        AGE,
    ],
    cells: |object, now| {
        let limited = |path: &[&str]| {
            let path: Vec<&str> = ["spec", "limited"].iter().chain(path).copied().collect();
            let number = field(object, &path).and_then(Value::as_i64);
            number.map_or_else(|| Value::from("<none>"), Value::from)
        };
        let queuing = |name: &str| limited(&["limitResponse", "queuing", name]);
        cells![
            name(object),
            text(object, &["spec", "type"]),
            limited(&["nominalConcurrencyShares"]),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn priority_levels() {
        let level = json!({"metadata": meta("p"), "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "limitResponse": {"type": "Queue", "queuing": {"queues": 4, "handSize": 2, "queueLengthLimit": 3}},
        }}});
        assert_eq!(
            print(&PRINTER, level),
            json!(["p", "Limited", 5, 4, 2, 3, "24s"])
        );
        let exempt = json!({"metadata": meta("e"), "spec": {"type": "Exempt"}});
        assert_eq!(
            print(&PRINTER, exempt),
            json!(["e", "Exempt", "<none>", "<none>", "<none>", "<none>", "24s"])
        );
    }
}
