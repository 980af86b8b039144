//! Sets the defaults of a definition.

use tidings_json::{Map, Value, json};

use super::member::storage_version;
use super::names::tidy;

/// The default port of webhooks.
const HTTPS_PORT: u16 = 443;

/// Sets the defaults of a definition (W177): singular, list kind, conversion strategy and webhook port. Also adds a status whose
/// `storedVersions` contain the storage version.
///
/// The caller drops the client's status before: a new definition has none, an update has the stored one.
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
        // `validate` reports a status of the wrong type.
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

/// Accepted names with the required members and in the API's order.
fn with_required(names: Value) -> Value {
    match names {
        Value::Object(names) => ordered(names),
        Value::Null => tidy(&Value::Null),
        other => other,
    }
}

/// Puts the known members in the API's order, then the rest. Members of the wrong type stay, so that `validate` reports them.
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
