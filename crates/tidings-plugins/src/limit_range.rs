//! `LimitRanger`: what containers, Pods and claims of a namespace may request, and what containers request that say nothing.

use std::collections::BTreeMap;

use tidings_api::Status;
use tidings_go::Quantity;
use tidings_json::{Map, Value};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::pod::{amounts, items, quantity, quantity_text, text, total};
use crate::write::{Known, PluginSaid, PluginWrite, is_kind, tree};

/// Says in a Pod what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods") || is_kind(kind, "", "persistentvolumeclaims")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        if !write.creates() || !write.is_of("", "pods") {
            return Ok(false);
        }
        let mut changed = false;
        for range in ranges(write) {
            changed |= fill_in(&range, draft);
        }
        Ok(changed)
    }

    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        old: Option<&Draft>,
        _: &mut PluginSaid,
    ) -> Result<(), Status> {
        let is_pod = write.is_of("", "pods");
        let going = old.is_some_and(|old| old.meta.deletion_timestamp.is_some());
        if going || !(write.creates() || (write.updates() && !is_pod)) {
            return Ok(());
        }
        let null = Value::Null;
        let spec = new.members.get("spec").unwrap_or(&null);
        for range in ranges(write) {
            let mut errors = Vec::new();
            for limit in items(&range["spec"], "limits") {
                match is_pod {
                    true => check_pod(limit, spec, &mut errors),
                    false => check_claim(limit, spec, &mut errors),
                }
            }
            if let Some(why) = together(errors) {
                return Err(write.forbidden(new, &why));
            }
        }
        Ok(())
    }
}

fn ranges(write: &PluginWrite<'_>) -> Vec<Value> {
    let found = write.cluster.list(Known::LimitRanges, write.namespace);
    found.iter().map(tree).collect()
}

