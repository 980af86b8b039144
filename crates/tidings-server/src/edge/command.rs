//! Turns a request with its body into the command of the core.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tidings_api::Status;
use tidings_go::query_bool;
use tidings_json::Value;
use tidings_registry::{unhandled, unrecognized, yaml};
use tidings_schema::Type;

use super::audit::AuditTrail;
use super::negotiate::{BodyFormat, PatchFormat, UnreadableBody};
use super::request::{Query, ResourceRequest, Verb};
use super::{body, negotiate, options};
use crate::core::{Command, Target, parse_version};

/// The body of a request, and its format.
pub(super) struct SentBody {
    pub(super) bytes: Bytes,
    format: BodyFormat,
}

impl SentBody {
    pub(super) async fn read<B>(
        verb: Verb,
        headers: &HeaderMap,
        body: Pin<&mut B>,
    ) -> Result<SentBody, Status>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let mut sent = SentBody {
            bytes: Bytes::new(),
            format: BodyFormat::default(),
        };
        if !verb.mutates() {
            return Ok(sent);
        }
        if matches!(verb, Verb::Create | Verb::Update) {
            sent.format = BodyFormat::of(headers)?;
        }
        sent.bytes = body::read_body(body).await?;
        let deletes = matches!(verb, Verb::Delete | Verb::DeleteCollection);
        if deletes && !sent.bytes.is_empty() {
            sent.format = BodyFormat::of(headers)?;
        }
        Ok(sent)
    }

    /// The body as the JSON of an object.
    pub(super) fn object(&self, target: &Target) -> Result<Bytes, Status> {
        let expected = &target.kind.kind;
        let json = self.format.to_json(&self.bytes, target.kind.schema);
        json.map_err(|unreadable| match unreadable {
            UnreadableBody::Unrecognized(why) => unrecognized(expected, why),
            UnreadableBody::Unhandled { kind, version, why } => {
                unhandled(&kind, &version, expected, why)
            }
        })
    }

    /// Notes the body in the trail of a request, as far as it can be read.
    pub(super) fn note(&self, trail: &AuditTrail, verb: Verb, request: &ResourceRequest) {
        match verb {
            Verb::Create | Verb::Update => {
                if let Ok(json) = self.object(&request.target)
                    && is_of_kind(&json, &request.target)
                {
                    trail.sent_object(&json);
                }
            }
            _ if !trail.wants_request() || self.bytes.is_empty() => {}
            Verb::Patch => {
                let json = yaml::to_json(&self.bytes).unwrap_or_default();
                if let Ok(body) = serde_json::from_slice(&json) {
                    trail.sent(body);
                }
            }
            _ => {
                let options = self.delete_options().ok().flatten();
                let options = options.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
                if let Some(Value::Object(mut options)) = options {
                    // As kube-apiserver writes it.
                    options.insert("kind".into(), "DeleteOptions".into());
                    options.insert("apiVersion".into(), "meta.k8s.io/__internal".into());
                    trail.sent(options.into());
                }
            }
        }
    }

    /// The body as the JSON of `DeleteOptions`; `None` if it is empty.
    pub(super) fn delete_options(&self) -> Result<Option<Bytes>, Status> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let expected: Option<&'static Type> = tidings_schema::find("", "v1", "DeleteOptions");
        match self.format.to_json(&self.bytes, expected) {
            Ok(json) => Ok(Some(json)),
            Err(UnreadableBody::Unrecognized(why) | UnreadableBody::Unhandled { why, .. }) => {
                Err(Status::bad_request(why))
            }
        }
    }
}

/// True unless a body says that it is of another kind.
fn is_of_kind(json: &[u8], target: &Target) -> bool {
    let said = tidings_json::find_member(json, &["kind"]);
    let said = said.and_then(|span| serde_json::from_slice::<String>(span.of(json)).ok());
    said.is_none_or(|kind| kind.is_empty() || kind == *target.kind.kind)
}

/// The command for a request. Options are checked before bodies, as in kube-apiserver.
pub(super) fn command(
    verb: Verb,
    request: &ResourceRequest,
    query: &Query,
    headers: &HeaderMap,
    sent: &SentBody,
) -> Result<Command, Status> {
    let target = &request.target;
    match verb {
        Verb::Get => {
            if query.get("export").is_some_and(query_bool) {
                let gone = "the export parameter, deprecated since v1.14, is no longer supported";
                return Err(Status::bad_request(gone));
            }
            let version = query.get("resourceVersion").filter(|text| !text.is_empty());
            Ok(Command::Get(version.map(parse_version).transpose()?))
        }
        Verb::List => Ok(Command::List(options::list_command(request, query)?)),
        Verb::Create => {
            let options = options::write_options(query, "CreateOptions")?;
            let body = sent.object(target)?;
            Ok(match target.kind.review {
                Some(review) => Command::Review {
                    review,
                    options,
                    body,
                },
                None => Command::Create { options, body },
            })
        }
        Verb::Update => Ok(Command::Update {
            options: options::write_options(query, "UpdateOptions")?,
            body: sent.object(target)?,
        }),
        Verb::Patch => {
            let body = sent.bytes.clone();
            Ok(match negotiate::patch_format(headers, &target.kind)? {
                PatchFormat::Apply => {
                    let (options, force) = options::apply_options(query)?;
                    Command::Apply {
                        options,
                        force,
                        body,
                    }
                }
                PatchFormat::Patch(patch_type) => Command::Patch {
                    patch_type,
                    options: options::patch_options(query)?,
                    body,
                },
            })
        }
        Verb::Delete => {
            let body = sent.delete_options()?;
            let options = options::delete_options(query, body.as_ref())?;
            Ok(Command::Delete(options))
        }
        Verb::DeleteCollection => {
            let body = sent.delete_options()?;
            let options = options::delete_options(query, body.as_ref())?;
            let list = options::list_command(request, query)?;
            Ok(Command::DeleteCollection(options, list))
        }
        Verb::Watch => Err(Status::method_not_allowed()),
    }
}
