//! Follows the definitions: accepts names, serves what is established, and lets go of what is deleted.
//!
//! Every server does this for itself. What they write into the status of a definition is the same, so it does not matter who is
//! first.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, Status};
use tidings_structural::definition::{self, CLEANUP_FINALIZER, Definition};

use super::kinds::{Interned, Stored};
use crate::api::Inner;
use crate::cache::Cache;
use crate::clock;
use crate::registry::draft::Draft;
use crate::registry::{self, Kind};
use crate::request::{Query, Target};
use crate::served::{CustomResource, Resource};
use crate::verbs::delete::{DeleteOptions, delete_one};
use crate::verbs::update::change;
use crate::verbs::{Ask, WriteOptions};

/// When what did not succeed is tried again, and how often deleted definitions are looked at.
const AGAIN: Duration = Duration::from_millis(200);
/// How many objects are brought into another form before others have their turn.
const REFORM_AT_ONCE: usize = 256;
/// How long a new cache is waited for.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Says that a group of Kubernetes' own may be used.
const APPROVED: &str = "api-approved.kubernetes.io";

/// A definition that there is.
struct Known {
    uid: String,
    revision: ResourceVersion,
    generation: i64,
    /// What the names and the status say, as JSON: the rest of a definition may be large.
    brief: Value,
    /// The definition itself, as the cache has it.
    object: Object,
    /// `None` if it cannot be served.
    definition: Option<Arc<Definition>>,
    open: Option<Open>,
}

/// The objects of a definition.
struct Open {
    resource: Arc<Resource>,
    stored: Arc<Stored>,
}

impl Known {
    fn terminating(&self) -> bool {
        !self.brief["metadata"]["deletionTimestamp"].is_null()
    }

    fn held(&self) -> bool {
        let finalizers = self.brief["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|name| name == CLEANUP_FINALIZER))
    }
}

/// The names that count: those that were accepted, or before that those that are wanted.
fn names_of(definition: &Value) -> &Value {
    let accepted = &definition["status"]["acceptedNames"];
    let has = |name: &str| accepted[name].as_str().is_some_and(|text| !text.is_empty());
    match has("plural") && has("kind") {
        true => accepted,
        false => &definition["spec"]["names"],
    }
}

/// Serves what the definitions say.
#[derive(Default)]
pub(crate) struct Controller {
    interned: Interned,
    known: BTreeMap<String, Known>,
}

impl Controller {
    /// Follows the definitions until the server is gone.
    pub(crate) async fn run(mut self, api: Weak<Inner>) {
        let Some(mut changes) = api
            .upgrade()
            .map(|api| api.cache(registry::definitions()).changes())
        else {
            return;
        };
        loop {
            let again = {
                let Some(api) = api.upgrade() else { return };
                self.follow(&api).await.unwrap_or_else(|status| {
                    tracing::warn!(%status, "custom resources cannot be brought up to date; it is tried again");
                    true
                })
            };
            let changed = match again {
                true => tokio::time::timeout(AGAIN, changes.changed()).await,
                false => Ok(changes.changed().await),
            };
            if let Ok(Err(_)) = changed {
                return; // the cache is gone, and the server with it
            }
        }
    }

    /// One look at all definitions. True if there should be another soon.
    pub(crate) async fn follow(&mut self, api: &Inner) -> Result<bool, Status> {
        let state = api.cache(registry::definitions()).snapshot().state;
        let mut changed = false;
        let gone = |name: &String, known: &Known| {
            let here = state.get(&ObjectKey::new("", name));
            here.is_none_or(|here| here.uid() != known.uid)
        };
        let left: Vec<String> = self
            .known
            .iter()
            .filter(|(name, known)| gone(name, known))
            .map(|(name, _)| name.clone())
            .collect();
        let mut closed = Vec::new();
        for name in left {
            changed = true;
            let open = self.known.remove(&name).and_then(|known| known.open);
            closed.extend(open.map(|open| open.resource));
        }
        for (key, object) in &state {
            let known = self.known.get(key.name());
            if known.is_none_or(|known| known.revision != object.revision()) {
                self.read(key.name(), object).await?;
                changed = true;
            }
        }
        let mut again = false;
        if changed {
            again |= self.settle(api).await?;
        }
        for resource in closed {
            resource.cache.close();
        }
        again |= self.clean_up(api).await?;
        Ok(again)
    }

