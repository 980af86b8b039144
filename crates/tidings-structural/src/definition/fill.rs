//! What a definition gets that its author left out.

use tidings_json::{Map, Value, json};

use super::member::storage_version;
use super::names::tidy;

/// The port of webhooks.
const HTTPS_PORT: u16 = 443;

/// Fills in the defaults of a definition (W177): singular and list kind, the strategy of conversions, the port of a webhook; and
/// a status, in which the version that objects are stored in is among those that are stored.
///
/// For a new definition, what the client said of status must have been dropped before; on update, status must be the stored one.
pub fn fill_in(crd: &mut Value) {
    let Value::Object(object) = crd else {
        return;
    };
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    if let Value::Object(spec) = spec {
        fill_spec(spec);
    }
    let storage = storage_version(crd).map(str::to_owned);
    let mut status = match crd.get_mut("status").map(Value::take) {
        Some(Value::Object(status)) => status,
        // Anything else is told by `validate`.
        Some(other) if !other.is_null() => {
            crd["status"] = other;
            return;
        }
        _ => Map::new(),
    };
    let mut filled = Map::new();
    let conditions = status.remove("conditions").unwrap_or_default();
    filled.insert("conditions".into(), conditions);
    let names = status.remove("acceptedNames").unwrap_or_default();
    filled.insert("acceptedNames".into(), with_required(names));
    let mut stored = status.remove("storedVersions").unwrap_or_default();
    if let Some(name) = storage {
        if stored.is_null() {
            stored = json!([]);
        }
        if let Value::Array(stored) = &mut stored
            && !stored.iter().any(|version| *version == *name)
        {
            stored.push(name.into());
        }
    }
    filled.insert("storedVersions".into(), stored);
    filled.extend(status);
    crd["status"] = Value::Object(filled);
}

fn with_required(names: Value) -> Value {
    match names {
        Value::Object(names) => ordered(names),
        Value::Null => tidy(&Value::Null),
        other => other,
    }
}

/// Known members in the API's order, then the rest. Members of the wrong type are kept for `validate`.
fn ordered(mut names: Map) -> Value {
    let mut ordered = Map::new();
    for member in [
        "plural",
        "singular",
        "shortNames",
        "kind",
        "listKind",
        "categories",
    ] {
        let is_required = member == "plural" || member == "kind";
        match names.remove(member) {
            Some(value) if !value.is_null() => ordered.insert(member.into(), value),
            _ if is_required => ordered.insert(member.into(), "".into()),
            _ => None,
        };
    }
    ordered.extend(names);
    Value::Object(ordered)
}

fn fill_spec(spec: &mut Map) {
    let names = spec.entry("names").or_insert_with(|| json!({}));
    if names.is_null() {
        *names = json!({});
    }
    if let Value::Object(object) = names {
        let kind = object.get("kind").and_then(Value::as_str);
        let kind = kind.unwrap_or_default().to_owned();
        let is_empty = |member: Option<&Value>| {
            member.is_none_or(|value| value.is_null() || value.as_str() == Some(""))
        };
        if is_empty(object.get("singular")) && !kind.is_empty() {
            object.insert("singular".into(), kind.to_lowercase().into());
        }
        if is_empty(object.get("listKind")) && !kind.is_empty() {
            object.insert("listKind".into(), format!("{kind}List").into());
        }
        *names = ordered(std::mem::take(object));
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    let service = conversion.pointer_mut("/webhook/clientConfig/service");
    if let Some(Value::Object(service)) = service
        && service.get("port").is_none_or(Value::is_null)
    {
        service.insert("port".into(), HTTPS_PORT.into());
    }
}
