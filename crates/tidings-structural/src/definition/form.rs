//! Checks the JSON types of all members of a definition. Later checks rely on these types.

use tidings_api::FieldError;
use tidings_json::Value;

use crate::text::{FieldPath, bad_value};

/// The JSON type that a member must have.
enum MemberForm {
    Text,
    Bool,
    Int,
    Object(&'static [(&'static str, MemberForm)]),
    Texts,
    List(&'static [(&'static str, MemberForm)]),
    /// A list of objects of any content, such as conditions.
    Objects,
}

const NAMES: &[(&str, MemberForm)] = &[
    ("plural", MemberForm::Text),
    ("singular", MemberForm::Text),
    ("kind", MemberForm::Text),
    ("listKind", MemberForm::Text),
    ("shortNames", MemberForm::Texts),
    ("categories", MemberForm::Texts),
];

const VERSION: &[(&str, MemberForm)] = &[
    ("name", MemberForm::Text),
    ("served", MemberForm::Bool),
    ("storage", MemberForm::Bool),
    ("deprecated", MemberForm::Bool),
    ("deprecationWarning", MemberForm::Text),
    (
        "schema",
        MemberForm::Object(&[("openAPIV3Schema", MemberForm::Object(&[]))]),
    ),
    (
        "subresources",
        MemberForm::Object(&[
            ("status", MemberForm::Object(&[])),
            (
                "scale",
                MemberForm::Object(&[
                    ("specReplicasPath", MemberForm::Text),
                    ("statusReplicasPath", MemberForm::Text),
                    ("labelSelectorPath", MemberForm::Text),
                ]),
            ),
        ]),
    ),
    (
        "additionalPrinterColumns",
        MemberForm::List(&[
            ("name", MemberForm::Text),
            ("type", MemberForm::Text),
            ("format", MemberForm::Text),
            ("description", MemberForm::Text),
            ("priority", MemberForm::Int),
            ("jsonPath", MemberForm::Text),
        ]),
    ),
    (
        "selectableFields",
        MemberForm::List(&[("jsonPath", MemberForm::Text)]),
    ),
];

const CONVERSION: &[(&str, MemberForm)] = &[
    ("strategy", MemberForm::Text),
    (
        "webhook",
        MemberForm::Object(&[
            ("conversionReviewVersions", MemberForm::Texts),
            (
                "clientConfig",
                MemberForm::Object(&[
                    ("url", MemberForm::Text),
                    (
                        "service",
                        MemberForm::Object(&[
                            ("namespace", MemberForm::Text),
                            ("name", MemberForm::Text),
                            ("path", MemberForm::Text),
                            ("port", MemberForm::Int),
                        ]),
                    ),
                    ("caBundle", MemberForm::Text),
                ]),
            ),
        ]),
    ),
];

const DEFINITION: MemberForm = MemberForm::Object(&[
    (
        "spec",
        MemberForm::Object(&[
            ("group", MemberForm::Text),
            ("scope", MemberForm::Text),
            ("names", MemberForm::Object(NAMES)),
            ("versions", MemberForm::List(VERSION)),
            ("conversion", MemberForm::Object(CONVERSION)),
            ("preserveUnknownFields", MemberForm::Bool),
        ]),
    ),
    (
        "status",
        MemberForm::Object(&[
            ("conditions", MemberForm::Objects),
            ("acceptedNames", MemberForm::Object(NAMES)),
            ("storedVersions", MemberForm::Texts),
        ]),
    ),
]);

/// Returns an error for each member of the wrong type.
pub(super) fn check(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(crd, &DEFINITION, &FieldPath::default(), &mut errors);
    errors
}

fn walk(value: &Value, form: &MemberForm, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match (form, value) {
        (_, Value::Null)
        | (MemberForm::Text, Value::String(_))
        | (MemberForm::Bool, Value::Bool(_)) => {}
        (MemberForm::Int, Value::Number(number))
            if number
                .as_i64()
                .is_some_and(|int| i32::try_from(int).is_ok()) => {}
        (MemberForm::Object(members), Value::Object(object)) => {
            for (name, form) in *members {
                if let Some(member) = object.get(name) {
                    walk(member, form, &path.child(name), errors);
                }
            }
        }
        (MemberForm::List(members), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(
                    value,
                    &MemberForm::Object(members),
                    &path.index(index),
                    errors,
                );
            }
        }
        (MemberForm::Texts, Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(value, &MemberForm::Text, &path.index(index), errors);
            }
        }
        (MemberForm::Objects, Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(value, &MemberForm::Object(&[]), &path.index(index), errors);
            }
        }
        (form, value) => {
            let wanted = match form {
                MemberForm::Text => "string",
                MemberForm::Bool => "boolean",
                MemberForm::Int => "integer of 32 bits",
                MemberForm::Object(_) => "object",
                MemberForm::Texts | MemberForm::List(_) | MemberForm::Objects => "array",
            };
            let detail = format!("must be of type {wanted}");
            errors.push(FieldError::type_invalid(
                path.clone(),
                bad_value(value),
                detail,
            ));
        }
    }
}

/// Checks an element of a list. A null member counts as absent; a null element is an error.
fn element(value: &Value, form: &MemberForm, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if value.is_null() {
        errors.push(FieldError::required(path.clone(), "must not be null"));
    } else {
        walk(value, form, path, errors);
    }
}