    /// Takes note of what a definition says.
    async fn read(&mut self, name: &str, object: &Object) -> Result<(), Status> {
        let value: Value = serde_json::from_slice(object.as_bytes()).map_err(Status::internal)?;
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        let before = self.known.get(name).filter(|known| {
            known.generation == generation && names_of(&known.brief) == names_of(&value)
        });
        let definition = match before {
            Some(known) => known.definition.clone(),
            None => {
                // Large schemas take a while to compile.
                let whole = value.clone();
                let read = tokio::task::spawn_blocking(move || Definition::read(&whole));
                let read = read.await.map_err(Status::internal)?.map_err(|why| {
                    tracing::warn!(definition = name, why, "a definition cannot be served");
                });
                read.ok().map(Arc::new)
            }
        };
        let open = self.known.remove(name).and_then(|known| known.open);
        let meta = &value["metadata"];
        let brief = json!({
            "metadata": {
                "name": name,
                "deletionTimestamp": meta["deletionTimestamp"],
                "finalizers": meta["finalizers"],
                "annotations": { APPROVED: meta["annotations"][APPROVED] },
            },
            "spec": { "group": value["spec"]["group"], "names": value["spec"]["names"] },
            "status": value["status"],
        });
        let known = Known {
            uid: object.uid().into_owned(),
            revision: object.revision(),
            generation,
            brief,
            object: object.clone(),
            definition,
            open,
        };
        self.known.insert(name.to_owned(), known);
        Ok(())
    }

    /// Serves all that is established, and then says so.
    async fn settle(&mut self, api: &Inner) -> Result<bool, Status> {
        let now = clock::now();
        let mut statuses = Vec::new();
        for (name, known) in &self.known {
            let others = self.known.iter().filter(|(other, _)| *other != name);
            let others: Vec<&Value> = others.map(|(_, other)| &other.brief).collect();
            let status = definition::status_of(&known.brief, &others, &now);
            statuses.push((name.clone(), status));
        }
        let mut served = Vec::new();
        for (name, status) in &statuses {
            let Some(known) = self.known.get_mut(name) else {
                continue;
            };
            let is_established =
                definition::has_condition(&json!({ "status": status }), "Established");
            let Some(definition) = known.definition.clone().filter(|_| is_established) else {
                continue;
            };
            let kinds = self
                .interned
                .kinds(&definition, &known.object, known.terminating());
            let stored_kind = kinds
                .iter()
                .find(|(kind, _)| kind.version == definition.storage().name);
            let Some((stored_kind, _)) = stored_kind else {
                continue;
            };
            let open = match known.open.take() {
                Some(open) => {
                    if open.stored.set(&definition) {
                        reform(&open.resource.cache, &open.stored).await;
                    }
                    Open {
                        resource: Arc::new(open.resource.of(stored_kind)),
                        stored: open.stored,
                    }
                }
                None => {
                    let stored = Arc::new(Stored::new(definition.clone()));
                    let resource = api.opener.open(stored_kind, Some(stored.clone()));
                    // Nobody is told of it before it has all that the store has.
                    let filled = resource.cache.reach(ResourceVersion::default());
                    if tokio::time::timeout(FILL_TIMEOUT, filled).await.is_err() {
                        return Err(Status::internal("a cache is not filled in time"));
                    }
                    Open { resource, stored }
                }
            };
            served.push(CustomResource {
                kinds,
                resource: open.resource.clone(),
            });
            known.open = Some(open);
        }
        api.serve_custom(&served);
        let mut again = false;
        for (name, status) in statuses {
            let Some(known) = self.known.get(&name) else {
                continue;
            };
            if status == known.brief["status"] || known.terminating() {
                continue;
            }
            let written = edit(api, &name, &known.uid, Some("status"), |draft| {
                let own = draft.members.entry("status").or_insert_with(|| json!({}));
                for member in ["conditions", "acceptedNames"] {
                    own[member] = status[member].clone();
                }
            });
            match written.await {
                Err(status) if !matches!(status.code, 404 | 409) => return Err(status),
                Err(_) => again = true,
                Ok(()) => {}
            }
        }
        Ok(again)
    }

