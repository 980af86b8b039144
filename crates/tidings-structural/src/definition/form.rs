//! Is a definition of the right form? Everything behind this may take members for what they should be.

use tidings_api::FieldError;
use tidings_json::Value;

use crate::text::{Path, bad_value};

enum Form {
    Text,
    Bool,
    Int,
    Object(&'static [(&'static str, Form)]),
    Texts,
    List(&'static [(&'static str, Form)]),
    /// A list of conditions, or whatever others have put there.
    Objects,
}

const NAMES: &[(&str, Form)] = &[
    ("plural", Form::Text),
    ("singular", Form::Text),
    ("kind", Form::Text),
    ("listKind", Form::Text),
    ("shortNames", Form::Texts),
    ("categories", Form::Texts),
];

const VERSION: &[(&str, Form)] = &[
    ("name", Form::Text),
    ("served", Form::Bool),
    ("storage", Form::Bool),
    ("deprecated", Form::Bool),
    ("deprecationWarning", Form::Text),
    (
        "schema",
        Form::Object(&[("openAPIV3Schema", Form::Object(&[]))]),
    ),
    (
        "subresources",
        Form::Object(&[
            ("status", Form::Object(&[])),
            (
                "scale",
                Form::Object(&[
                    ("specReplicasPath", Form::Text),
                    ("statusReplicasPath", Form::Text),
                    ("labelSelectorPath", Form::Text),
                ]),
            ),
        ]),
    ),
    (
        "additionalPrinterColumns",
        Form::List(&[
            ("name", Form::Text),
            ("type", Form::Text),
            ("format", Form::Text),
            ("description", Form::Text),
            ("priority", Form::Int),
            ("jsonPath", Form::Text),
        ]),
    ),
    ("selectableFields", Form::List(&[("jsonPath", Form::Text)])),
];

const CONVERSION: &[(&str, Form)] = &[
    ("strategy", Form::Text),
    (
        "webhook",
        Form::Object(&[
            ("conversionReviewVersions", Form::Texts),
            (
                "clientConfig",
                Form::Object(&[
                    ("url", Form::Text),
                    (
                        "service",
                        Form::Object(&[
                            ("namespace", Form::Text),
                            ("name", Form::Text),
                            ("path", Form::Text),
                            ("port", Form::Int),
                        ]),
                    ),
                    ("caBundle", Form::Text),
                ]),
            ),
        ]),
    ),
];

const DEFINITION: Form = Form::Object(&[
    (
        "spec",
        Form::Object(&[
            ("group", Form::Text),
            ("scope", Form::Text),
            ("names", Form::Object(NAMES)),
            ("versions", Form::List(VERSION)),
            ("conversion", Form::Object(CONVERSION)),
            ("preserveUnknownFields", Form::Bool),
        ]),
    ),
    (
        "status",
        Form::Object(&[
            ("conditions", Form::Objects),
            ("acceptedNames", Form::Object(NAMES)),
            ("storedVersions", Form::Texts),
        ]),
    ),
]);

/// What has another type than it should have.
pub(super) fn check(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(crd, &DEFINITION, &Path::default(), &mut errors);
    errors
}

fn walk(value: &Value, form: &Form, path: &Path, errors: &mut Vec<FieldError>) {
    match (form, value) {
        (_, Value::Null) | (Form::Text, Value::String(_)) | (Form::Bool, Value::Bool(_)) => {}
        (Form::Int, Value::Number(number))
            if number
                .as_i64()
                .is_some_and(|int| i32::try_from(int).is_ok()) => {}
        (Form::Object(members), Value::Object(object)) => {
            for (name, form) in *members {
                if let Some(member) = object.get(name) {
                    walk(member, form, &path.child(name), errors);
                }
            }
        }
        (Form::List(members), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(value, &Form::Object(members), &path.index(index), errors);
            }
        }
        (Form::Texts, Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(value, &Form::Text, &path.index(index), errors);
            }
        }
        (Form::Objects, Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                element(value, &Form::Object(&[]), &path.index(index), errors);
            }
        }
        (form, value) => {
            let wanted = match form {
                Form::Text => "string",
                Form::Bool => "boolean",
                Form::Int => "integer of 32 bits",
                Form::Object(_) => "object",
                Form::Texts | Form::List(_) | Form::Objects => "array",
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

/// Members may be null, which is as if they were absent; elements may not.
fn element(value: &Value, form: &Form, path: &Path, errors: &mut Vec<FieldError>) {
    if value.is_null() {
        errors.push(FieldError::required(path.clone(), "must not be null"));
    } else {
        walk(value, form, path, errors);
    }
}
