//! Cell texts that several kinds share: ages, labels, selectors and lists.

use jiff::{SignedDuration, Timestamp};
use tidings_json::Value;

use super::fields::{field, list, map, text, texts};

const NONE: &str = "<none>";

/// The time since the object was created, as text.
pub(crate) fn age(object: &Value, now: Timestamp) -> String {
    since(object, &["metadata", "creationTimestamp"], now)
}

/// The time since the timestamp at a path, as text.
pub(crate) fn since(object: &Value, path: &[&str], now: Timestamp) -> String {
    match time(object, path) {
        Some(then) => human_duration(now.duration_since(then)),
        None => "<unknown>".to_string(),
    }
}

/// The time since a timestamp in a date column of a custom resource, as text.
pub(crate) fn ago(then: &str, now: Timestamp) -> String {
    match then.parse() {
        Ok(then) => human_duration(now.duration_since(then)),
        Err(_) => "<invalid>".to_string(),
    }
}

/// The timestamp at a path. The year 1 means "never set".
pub(crate) fn time(object: &Value, path: &[&str]) -> Option<Timestamp> {
    let text = text(object, path);
    if text.starts_with("0001-01-01T00:00:00") {
        return None;
    }
    text.parse().ok()
}

/// A duration as kubectl writes it: one or two units, coarser as it grows.
pub(crate) fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let minutes = seconds / 60;
    let hours = minutes / 60;
    let days = hours / 24;
    let years = days / 365;
    if seconds < -1 {
        "<invalid>".to_string()
    } else if seconds < 0 {
        // The clocks of two machines may differ by a second.
        "0s".to_string()
    } else if minutes < 2 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two_units(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two_units(hours, "h", minutes % 60, "m")
    } else if days < 2 {
        format!("{hours}h")
    } else if days < 8 {
        two_units(days, "d", hours % 24, "h")
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        two_units(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

/// A duration in two units; the smaller one is left out if it is 0.
fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// Labels as sorted `key=value` pairs, or `<none>`.
pub(crate) fn labels(object: &Value, path: &[&str]) -> String {
    let mut pairs: Vec<String> = map(object, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return NONE.to_string();
    }
    pairs.sort();
    pairs.join(",")
}

/// A label selector in query syntax, or `<none>` if it is empty, or `<error>` if it is invalid.
pub(crate) fn selector_or_none(object: &Value, path: &[&str]) -> String {
    match selector(object, path) {
        Some(text) if text.is_empty() => NONE.to_string(),
        Some(text) => text,
        None => "<error>".to_string(),
    }
}

/// A label selector in query syntax, sorted by key; `None` if it is invalid.
pub(crate) fn selector(object: &Value, path: &[&str]) -> Option<String> {
    let Some(selector) = field(object, path) else {
        return Some(String::new());
    };
    let mut requirements: Vec<(&str, String)> = map(selector, &["matchLabels"])
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let value = value.as_str().unwrap_or_default();
            (key.as_str(), format!("{key}={value}"))
        })
        .collect();
    for expression in list(selector, &["matchExpressions"]) {
        requirements.push((text(expression, &["key"]), requirement(expression)?));
    }
    requirements.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(","))
}

/// An element of `matchExpressions` in query syntax; `None` if it is invalid.
fn requirement(expression: &Value) -> Option<String> {
    let key = text(expression, &["key"]);
    let mut values = texts(expression, &["values"]);
    values.sort_unstable();
    let set = values.join(",");
    match (text(expression, &["operator"]), values.is_empty()) {
        ("In", false) => Some(format!("{key} in ({set})")),
        ("NotIn", false) => Some(format!("{key} notin ({set})")),
        ("Exists", true) => Some(key.to_string()),
        ("DoesNotExist", true) => Some(format!("!{key}")),
        _ => None,
    }
}

/// The names and the images of a pod spec's containers.
pub(crate) fn containers(object: &Value, path: &[&str]) -> (String, String) {
    let containers = list(object, path);
    let join = |key| {
        let texts: Vec<&str> = containers.iter().map(|item| text(item, &[key])).collect();
        texts.join(",")
    };
    (join("name"), join("image"))
}

/// The first `max` items, and how many more there are.
pub(crate) fn some_of(items: &[String], max: usize, separator: &str) -> String {
    match items.split_at_checked(max) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("{} + {} more...", shown.join(separator), rest.len())
        }
        _ => items.join(separator),
    }
}

/// The addresses of a load balancer: sorted, without duplicates.
pub(crate) fn load_balancer(object: &Value) -> String {
    let mut addresses: Vec<&str> = list(object, &["status", "loadBalancer", "ingress"])
        .iter()
        .map(|point| match text(point, &["ip"]) {
            "" => text(point, &["hostname"]),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

/// Whether an annotation of the object is "true".
pub(crate) fn is_annotated(object: &Value, annotation: &str) -> bool {
    text(object, &["metadata", "annotations", annotation]) == "true"
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    #[test]
    fn durations_get_coarser_as_they_grow() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (95, "95s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (4 * MINUTE + 2, "4m2s"),
            (10 * MINUTE + 5, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 5 * MINUTE, "7h5m"),
            (8 * HOUR + 5 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY + 3 * HOUR, "8d"),
            (2 * YEAR - HOUR, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (9 * YEAR + DAY, "9y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expected);
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1900)), "0s");
    }

    #[test]
    fn unset_times_are_unknown() {
        for object in [
            json!({}),
            json!({"metadata": {"creationTimestamp": null}}),
            json!({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}),
            json!({"metadata": {"creationTimestamp": "yesterday"}}),
        ] {
            assert_eq!(age(&object, Timestamp::UNIX_EPOCH), "<unknown>");
        }
    }

    #[test]
    fn selectors_use_query_syntax() {
        let object = json!({
            "full": {
                "matchLabels": {"tier": "web", "app": "shop"},
                "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["b", "a"]},
                    {"key": "env", "operator": "NotIn", "values": ["dev"]},
                    {"key": "old", "operator": "DoesNotExist"},
                    {"key": "new", "operator": "Exists"},
                ],
            },
            "empty": {},
            "invalid": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
        });
        assert_eq!(
            selector_or_none(&object, &["full"]),
            "app=shop,env notin (dev),new,!old,tier=web,zone in (a,b)"
        );
        assert_eq!(selector_or_none(&object, &["empty"]), "<none>");
        assert_eq!(selector_or_none(&object, &["absent"]), "<none>");
        assert_eq!(selector_or_none(&object, &["invalid"]), "<error>");
    }

    #[test]
    fn long_lists_are_cut() {
        let items: Vec<String> = ["a", "b", "c"].map(str::to_string).to_vec();
        assert_eq!(some_of(&items, 2, ","), "a,b + 1 more...");
        assert_eq!(some_of(&items, 3, ","), "a,b,c");
        assert_eq!(some_of(&[], 3, ","), "");
    }
}
