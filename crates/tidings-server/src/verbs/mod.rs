//! The verbs: one file each.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod update;
pub(crate) mod watch;

use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Status, go};

use crate::request::Query;

/// What a write asks for besides the object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
}

/// What happens to fields that do not exist (W172).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl WriteOptions {
    /// Reads and checks the query; `kind` is `CreateOptions` or `UpdateOptions`.
    pub(crate) fn from_query(query: &Query, kind: &'static str) -> Result<WriteOptions, Status> {
        let mut errors = FieldErrors::new();
        let manager = query.get("fieldManager").unwrap_or_default();
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        if let Some((at, odd)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", odd as u32);
            errors.push(FieldError::invalid("fieldManager", manager, why));
        }
        let dry_run = dry_run(&query.all("dryRun"), &mut errors);
        let validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    go::quote(other),
                    &supported,
                ));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            Ok(WriteOptions {
                dry_run,
                validation,
            })
        } else {
            Err(invalid_options(kind, &errors))
        }
    }

    /// Deals with unknown fields: warnings for the response, or a refusal (W173).
    pub(crate) fn unknown(
        &self,
        kind: &crate::registry::Kind,
        unknown: &[String],
    ) -> Result<Vec<String>, Status> {
        let texts: Vec<String> = unknown
            .iter()
            .map(|field| format!("unknown field {}", go::quote(field)))
            .collect();
        match self.validation {
            FieldValidation::Strict if !texts.is_empty() => Err(Status::bad_request(format!(
                "{} in version {} cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                go::quote(kind.version),
                kind.kind,
                texts.join(", ")
            ))),
            FieldValidation::Warn => Ok(texts),
            _ => Ok(Vec::new()),
        }
    }
}

/// W139: `All` or nothing.
pub(crate) fn dry_run(values: &[&str], errors: &mut FieldErrors) -> bool {
    if values.iter().any(|value| *value != "All") {
        let quoted: Vec<String> = values.iter().map(|value| go::quote(value)).collect();
        errors.push(FieldError::not_supported(
            "dryRun",
            format!("[{}]", quoted.join(",")),
            &["All"],
        ));
    }
    !values.is_empty()
}

/// 422 for the options of a request.
pub(crate) fn invalid_options(kind: &'static str, errors: &FieldErrors) -> Status {
    Status::invalid(
        GroupVersionKind {
            group: "meta.k8s.io",
            version: "v1",
            kind,
        },
        "",
        errors,
    )
}
