//! The verbs: one file each.

mod apply;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
mod json_patch;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod review;
mod scale;
pub(crate) mod update;
pub(crate) mod watch;

use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;
use tidings_api::{FieldError, FieldErrors, GroupVersionKind, ObjectKey, Status, go};

use crate::negotiate::{Input, Unread};
use crate::registry::Kind;
use crate::request::{Query, Target};
use tidings_merge::Manager;

/// One request, as a verb sees it.
pub(crate) struct Ask<'a> {
    pub(crate) target: &'a Target,
    pub(crate) key: ObjectKey,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    /// How the body is written.
    pub(crate) input: Input,
    /// What the client is told besides the answer.
    pub(crate) warnings: Vec<String>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(target: &'a Target, query: &'a Query, headers: &'a HeaderMap) -> Ask<'a> {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        Ask {
            target,
            key: ObjectKey::new(namespace, target.name.as_deref().unwrap_or_default()),
            query,
            headers,
            body: Bytes::new(),
            input: Input::default(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.target.kind
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Bytes, Status> {
        let expected = self.kind().kind;
        let json = self.input.to_json(&self.body, self.kind().schema());
        json.map_err(|unread| {
            Status::bad_request(match unread {
                Unread::Unrecognized(why) => format!(
                    "the object provided is unrecognized (must be of type {expected}): {why}"
                ),
                Unread::Unhandled { kind, version, why } => format!(
                    "{kind} in version {} cannot be handled as a {expected}: {why}",
                    go::quote(&version)
                ),
            })
        })
    }

    /// The body as JSON, if it holds `DeleteOptions`.
    pub(crate) fn options_json(&self) -> Result<Bytes, Status> {
        let options = tidings_schema::find("", "v1", "DeleteOptions");
        let json = self.input.to_json(&self.body, options);
        json.map_err(
            |(Unread::Unrecognized(why) | Unread::Unhandled { why, .. })| Status::bad_request(why),
        )
    }

    /// Who writes, as managedFields name them (W157): what the query says, else the beginning of the user agent.
    pub(crate) fn manager(&self) -> Manager {
        let said = self.query.get("fieldManager").unwrap_or_default();
        let agent = self
            .headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        let agent = agent.unwrap_or_default().split('/').next();
        let name = if said.is_empty() {
            agent.unwrap_or_default().chars().take(128).collect()
        } else {
            said.to_owned()
        };
        Manager {
            name: if name.is_empty() {
                "unknown".into()
            } else {
                name
            },
            // Of a kind that is another view, the fields are those of what is stored.
            api_version: self.kind().stored().group_version().to_string(),
            subresource: self.target.subresource.clone().unwrap_or_default(),
        }
    }
}

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

    /// Deals with odd fields: warnings for the response, or a refusal (W173).
    pub(crate) fn odd_fields(&self, kind: &Kind, odd: &[String]) -> Result<Vec<String>, Status> {
        match self.validation {
            FieldValidation::Strict if !odd.is_empty() => Err(Status::bad_request(format!(
                "{} in version {} cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                go::quote(kind.version),
                kind.kind,
                odd.join(", ")
            ))),
            FieldValidation::Warn => Ok(odd.to_vec()),
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
