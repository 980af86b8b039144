//! What Pods request, and their containers.

use std::collections::BTreeMap;

use tidings_go::Quantity;
use tidings_json::{Map, Value};

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The items of a list in a Pod spec; none if it is not there.
pub(crate) fn items<'v>(value: &'v Value, list: &str) -> &'v [Value] {
    value[list].as_array().map_or(&[], Vec::as_slice)
}

/// A member that is a text; empty if it is not there.
pub(crate) fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

/// A quantity, which may be written as a number.
pub(crate) fn quantity(value: &Value) -> Quantity {
    let parsed = match value.as_str() {
        Some(text) => Quantity::parse(text),
        None => Quantity::parse(&value.to_string()),
    };
    parsed.unwrap_or(Quantity::ZERO)
}

/// The text of a quantity as it is stored.
pub(crate) fn quantity_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

pub(crate) fn amounts(of: &Value) -> Amounts {
    let members = of.as_object().into_iter().flat_map(Map::iter);
    members
        .map(|(name, value)| (name.clone(), quantity(value)))
        .collect()
}

/// True if both have the same resources with the same amounts.
pub(crate) fn same_amounts(one: &Map, other: &Map) -> bool {
    amounts(&one.clone().into()) == amounts(&other.clone().into())
}

/// All requests of a Pod, or all limits: of what runs at the same time together.
pub(crate) fn total(spec: &Value, of: &str) -> Amounts {
    let mut sum = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut sum, &amounts(&container["resources"][of]));
    }
    // Containers that are started before the others and go on count as those; the others run one after the other.
    let (mut going_on, mut largest) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let mut own = amounts(&container["resources"][of]);
        if text(container, "restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut going_on, &own);
            own = going_on.clone();
        } else {
            add(&mut own, &going_on);
        }
        raise(&mut largest, &own);
    }
    raise(&mut sum, &largest);
    // What the Pod says as a whole counts instead.
    let whole = amounts(&spec["resources"][of]).into_iter();
    sum.extend(whole.filter(|(name, _)| is_of_whole_pods(name)));
    sum
}

/// True for resources that a Pod may request as a whole.
pub(crate) fn is_of_whole_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = *sum + *amount;
    }
}

/// Raises amounts to others that are larger.
fn raise(to: &mut Amounts, at_least: &Amounts) {
    for (name, amount) in at_least {
        let known = to.entry(name.clone()).or_insert(*amount);
        *known = (*known).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn what_runs_at_the_same_time_counts_together() {
        let with = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = with("100m");
        sidecar["restartPolicy"] = "Always".into();
        for (containers, init, sum) in [
            (vec![with("1"), with("500m")], vec![], "1500m"),
            (vec![with("1")], vec![with("2"), with("3")], "3"),
            (vec![with("1")], vec![sidecar.clone()], "1100m"),
            (vec![with("1")], vec![sidecar.clone(), with("3")], "3100m"),
            (vec![with("1")], vec![with("3"), sidecar], "3"),
        ] {
            let spec = json!({"containers": containers, "initContainers": init});
            assert_eq!(total(&spec, "requests")["cpu"].to_string(), sum);
        }
    }
}
