//! Server-side apply (W154-W158): from the body of a request to a draft.

use std::sync::Arc;

use tidings_api::{Object, ObjectKey, Status};
use tidings_go::{mismatch_value, quote};
use tidings_json::{Map, Value};
use tidings_merge::Manager;

use crate::managed::{self, ApplyOutcome, ApplyRequest};
use crate::model::{Draft, Kind, Subresource, stored};
use crate::options::FieldValidation;
use crate::reading::{self, RepeatedMember};
use crate::{scale, yaml};

/// The configuration of an apply request: the object as the manager wants it to be.
#[derive(Debug)]
pub struct Configured {
    /// The configuration, converted to the stored kind and with the name from the URL.
    config: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// The draft after a change, and the draft before it if the object existed.
pub(crate) type ChangedDraft = (Draft, Option<Draft>);

impl Configured {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// If it is not an object of the kind with the name of the URL.
    pub fn read(
        kind: &Kind,
        key: &ObjectKey,
        subresource: Option<Subresource>,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Configured, Status> {
        tracing::trace!(target: "tidings::walk", "reads the configuration");
        let undecodable = |why: String| {
            let strict = match validation {
                FieldValidation::Strict => "strict ",
                _ => "",
            };
            Status::bad_request(format!("error {strict}decoding YAML: {why}"))
        };
        let (mut config, repeated) = read(body).map_err(undecodable)?;
        let repeated: Vec<String> = repeated
            .iter()
            .map(|RepeatedMember { name, line, .. }| {
                format!("line {line}: key {} already set in map", quote(name))
            })
            .collect();
        if !repeated.is_empty() && validation == FieldValidation::Strict {
            let why = repeated.join("\n  ");
            return Err(undecodable(format!(
                "error converting YAML to JSON: yaml: unmarshal errors:\n  {why}"
            )));
        }
        let warnings = match validation {
            FieldValidation::Warn => repeated,
            _ => Vec::new(),
        };
        let scales = subresource == Some(Subresource::Scale);
        let other = subresource.and_then(Subresource::other_kind);
        let expected = other.unwrap_or_else(|| kind.group_version_kind());
        let wanted = (expected.group_version().to_string(), expected.kind);
        let said = |name: &str| config[name].as_str().unwrap_or_default();
        let (version, said_kind) = (said("apiVersion"), said("kind"));
        if (version, said_kind) != (wanted.0.as_str(), wanted.1) {
            let slash = if version.contains('/') { "" } else { "/" };
            let message = format!("invalid object type: {slash}{version}, Kind={said_kind}");
            return Err(Status::bad_request(message));
        }
        if !matches!(config.get("metadata"), None | Some(Value::Object(_))) {
            return Err(Status::bad_request("metadata: expected map"));
        }
        let managed = config["metadata"].get("managedFields");
        if managed.is_some_and(|entries| !entries.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let name = config["metadata"]["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            Draft::check_name(name, key.name())?;
        }
        config["metadata"]["name"] = key.name().into();
        if scales {
            // Of a Scale, only the metadata and the number of replicas are applied to the object.
            let mut members = Map::new();
            members.insert("metadata".into(), config["metadata"].take());
            if let Some(replicas) = config["spec"].get("replicas") {
                scale::put(&mut members, &kind.replicas_path(), replicas.clone());
            }
            config = Value::Object(members);
        }
        let stored = kind.view.as_ref().map_or(kind, |view| &view.stored);
        if let Value::Object(members) = &mut config {
            if let Some(view) = &kind.view {
                (view.store)(members);
            }
            members.insert("kind".into(), (*stored.kind).into());
            let version = stored.group_version().to_string();
            members.insert("apiVersion".into(), version.into());
        }
        Ok(Configured { config, warnings })
    }

    /// Applies the configuration to an existing object, or creates one. `None` if the object does not change.
    ///
    /// # Errors
    /// If it conflicts with other managers (W155), or does not fit the schema of its kind (W156).
    pub fn apply(
        &self,
        kind: &Arc<Kind>,
        key: &ObjectKey,
        manager: &Manager,
        force: bool,
        existing: Option<&Object>,
        now: &str,
    ) -> Result<Option<ChangedDraft>, Status> {
        let stored = stored(kind);
        let ignored = managed::ignored(stored, manager);
        let request = ApplyRequest {
            kind: stored,
            manager,
            config: &managed::configuration(stored, &self.config, &ignored)?,
            force,
        };
        let Some(mut outcome) = request.apply_to(existing, now)? else {
            return Ok(None);
        };
        let old = outcome.before.take();
        let old = old.map(|old| Draft::of_stored(stored, old)).transpose()?;
        Ok(Some((draft(kind, key, outcome)?, old)))
    }
}

/// The body, JSON or YAML, as an object, and the members that occur more than once.
fn read(body: &[u8]) -> Result<(Value, Vec<RepeatedMember>), String> {
    let unmarshal = |why: &dyn std::fmt::Display| {
        format!("error unmarshaling JSON: while decoding JSON: {why}")
    };
    // Most clients send JSON, which is YAML as well.
    let (value, repeated) = match reading::read_with_lines(body) {
        Ok(read) => read,
        Err(_) => {
            let json = yaml::to_json(body)
                .map_err(|why| format!("error converting YAML to JSON: {why}"))?;
            reading::read_with_lines(&json).map_err(|why| unmarshal(&why))?
        }
    };
    match value {
        Value::Object(_) => Ok((value, repeated)),
        Value::Null => Ok((Value::Object(Map::new()), repeated)),
        other => Err(unmarshal(&mismatch_value(
            &other,
            "map[string]interface {}",
        ))),
    }
}

/// The result of an apply as a draft, checked like an object that a client sends.
fn draft(kind: &Arc<Kind>, key: &ObjectKey, outcome: ApplyOutcome) -> Result<Draft, Status> {
    let stored = stored(kind);
    let read = Draft::read_touched(stored, outcome.object, &outcome.touched);
    let mut draft = read.map_err(|why| {
        Status::bad_request(format!(
            "failed to convert new object ({}/{}; {}, Kind={}): {why}",
            key.namespace(),
            key.name(),
            stored.group_version(),
            stored.kind
        ))
    })?;
    if !draft.odd.is_empty() {
        let named = [key.namespace(), key.name()].join("/");
        return Err(managed::undeclared(stored, &named, &draft.odd));
    }
    draft.keeps_owners = true;
    draft.meta.managed_fields = outcome.managed;
    draft.settle_namespace(kind, key.namespace())?;
    draft.meta.deduplicate_owners(true);
    Ok(draft)
}
