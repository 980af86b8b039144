//! PATCH of what somebody wants to have: server-side apply (W154–W158).

use tidings_api::{FieldError, FieldErrors, Object, Reason, Status, go};
use tidings_json::{Map, Value};

use super::create::{create_from, settle_namespace};
use super::update::{Edited, Once, change_if_there, check_name};
use super::{Ask, FieldValidation, WriteOptions, invalid_options, scale};
use crate::api::Inner;
use crate::clock;
use crate::registry::draft::Draft;
use crate::registry::managed::{self, Applied, Outcome};
use crate::registry::meta::go_kind;
use crate::registry::reading::{self, Repeated};
use crate::respond::{Answer, yaml};

pub(crate) const MEDIA_TYPE: &str = "application/apply-patch+yaml";

pub(crate) async fn apply(api: &Inner, ask: &mut Ask<'_>) -> Result<Answer, Status> {
    let options = WriteOptions::from_query(ask.query, "PatchOptions")?;
    if ask.query.get("fieldManager").unwrap_or_default().is_empty() {
        let mut errors = FieldErrors::new();
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
        return Err(invalid_options("PatchOptions", &errors));
    }
    let force = ask.query.get("force").unwrap_or("false");
    let force = !matches!(force.to_ascii_lowercase().as_str(), "false" | "0" | "");
    let (config, repeated) = configuration(ask, options)?;
    ask.warnings.extend(repeated);
    let config = Once::new(config);
    let manager = ask.manager();
    let (ask, kind) = (&*ask, ask.kind().stored());
    let live = kind.live();
    let ignored = managed::ignored(kind, live.as_deref(), &manager);
    let outcome = |existing: Option<&Object>| {
        let config = config.take_or(|| configuration(ask, options).map(|(config, _)| config))?;
        let applied = Applied {
            kind,
            live: live.as_deref(),
            manager: &manager,
            config: &managed::configuration(kind, live.as_deref(), &config, &ignored)?,
            force,
        };
        applied.to(existing, &clock::now())
    };
    loop {
        let edit = |existing: &Object| {
            let Some(mut outcome) = outcome(Some(existing))? else {
                return Ok(None);
            };
            let old = outcome.before.take();
            let old = old.map(|old| Draft::of_stored(kind, live.clone(), old));
            Ok(Some(Edited {
                old: old.transpose()?,
                new: draft(ask, outcome)?,
            }))
        };
        if let Some(changed) = change_if_there(api, ask, options, &edit).await? {
            return Ok(changed);
        }
        let resource = ask.kind().group_resource();
        if ask.target.subresource.is_some() {
            return Err(Status::not_found(resource, ask.key.name()));
        }
        let Some(outcome) = outcome(None)? else {
            return Err(Status::internal("what is not there cannot stay as it is"));
        };
        let mut draft = draft(ask, outcome)?;
        if !draft.meta.uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                draft.meta.uid
            );
            return Err(Status::conflict(resource, ask.key.name(), &why));
        }
        draft.meta.resource_version.clear();
        match create_from(api, draft, options, &manager).await {
            // Somebody else was faster: now it is there.
            Err(status) if status.reason == Some(Reason::AlreadyExists) => {}
            outcome => return outcome,
        }
    }
}

