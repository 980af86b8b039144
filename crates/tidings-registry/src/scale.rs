//! The `scale` subresource: the replicas of an object as an `autoscaling/v1` Scale.

use tidings_api::{FieldError, Object, ObjectKey, Status};
use tidings_go::{json_type, mismatch, quote};
use tidings_json::{Map, Value, json};
use tidings_structural::definition::{self, MemberPath};

use crate::model::{Draft, Kind, SCALE, Scale, document, unhandled, unrecognized};
use crate::table::format::selector;

/// The scale of an object, as GET returns it.
#[derive(Debug)]
pub struct ScaleView {
    metadata: Map,
    replicas: i64,
    status_replicas: i64,
    selector: String,
}

/// The scale of an object. `absent` is the number of replicas of a custom resource that does not set it; without it that is an
/// error.
fn scaled(object: &Object, kind: &Kind, absent: Option<i64>) -> Result<ScaleView, Status> {
    let whole: Value = serde_json::from_slice(object.as_bytes()).map_err(Status::internal)?;
    let number = |value: &Value, zero| value.as_i64().unwrap_or(zero);
    let mut metadata = Map::new();
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = whole["metadata"].get(name) {
            metadata.insert(name.into(), value.clone());
        }
    }
    let selector = match &kind.scale {
        None => return Err(Status::no_such_resource()),
        Some(Scale::Defined(scale)) => return custom_scale(&whole, metadata, scale, absent),
        Some(Scale::LabelMap) => labels(&whole["spec"]["selector"]).join(","),
        Some(Scale::LabelSelector) => selector(&whole, &["spec", "selector"]).unwrap_or_default(),
    };
    Ok(ScaleView {
        metadata,
        replicas: number(&whole["spec"]["replicas"], 1),
        status_replicas: number(&whole["status"]["replicas"], 0),
        selector,
    })
}

/// The scale of a custom resource, at the paths that its definition names (W182).
fn custom_scale(
    whole: &Value,
    metadata: Map,
    scale: &definition::Scale,
    absent: Option<i64>,
) -> Result<ScaleView, Status> {
    let wrong = |path: &MemberPath, found: &Value, go_type: &str| {
        Status::internal(format!(
            "{} accessor error: {} is of the type {}, expected {go_type}",
            path.text,
            tidings_go::print(found),
            json_type(found)
        ))
    };
    let number = |path: &MemberPath| match path.find(whole) {
        None => Ok(None),
        Some(value) => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(path, value, "int64")),
        },
    };
    let replicas = match (number(&scale.spec_replicas)?, absent) {
        (Some(replicas), _) | (None, Some(replicas)) => replicas,
        (None, None) => {
            return Err(Status::internal(format!(
                "the spec replicas field {} does not exist",
                quote(&scale.spec_replicas.text)
            )));
        }
    };
    let selector = scale.label_selector.as_ref();
    let selector = match selector.and_then(|path| Some((path, path.find(whole)?))) {
        None => "",
        Some((path, value)) => match value.as_str() {
            Some(text) => text,
            None => return Err(wrong(path, value, "string")),
        },
    };
    Ok(ScaleView {
        metadata,
        replicas,
        status_replicas: number(&scale.status_replicas)?.unwrap_or(0),
        selector: selector.to_owned(),
    })
}

impl ScaleView {
    /// The scale of an object.
    ///
    /// # Errors
    /// If the kind has no scale, or a value at one of the paths has the wrong type.
    pub fn of(object: &Object, kind: &Kind) -> Result<ScaleView, Status> {
        scaled(object, kind, None)
    }

    /// The scale of an object for a patch, with 0 for replicas that a custom resource does not set.
    ///
    /// # Errors
    /// If the kind has no scale, or a value at one of the paths has the wrong type.
    pub(crate) fn before_patch(object: &Object, kind: &Kind) -> Result<ScaleView, Status> {
        scaled(object, kind, Some(0))
    }

    /// The scale as JSON.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_json(&self) -> Result<Vec<u8>, Status> {
        let mut spec = Map::new();
        if self.replicas != 0 {
            spec.insert("replicas".into(), self.replicas.into());
        }
        let mut status = Map::new();
        status.insert("replicas".into(), self.status_replicas.into());
        if !self.selector.is_empty() {
            status.insert("selector".into(), self.selector.clone().into());
        }
        let whole = json!({
            "kind": SCALE.kind,
            "apiVersion": SCALE.group_version().to_string(),
            "metadata": self.metadata,
            "spec": spec,
            "status": status,
        });
        tidings_go::json(&whole).map_err(Status::internal)
    }
}

/// A Scale that a client sends in a PUT or patch.
#[derive(Debug)]
pub struct ScaleRequest {
    replicas: i64,
    /// `metadata.name`.
    pub name: String,
    resource_version: String,
    uid: String,
}

impl ScaleRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is not a Scale, is for another namespace, or its replicas are not a number from 0 to 2147483647.
    pub fn read(body: &[u8], key: &ObjectKey) -> Result<ScaleRequest, Status> {
        let members = document(body).map_err(|why| unrecognized(SCALE.kind, why))?;
        let said = |name: &str| {
            members
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (kind, version) = (said("kind"), said("apiVersion"));
        let is_scale = (kind.is_empty() || kind == SCALE.kind)
            && (version.is_empty() || version == SCALE.group_version().to_string());
        if !is_scale {
            let (said_kind, said_version) = (quote(kind), quote(version));
            let why = format!("no kind {said_kind} is registered for version {said_version}");
            return Err(unhandled(kind, version, SCALE.kind, why));
        }
        let meta = |name: &str| {
            members
                .get("metadata")
                .and_then(|meta| meta.get(name))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let replicas = match members.get("spec").and_then(|spec| spec.get("replicas")) {
            None | Some(Value::Null) => 0,
            Some(value) => value
                .as_i64()
                .filter(|count| i32::try_from(*count).is_ok())
                .ok_or_else(|| {
                    let why = mismatch(value, "ScaleSpec.spec.replicas", "int32");
                    unhandled(SCALE.kind, SCALE.version, SCALE.kind, why)
                })?,
        };
        if !matches!(meta("namespace").as_str(), namespace if namespace.is_empty() || namespace == key.namespace())
        {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        if replicas < 0 {
            let wrong = FieldError::invalid_value(
                "spec.replicas",
                replicas,
                "must be greater than or equal to 0",
            );
            return Err(Status::invalid(SCALE, key.name(), &wrong.into()));
        }
        Ok(ScaleRequest {
            replicas,
            name: meta("name"),
            resource_version: meta("resourceVersion"),
            uid: meta("uid"),
        })
    }

    /// Sets the replicas of an object, and the resourceVersion and uid that the client sent.
    pub fn apply(&self, draft: &mut Draft) {
        draft
            .meta
            .resource_version
            .clone_from(&self.resource_version);
        if !self.uid.is_empty() {
            draft.meta.uid.clone_from(&self.uid);
        }
        let path = draft.kind.replicas_path();
        put(&mut draft.members, &path, self.replicas.into());
    }
}

/// Sets the value at a path of members. Absent members on the path are created.
pub(crate) fn put(members: &mut Map, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => drop(members.insert(name.clone(), value)),
        [name, rest @ ..] => {
            let below = members.entry(name.as_str()).or_insert_with(|| json!({}));
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

/// The labels as sorted `key=value` texts.
fn labels(value: &Value) -> Vec<String> {
    let members = value.as_object().into_iter().flatten();
    let mut labels: Vec<String> = members
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    labels
}
