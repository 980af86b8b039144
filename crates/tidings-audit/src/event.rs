//! An audit event, and its form in JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_access::{Attributes, ResourceAttributes, ResourceOrPath, User};
use tidings_api::{Status, StatusDetails};
use tidings_go::json;
use tidings_json::Value;

use crate::policy::{Level, Stage};

/// Longer names of programs are cut, as in kube-apiserver.
const AGENT_BYTES_MAX: usize = 1024;

/// What is written about a request.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    level: Level,
    id: String,
    verb: String,
    on: Option<ResourceAttributes<'static>>,
    /// The version of the API in the path.
    pub api_version: String,
    /// The path and the query.
    pub uri: String,
    /// Who asked; `None` if nobody knows.
    pub user: Option<User>,
    /// As whom the request was made.
    pub impersonated: Option<User>,
    /// By which right of impersonation, if it is a constrained one.
    pub constraint: String,
    /// The addresses of the client.
    pub sources: Vec<String>,
    /// The program that asked.
    pub agent: String,
    /// How the request ended.
    pub status: Option<AuditStatus>,
    /// The body of the request, in JSON.
    pub request: Option<Box<RawValue>>,
    /// The body of the response, in JSON.
    pub response: Option<Box<RawValue>>,
    /// When the request came.
    pub received: Timestamp,
    /// More about the request.
    pub annotations: BTreeMap<String, String>,
    /// The uid in the body of the request, if it names one.
    pub uid: String,
    /// The version in the body of the request, if it names one.
    pub resource_version: String,
}

/// How a request ended.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditStatus {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<tidings_api::Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<StatusDetails>>,
    #[serde(skip_serializing_if = "is_zero")]
    code: u16,
}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

impl AuditStatus {
    /// A response with a code, of which no more is known.
    pub fn code(code: u16) -> AuditStatus {
        AuditStatus {
            code,
            ..AuditStatus::default()
        }
    }

    /// The client has gone before there was a response.
    pub fn closed_early() -> AuditStatus {
        AuditStatus {
            status: "Success".to_owned(),
            message: "Connection closed early".to_owned(),
            code: 200,
            ..AuditStatus::default()
        }
    }

    /// A response with a Status.
    pub fn of(status: &Status, code: u16) -> AuditStatus {
        AuditStatus {
            metadata: BTreeMap::new(),
            status: status.status.clone(),
            message: status.message.clone(),
            reason: status.reason,
            details: status.details.clone(),
            code,
        }
    }
}

#[derive(Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl<'a> UserInfo<'a> {
    fn new(user: Option<&'a User>) -> UserInfo<'a> {
        UserInfo {
            username: user.map_or("", |user| &user.name),
            uid: user.map_or("", |user| &user.uid),
            groups: user.map_or(&[], |user| &user.groups),
            extra: user
                .map(|user| &user.extra)
                .filter(|extra| !extra.is_empty()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthenticationMetadata<'a> {
    impersonation_constraint: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEvent<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<AuthenticationMetadata<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a AuditStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a RawValue>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

impl AuditEvent {
    /// An event about what was asked, without all that is not known yet.
    pub fn new(level: Level, id: &str, asked: &Attributes<'_>) -> AuditEvent {
        let owned = |on: &ResourceAttributes<'_>| ResourceAttributes {
            group: on.group.to_string().into(),
            resource: on.resource.to_string().into(),
            subresource: on.subresource.to_string().into(),
            namespace: on.namespace.to_string().into(),
            name: on.name.to_string().into(),
            ..ResourceAttributes::default()
        };
        AuditEvent {
            level,
            id: id.to_owned(),
            verb: asked.verb.to_string(),
            on: match &asked.on {
                ResourceOrPath::Resource(on) => Some(owned(on)),
                ResourceOrPath::Path(_) => None,
            },
            api_version: String::new(),
            uri: String::new(),
            user: None,
            impersonated: None,
            constraint: String::new(),
            sources: Vec::new(),
            agent: String::new(),
            status: None,
            request: None,
            response: None,
            received: Timestamp::UNIX_EPOCH,
            annotations: BTreeMap::new(),
            uid: String::new(),
            resource_version: String::new(),
        }
    }

    /// How much is written.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes from the body of the request what it says about the object.
    pub fn note_object(&mut self, body: &Value) {
        let text = |name: &str| {
            body["metadata"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        if let Some(on) = &mut self.on {
            if on.namespace.is_empty() {
                on.namespace = text("namespace").into();
            }
            if on.name.is_empty() {
                on.name = text("name").into();
            }
        }
        self.uid = text("uid");
        self.resource_version = text("resourceVersion");
    }

    /// Leaves the bodies out, and says so.
    pub fn truncate(&mut self) {
        (self.request, self.response) = (None, None);
        let truncated = "audit.k8s.io/truncated".to_owned();
        self.annotations.insert(truncated, "true".to_owned());
    }

    /// The event as JSON, as kube-apiserver writes it, without a line break.
    pub fn to_json(&self, stage: Stage, at: Timestamp) -> Vec<u8> {
        let object_ref = self.on.as_ref().map(|on| ObjectReference {
            resource: &on.resource,
            namespace: &on.namespace,
            name: &on.name,
            uid: &self.uid,
            api_group: &on.group,
            api_version: &self.api_version,
            resource_version: &self.resource_version,
            subresource: &on.subresource,
        });
        let impersonated = self.impersonated.as_ref();
        let constraint = Some(&*self.constraint).filter(|constraint| !constraint.is_empty());
        let written = WrittenEvent {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.level,
            audit_id: &self.id,
            stage,
            request_uri: &self.uri,
            verb: &self.verb,
            user: UserInfo::new(self.user.as_ref()),
            impersonated_user: impersonated.map(|user| UserInfo::new(Some(user))),
            authentication_metadata: constraint.map(|impersonation_constraint| {
                AuthenticationMetadata {
                    impersonation_constraint,
                }
            }),
            source_ips: &self.sources,
            user_agent: &self.agent,
            object_ref,
            response_status: self.status.as_ref(),
            request_object: self.request.as_deref(),
            response_object: self.response.as_deref(),
            request_received_timestamp: micro_time(self.received),
            stage_timestamp: micro_time(at),
            annotations: &self.annotations,
        };
        json(&written).unwrap_or_default()
    }
}

/// The name of the program that asked, cut if it is long.
pub fn shortened_agent(agent: &str) -> String {
    match agent.len() > AGENT_BYTES_MAX {
        true => format!(
            "{}...TRUNCATED",
            &agent[..agent.floor_char_boundary(AGENT_BYTES_MAX)]
        ),
        false => agent.to_owned(),
    }
}

/// A body without `managedFields`: of an object, of the items of a list, of the rows of a table.
pub fn without_managed_fields(body: &mut Value) {
    let strip = |object: &mut Value| {
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
    };
    strip(body);
    if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(strip);
    }
    if let Some(rows) = body.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut()
            .filter_map(|row| row.get_mut("object"))
            .for_each(strip);
    }
}

/// Events as the list that webhooks get.
pub fn event_list<'a>(events: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list =
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    for (at, event) in events.enumerate() {
        if at > 0 {
            list.push(b',');
        }
        list.extend_from_slice(event);
    }
    list.extend_from_slice(b"]}\n");
    list
}