    /// Deletes the objects of deleted definitions, and lets those go that have none left (W186).
    async fn clean_up(&mut self, api: &Inner) -> Result<bool, Status> {
        let mut again = false;
        for (name, known) in &self.known {
            if !(known.terminating() && known.held()) {
                continue;
            }
            let empty = match &known.open {
                Some(open) => empty(api, open.resource.kind).await?,
                None => true,
            };
            if !empty {
                again = true;
                continue;
            }
            let released = edit(api, name, &known.uid, None, |draft| {
                draft
                    .meta
                    .finalizers
                    .retain(|finalizer| finalizer != CLEANUP_FINALIZER);
            });
            match released.await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(again)
    }
}

/// True if a definition is established and serves a version.
pub(crate) fn serves(definition: &Object, version: &str) -> bool {
    let definition: Value = serde_json::from_slice(definition.as_bytes()).unwrap_or_default();
    let mut versions = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten();
    definition::has_condition(&definition, "Established")
        && versions.any(|known| known["name"] == version && known["served"] == true)
}

/// What the author of a new definition is warned of.
pub(crate) fn warnings(definition: &Object) -> Vec<String> {
    let definition = serde_json::from_slice(definition.as_bytes()).unwrap_or_default();
    definition::warnings(&definition, None)
}

/// Brings the objects of a cache into the form that a changed definition gives them.
async fn reform(cache: &Cache, stored: &Stored) {
    let state = cache.snapshot().state;
    let mut forms = Vec::new();
    for (at, (_, object)) in state.iter().enumerate() {
        let json = stored.read(object.as_bytes());
        let form = json.map(|json| Object::stamped(&json, object.revision(), EventType::Added));
        forms.extend(form.and_then(Result::ok));
        if at % REFORM_AT_ONCE == REFORM_AT_ONCE - 1 {
            cache.put_forms(std::mem::take(&mut forms));
            tokio::task::yield_now().await; // others have work too
        }
    }
    cache.put_forms(forms);
}

/// Deletes all objects of a kind. True if none is left.
async fn empty(api: &Inner, kind: &'static Kind) -> Result<bool, Status> {
    api.refresh(kind).await?;
    let state = api.cache(kind).snapshot().state;
    for (key, object) in &state {
        if object.is_terminating() {
            continue;
        }
        match delete_one(api, kind, key, &DeleteOptions::background()).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    api.refresh(kind).await?;
    Ok(api.cache(kind).snapshot().state.is_empty())
}

/// Changes a definition as a client would, if it is still the same one.
async fn edit(
    api: &Inner,
    name: &str,
    uid: &str,
    subresource: Option<&str>,
    edit: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    let kind = registry::definitions();
    let target = Target {
        kind,
        namespace: None,
        name: Some(name.to_owned()),
        subresource: subresource.map(ToOwned::to_owned),
        forced_watch: false,
    };
    let (query, mut headers) = (Query::default(), HeaderMap::new());
    headers.insert(USER_AGENT, HeaderValue::from_static("tidings"));
    let ask = Ask::new(&target, &query, &headers);
    let edited = |existing: &Object| {
        if existing.uid() != uid {
            return Err(Status::not_found(kind.group_resource(), name));
        }
        let mut draft = Draft::of(kind, existing)?;
        edit(&mut draft);
        Ok(draft)
    };
    change(api, &ask, WriteOptions::default(), &edited).await?;
    Ok(())
}
