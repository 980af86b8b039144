//! Completes drafts: fills in defaults, and brings objects into the form in which they are stored: members in the order of the Go
//! type, without empty ones, and with those that Go always writes.
//!
//! The defaults ([`TypeDefaults`]) stand in the files of the kinds that own the types; this file applies them.

use std::sync::LazyLock;

use tidings_json::{Map, Number, Touched, Value, json};
use tidings_schema::{Field, FieldKind, ItemType, StructAlternative, Type};

use crate::defaults::{TypeDefaults, is_empty, is_zero};
use crate::kinds;
use crate::model::Draft;

/// The defaults of types, by the position of the type in the table of types: they are looked up for every struct of an object.
static DEFAULTS: LazyLock<Vec<Option<&'static TypeDefaults>>> = LazyLock::new(|| {
    let mut by_index = Vec::new();
    for defaults in kinds::defaults() {
        let Some(of) = defaults.find() else {
            continue; // a test checks that all types exist
        };
        if by_index.len() <= of.index {
            by_index.resize(of.index + 1, None);
        }
        by_index[of.index] = Some(defaults);
    }
    by_index
});

fn defaults_of(of: &Type) -> Option<&'static TypeDefaults> {
    DEFAULTS.get(of.index).copied().flatten()
}

/// The constant default of a member of a type, if there is one.
pub(crate) fn default_of(of: &Type, member: &str) -> Option<Value> {
    let mut fields = defaults_of(of)?.fields.iter();
    let (_, default) = fields.find(|(name, _)| *name == member)?;
    serde_json::from_str(default).ok()
}

/// Completes a draft. Parts that are not in `touched` must be complete already.
pub(crate) fn complete(draft: &mut Draft, touched: &Touched) {
    complete_touched(draft, touched);
    debug_assert!(
        matches!(touched, Touched::Whole) || is_complete(draft),
        "a part that was not touched is not complete"
    );
}

fn is_complete(draft: &Draft) -> bool {
    let mut whole = draft.clone();
    complete_touched(&mut whole, &Touched::Whole);
    let shown = |draft: Draft| Value::Object(draft.members).to_string();
    shown(whole) == shown(draft.clone())
}

fn complete_touched(draft: &mut Draft, touched: &Touched) {
    let kind = draft.kind.clone();
    let Some(schema) = kind.schema else {
        return;
    };
    let before = draft.members.len();
    // An object without a spec gets the defaults of the spec.
    let spec = schema
        .field("spec")
        .filter(|spec| is_struct(spec) && spec.keep);
    if spec.is_some() && is_empty(draft.members.get("spec")) {
        draft.members.insert("spec".into(), json!({}));
    }
    fill(&mut draft.members, schema);
    let whole = kind.strategy.complete(draft) || draft.members.len() != before;
    let touched = if whole { &Touched::Whole } else { touched };
    for (name, value) in &mut draft.members {
        if let (Some(field), Some(touched)) = (schema.field(name), touched.member(name)) {
            complete_field(value, field, touched);
        }
    }
}

/// Fills in the defaults of a type. Returns true if some of them depend on other members.
fn fill(members: &mut Map, of: &'static Type) -> bool {
    let Some(TypeDefaults { fields, rule, .. }) = defaults_of(of) else {
        return false;
    };
    for (name, default) in *fields {
        let pointer = of.field(name).is_some_and(|field| field.pointer);
        let absent = match members.get(name) {
            None | Some(Value::Null) => true,
            Some(value) => !pointer && is_zero(value),
        };
        if absent && let Ok(value) = serde_json::from_str(default) {
            members.insert((*name).to_owned(), value);
        }
    }
    if let Some(rule) = rule {
        rule(members);
    }
    rule.is_some()
}

fn complete_field(value: &mut Value, field: &'static Field, touched: &Touched) {
    match (value, field.kind) {
        (value, FieldKind::One(item)) => complete_item(value, item, touched),
        (Value::Array(values), FieldKind::List(item)) => {
            for (at, value) in values.iter_mut().enumerate() {
                if let Some(touched) = touched.item(at) {
                    complete_item(value, item, touched);
                }
            }
        }
        (Value::Object(members), FieldKind::Map(item)) => {
            for (name, value) in &mut *members {
                if let Some(touched) = touched.member(name) {
                    complete_item(value, item, touched);
                }
            }
            members.sort_keys();
        }
        _ => {}
    }
}

fn complete_item(value: &mut Value, item: ItemType, touched: &Touched) {
    let (of, members) = match (item, value) {
        (ItemType::Struct(of) | ItemType::Either(of, _), Value::Object(members)) => (of, members),
        (ItemType::Either(of, StructAlternative::List), Value::Array(elements)) => {
            for element in elements {
                complete_item(element, ItemType::Struct(of), &Touched::Whole);
            }
            return;
        }
        (ItemType::Double, Value::Number(number)) => return shorten(number),
        _ => return,
    };
    let before = members.len();
    let several = fill(members, of);
    // Members that have just been filled in, or may depend on those, are not complete yet.
    let mut whole = members.len() != before || several && touched.has_whole();
    if !is_in_form(members, of) {
        whole = true;
        let mut kept = Map::with_capacity(members.len());
        for field in of.members() {
            match members.get_mut(field.name).map(Value::take) {
                None | Some(Value::Null) => {
                    if field.keep {
                        kept.insert(field.name.to_owned(), zero(field));
                    }
                }
                Some(value) if is_kept(&value, field) => {
                    kept.insert(field.name.to_owned(), value);
                }
                Some(_) => {}
            }
        }
        *members = kept;
    }
    let mut fields = of.members();
    for (name, value) in members {
        if matches!(value, Value::String(_) | Value::Bool(_)) {
            continue; // texts and booleans are always complete
        }
        let touched = match touched.member(name) {
            _ if whole => &Touched::Whole,
            Some(touched) => touched,
            None => continue,
        };
        if let Some(field) = fields.find(|field| field.name == name) {
            complete_field(value, field, touched);
        }
    }
}