/// Several errors as Go prints them together, each once.
fn together(mut errors: Vec<String>) -> Option<String> {
    let mut seen = Vec::new();
    errors.retain(|error| {
        let new = !seen.contains(error);
        seen.push(error.clone());
        new
    });
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Gives the containers of a Pod the requests and limits that they have not. Returns true if some were missing.
fn fill_in(range: &Value, draft: &mut Draft) -> bool {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    let of_containers = |limit: &&Value| text(limit, "type") == "Container";
    for limit in items(&range["spec"], "limits").iter().filter(of_containers) {
        for (into, from) in [(&mut requests, "defaultRequest"), (&mut limits, "default")] {
            let members = limit[from].as_object().into_iter().flat_map(Map::iter);
            into.extend(members.map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    let Some(spec) = draft.members.get_mut("spec") else {
        return false;
    };
    let mut said = Vec::new();
    for (list, called) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = text(container, "name").to_owned();
            for (member, word, defaults) in [
                ("requests", "request", &requests),
                ("limits", "limit", &limits),
            ] {
                let set = add_missing(container, member, defaults);
                if !set.is_empty() {
                    said.push(format!("{} {word} for {called} {name}", set.join(", ")));
                }
            }
        }
    }
    if said.is_empty() {
        return false;
    }
    let text = format!("LimitRanger plugin set: {}", said.join("; "));
    draft.meta.annotations.insert(ANNOTATION.into(), text);
    true
}

/// Adds amounts that a container does not name. Returns the names of those that were added, sorted.
fn add_missing(container: &mut Value, member: &str, defaults: &Map) -> Vec<String> {
    let missing = |name: &&String| container["resources"][member].get(name.as_str()).is_none();
    let mut names: Vec<String> = defaults.keys().filter(missing).cloned().collect();
    names.sort_unstable();
    if names.is_empty() {
        return names;
    }
    for part in [None, Some(member)] {
        let at = match part {
            None => &mut container["resources"],
            Some(member) => &mut container["resources"][member],
        };
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    let own = container["resources"][member].as_object_mut();
    if let Some(own) = own {
        let missing = defaults.iter().filter(|(name, _)| names.contains(name));
        own.extend(missing.map(|(name, value)| (name.clone(), value.clone())));
        own.sort_keys();
    }
    names
}

/// What an item of a limit range says about one resource, and what is compared with it.
struct Bound<'b> {
    /// `Container`, `Pod` or `PersistentVolumeClaim`.
    of: &'b str,
    resource: &'b str,
    enforced: &'b Value,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

type Given = BTreeMap<String, Quantity>;
type CheckBound = fn(&Bound<'_>) -> Option<String>;

fn check_pod(limit: &Value, spec: &Value, errors: &mut Vec<String>) {
    let rules: [(&str, CheckBound); 3] = [
        ("min", below_min),
        ("max", above_max),
        ("maxLimitRequestRatio", above_ratio),
    ];
    let mut compare = |requests: &Given, limits: &Given| {
        for (member, rule) in rules {
            apply(limit, member, rule, requests, limits, errors);
        }
    };
    match text(limit, "type") {
        "Container" => {
            let all = items(spec, "containers")
                .iter()
                .chain(items(spec, "initContainers"));
            for container in all {
                let resources = &container["resources"];
                compare(
                    &amounts(&resources["requests"]),
                    &amounts(&resources["limits"]),
                );
            }
        }
        "Pod" => compare(&total(spec, "requests"), &total(spec, "limits")),
        _ => {}
    }
}

fn check_claim(limit: &Value, spec: &Value, errors: &mut Vec<String>) {
    if text(limit, "type") != "PersistentVolumeClaim" {
        return;
    }
    let requests = amounts(&spec["resources"]["requests"]);
    let none = Given::new();
    apply(limit, "min", below_min, &requests, &none, errors);
    apply(limit, "max", above_max_request, &requests, &none, errors);
}

fn apply(
    limit: &Value,
    member: &str,
    rule: CheckBound,
    requests: &Given,
    limits: &Given,
    errors: &mut Vec<String>,
) {
    for (resource, enforced) in limit[member].as_object().into_iter().flat_map(Map::iter) {
        errors.extend(rule(&Bound {
            of: text(limit, "type"),
            resource,
            enforced,
            request: requests.get(resource).copied(),
            limit: limits.get(resource).copied(),
        }));
    }
}

impl Bound<'_> {
    /// The beginning of a message: which bound it is.
    fn says(&self, which: &str) -> String {
        let Bound {
            of,
            resource,
            enforced,
            ..
        } = self;
        let enforced = quantity_text(enforced);
        format!("{which} {resource} usage per {of} is {enforced}")
    }
}

fn below_min(bound: &Bound<'_>) -> Option<String> {
    let (says, least) = (bound.says("minimum"), quantity(bound.enforced));
    let Some(request) = bound.request else {
        return Some(format!("{says}.  No request is specified"));
    };
    if request < least {
        return Some(format!("{says}, but request is {request}"));
    }
    let limit = bound.limit.filter(|limit| *limit < least);
    limit.map(|limit| format!("{says}, but limit is {limit}"))
}

fn above_max(bound: &Bound<'_>) -> Option<String> {
    let (says, most) = (bound.says("maximum"), quantity(bound.enforced));
    let Some(limit) = bound.limit else {
        return Some(format!("{says}.  No limit is specified"));
    };
    if limit > most {
        return Some(format!("{says}, but limit is {limit}"));
    }
    let request = bound.request.filter(|request| *request > most);
    request.map(|request| format!("{says}, but request is {request}"))
}

fn above_max_request(bound: &Bound<'_>) -> Option<String> {
    let (says, most) = (bound.says("maximum"), quantity(bound.enforced));
    let Some(request) = bound.request else {
        return Some(format!("{says}.  No request is specified"));
    };
    (request > most).then(|| format!("{says}, but request is {request}"))
}

fn above_ratio(bound: &Bound<'_>) -> Option<String> {
    let Bound {
        of,
        resource,
        enforced,
        ..
    } = bound;
    let shown = quantity_text(enforced);
    let says = format!("{resource} max limit to request ratio per {of} is {shown}");
    let there = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
    let Some(request) = there(bound.request) else {
        return Some(format!(
            "{says}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = there(bound.limit) else {
        return Some(format!("{says}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.milli_value() as f64 / request.milli_value() as f64;
    let most = quantity(enforced).milli_value() as f64 / 1000.0;
    (ratio > most).then(|| format!("{says}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    fn refused(limit: &Value, spec: &Value) -> Option<String> {
        let mut errors = Vec::new();
        check_pod(limit, spec, &mut errors);
        together(errors)
    }

    #[test]
    fn amounts_outside_of_a_range_are_refused() {
        let spec = |request: &str, limit: &str| {
            let resources = json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
            json!({"containers": [{"name": "c", "resources": resources}]})
        };
        let range = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}});
        for (request, limit, why) in [
            ("100m", "200m", None),
            ("500m", "1", None),
            (
                "50m",
                "100m",
                Some("minimum cpu usage per Container is 100m, but request is 50m"),
            ),
            (
                "1",
                "1500m",
                Some("maximum cpu usage per Container is 1, but limit is 1500m"),
            ),
            (
                "100m",
                "1",
                Some(
                    "cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000",
                ),
            ),
        ] {
            let refused = refused(&range, &spec(request, limit));
            assert_eq!(refused.as_deref(), why, "{request} {limit}");
        }
        let none = json!({"containers": [{"name": "c"}, {"name": "d"}]});
        assert_eq!(
            refused(
                &json!({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "1"}}),
                &none
            )
            .unwrap(),
            "[minimum cpu usage per Container is 1.  No request is specified, maximum cpu usage per Container is 1.  No limit is specified]"
        );
        let pod = json!({"type": "Pod", "max": {"cpu": "1"}});
        assert_eq!(refused(&pod, &spec("1", "1")), None);
        assert_eq!(
            refused(&pod, &spec("1", "2")).unwrap(),
            "maximum cpu usage per Pod is 1, but limit is 2"
        );
    }
}