/// The body, as an object of the kind that is stored, with the name of the URL; and what the client is to be warned of.
fn configuration(ask: &Ask<'_>, options: WriteOptions) -> Result<(Value, Vec<String>), Status> {
    let undecodable = |why: String| {
        let strict = match options.validation {
            FieldValidation::Strict => "strict ",
            _ => "",
        };
        Status::bad_request(format!("error {strict}decoding YAML: {why}"))
    };
    let (mut config, repeated) = read(ask).map_err(undecodable)?;
    let repeated: Vec<String> = repeated
        .iter()
        .map(|Repeated { name, line, .. }| {
            format!("line {line}: key {} already set in map", go::quote(name))
        })
        .collect();
    if !repeated.is_empty() && matches!(options.validation, FieldValidation::Strict) {
        let why = repeated.join("\n  ");
        return Err(undecodable(format!(
            "error converting YAML to JSON: yaml: unmarshal errors:\n  {why}"
        )));
    }
    let warnings = match options.validation {
        FieldValidation::Warn => repeated,
        _ => Vec::new(),
    };
    let (scale, kind) = (
        ask.target.subresource.as_deref() == Some("scale"),
        ask.kind(),
    );
    let wanted = match scale {
        true => ("autoscaling/v1".to_owned(), "Scale"),
        false => (kind.group_version().to_string(), kind.kind),
    };
    let said = |name: &str| config[name].as_str().unwrap_or_default();
    let (version, said_kind) = (said("apiVersion"), said("kind"));
    if (version, said_kind) != (wanted.0.as_str(), wanted.1) {
        let slash = if version.contains('/') { "" } else { "/" };
        let message = format!("invalid object type: {slash}{version}, Kind={said_kind}");
        return Err(Status::bad_request(message));
    }
    if !matches!(config.get("metadata"), None | Some(Value::Object(_))) {
        let message = "metadata: expected map".to_owned();
        return Err(Status::bad_request(message));
    }
    if config["metadata"]
        .get("managedFields")
        .is_some_and(|entries| !entries.is_null())
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let name = config["metadata"]["name"].as_str().unwrap_or_default();
    if !name.is_empty() {
        check_name(name, ask.key.name())?;
    }
    config["metadata"]["name"] = ask.key.name().into();
    if scale {
        // Of the object itself, it says how many copies there are to be.
        let mut members = Map::new();
        members.insert("metadata".into(), config["metadata"].take());
        if let Some(replicas) = config["spec"].get("replicas") {
            scale::put(&mut members, &kind.replicas(), replicas.clone());
        }
        config = Value::Object(members);
    }
    let stored = kind.stored();
    if let Value::Object(members) = &mut config {
        kind.to_stored(members);
        members.insert("kind".into(), stored.kind.into());
        members.insert(
            "apiVersion".into(),
            stored.group_version().to_string().into(),
        );
    }
    Ok((config, warnings))
}

/// The body as an object, and the members that it has twice.
fn read(ask: &Ask<'_>) -> Result<(Value, Vec<Repeated>), String> {
    let unmarshal = |why: &dyn std::fmt::Display| {
        format!("error unmarshaling JSON: while decoding JSON: {why}")
    };
    // Most clients send JSON, which is YAML as well.
    let (value, repeated) = match reading::read_with_lines(&ask.body) {
        Ok(read) => read,
        Err(_) => {
            let json = yaml::to_json(&ask.body)
                .map_err(|why| format!("error converting YAML to JSON: {why}"))?;
            reading::read_with_lines(&json).map_err(|why| unmarshal(&why))?
        }
    };
    match value {
        Value::Object(_) => Ok((value, repeated)),
        Value::Null => Ok((Value::Object(Map::new()), repeated)),
        other => {
            let kind = go_kind(&other);
            let why = format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            );
            Err(unmarshal(&why))
        }
    }
}

/// What was made of the object, read as a client's.
fn draft(ask: &Ask<'_>, outcome: Outcome) -> Result<Draft, Status> {
    let kind = ask.kind().stored();
    let read = Draft::read_touched(kind, outcome.object, &outcome.touched);
    let mut draft = read.map_err(|why| {
        let (version, kind) = (kind.group_version(), kind.kind);
        Status::bad_request(format!(
            "failed to convert new object ({}/{}; {version}, Kind={kind}): {why}",
            ask.key.namespace(),
            ask.key.name()
        ))
    })?;
    if !draft.odd.is_empty() {
        let named = [ask.key.namespace(), ask.key.name()].join("/");
        return Err(managed::undeclared(kind, &named, &draft.odd));
    }
    draft.applied = true;
    draft.meta.managed_fields = outcome.managed;
    settle_namespace(&mut draft, ask.target)?;
    draft.meta.deduplicate_owners(true);
    Ok(draft)
}