/// True if the members are exactly those that are stored, in the order of the type.
fn is_in_form(members: &Map, of: &'static Type) -> bool {
    let mut members = members.iter().peekable();
    let mut fields = of.members();
    let in_form = fields.all(
        |field| match members.next_if(|(name, _)| *name == field.name) {
            Some((_, value)) => is_kept(value, field) && !value.is_null(),
            None => !field.keep,
        },
    );
    in_form && members.next().is_none()
}

fn is_kept(value: &Value, field: &'static Field) -> bool {
    field.keep || field.pointer || !is_zero(value) || is_struct(field)
}

/// Turns a float without a fraction into an integer, as Go writes it.
fn shorten(number: &mut Number) {
    if let Some(whole) = number.as_f64().and_then(tidings_go::whole_number) {
        *number = whole.into();
    }
}

fn is_struct(field: &Field) -> bool {
    matches!(field.kind, FieldKind::One(ItemType::Struct(_)))
}

/// The value of an absent field that Go always writes, with defaults.
pub(crate) fn zero(field: &'static Field) -> Value {
    zero_with(field, |of| {
        let mut value = json!({});
        complete_item(&mut value, ItemType::Struct(of), &Touched::Whole);
        value
    })
}

/// The value, without defaults, of a field that Go always writes, in an object in which nothing is set.
pub(crate) fn unset(field: &'static Field) -> Value {
    zero_with(field, |of| {
        let kept = of.members().filter(|member| member.keep);
        let members = kept.map(|member| (member.name.to_owned(), unset(member)));
        Value::Object(members.collect())
    })
}

fn zero_with(field: &'static Field, zero_struct: fn(&'static Type) -> Value) -> Value {
    match field.kind {
        _ if field.pointer => Value::Null,
        FieldKind::List(_) | FieldKind::Map(_) => Value::Null,
        FieldKind::One(item) => match item {
            ItemType::String => "".into(),
            ItemType::Bool => false.into(),
            ItemType::Int32 | ItemType::Int64 | ItemType::IntOrString => 0.into(),
            ItemType::Quantity => "0".into(),
            ItemType::Struct(of) => zero_struct(of),
            _ => Value::Null,
        },
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::TouchedPart;

    use super::*;
    use crate::test_kinds::kind;

    fn completed(group: &str, plural: &str, body: &Value) -> Value {
        let kind = kind(group, plural);
        let draft = Draft::read(&kind, body.to_string().as_bytes()).expect(plural);
        serde_json::from_slice(draft.write().unwrap().value()).unwrap()
    }

    #[test]
    fn what_is_filled_in_beside_what_is_touched_is_complete() {
        let kind = kind("apps", "deployments");
        let named = |name: &str| TouchedPart::Member(name.to_owned());
        let below = |name: &str, touched| Touched::Parts(vec![(named(name), touched)]);
        let touched = below("spec", below("replicas", Touched::Whole));
        let mut draft = Draft::empty(&kind);
        draft.members = Map::new();
        draft.members.insert("spec".into(), json!({"replicas": 2}));
        complete_touched(&mut draft, &touched);
        assert!(is_complete(&draft), "{:?}", draft.members);
        assert_eq!(
            draft.members.get("spec").unwrap()["strategy"]["type"],
            "RollingUpdate"
        );
    }

    #[test]
    fn the_tables_name_types_and_fields_that_exist() {
        for defaults in kinds::defaults() {
            let Some(of) = defaults.find() else {
                panic!("no type {}", defaults.of);
            };
            for (field, value) in defaults.fields {
                assert!(of.field(field).is_some(), "{} has no {field}", defaults.of);
                serde_json::from_str::<Value>(value).unwrap();
            }
        }
        let named: std::collections::HashSet<_> = kinds::defaults().map(|one| one.of).collect();
        assert_eq!(
            named.len(),
            kinds::defaults().count(),
            "a type has defaults in two places"
        );
    }

    #[test]
    fn schemas_are_brought_into_one_form_wherever_they_stand() {
        let of = tidings_schema::find_type("apiextensions/v1", "JSONSchemaProps").unwrap();
        let mut schema = json!({
            "properties": {"b": {"maximum": 100.0, "minimum": 0.5, "title": ""}, "a": {}},
            "items": [{"nullable": false, "type": "x"}],
            "additionalProperties": {"description": "", "type": "y"},
        });
        complete_item(&mut schema, ItemType::Struct(of), &Touched::Whole);
        let expected = r#"{"items":[{"type":"x"}],"properties":{"a":{},"b":{"maximum":100,"minimum":0.5}},"additionalProperties":{"type":"y"}}"#;
        assert_eq!(schema.to_string(), expected);
    }

    #[test]
    fn what_is_empty_is_left_out_and_the_rest_is_in_the_order_of_the_type() {
        let body = json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": false, "nodeName": "", "volumes": [],
            "containers": [{"image": "i:1", "name": "c", "env": [{"value": "", "name": "A"}]}],
        }});
        let spec = completed("", "pods", &body)["spec"].to_string();
        assert_eq!(
            spec,
            r#"{"containers":[{"name":"c","image":"i:1","env":[{"name":"A"}],"resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler","enableServiceLinks":true}"#
        );
    }
}
