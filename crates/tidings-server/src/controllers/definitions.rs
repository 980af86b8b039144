//! Follows CustomResourceDefinitions: accepts their names, serves the established ones, and deletes the objects of deleted ones
//! (W177-W187).
//!
//! Every server on a store does this for itself. All of them write the same status into a definition, so it does not matter which is first.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey, ResourceVersion, Status};
use tidings_cache::StoredReader;
use tidings_json::{Value, json};
use tidings_registry::{Draft, Kind, Subresource, as_read, custom_kinds};
use tidings_storage::{HistoryHold, Revision};
use tidings_structural::definition::{self, CLEANUP_FINALIZER, Definition};

use super::client;
use crate::core::{Core, CustomResource, DeleteOptions, Resource, clock, do_long_work};

/// The first wait before a failure is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait before a failure is tried again.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often a deleted definition is checked again while finalizers hold its objects.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many objects of one deleted definition are deleted before the next definition gets its turn.
const DELETE_AT_ONCE: usize = 200;
/// How long to wait until the cache of a new custom resource is filled.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The annotation without which a definition may not use a protected group, such as `*.k8s.io`.
const APPROVED: &str = "api-approved.kubernetes.io";

/// A definition, and what the server has made of it.
struct KnownDefinition {
    uid: String,
    revision: ResourceVersion,
    generation: i64,
    /// Only the metadata, names and status, as JSON: the rest of a definition may be large.
    brief: Value,
    /// The compiled definition; `None` if it cannot be served.
    definition: Option<Arc<Definition>>,
    /// The revision that `definition` was compiled from. Later revisions changed only the status.
    compiled_at: ResourceVersion,
    /// The kinds of its versions, one each.
    kinds: Vec<Arc<Kind>>,
    open: Option<OpenDefinition>,
    filling: Option<FillingDefinition>,
}

/// A definition whose cache is filled.
struct OpenDefinition {
    resource: Arc<Resource>,
    /// The revision of the compiled definition by which the cache translates stored objects.
    read_by: ResourceVersion,
    /// The revision of the definition from which the kinds of `resource` were made.
    shown_at: ResourceVersion,
}

/// A definition whose cache is being filled.
struct FillingDefinition {
    open: OpenDefinition,
    /// The definition is newer than this process: its objects have no history to read.
    new: bool,
    /// Keeps the history until the cache is filled.
    _history: HistoryHold,
}

impl KnownDefinition {
    fn terminating(&self) -> bool {
        !self.brief["metadata"]["deletionTimestamp"].is_null()
    }

    fn has_cleanup_finalizer(&self) -> bool {
        let finalizers = self.brief["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|name| name == CLEANUP_FINALIZER))
    }
}

/// The names of a definition: the accepted ones, or the requested ones if none are accepted yet.
fn names_of(definition: &Value) -> &Value {
    let accepted = &definition["status"]["acceptedNames"];
    let has = |name: &str| accepted[name].as_str().is_some_and(|text| !text.is_empty());
    match has("plural") && has("kind") {
        true => accepted,
        false => &definition["spec"]["names"],
    }
}

/// Serves the custom resources of all definitions.
#[derive(Default)]
pub(super) struct DefinitionController {
    known: BTreeMap<String, KnownDefinition>,
    /// True after the first pass over all definitions. A definition that comes later is new, and its objects have no history.
    started: bool,
    /// The served set or the status of a definition still has to be updated.
    unsettled: bool,
    /// How many times in a row [`DefinitionController::settle`] failed.
    failures: u32,
}

impl DefinitionController {
    /// Follows the definitions until the server stops.
    pub(super) async fn run(mut self, core: Weak<Core>) {
        let Some(mut changes) = core
            .upgrade()
            .map(|core| core.definitions.cache().changes())
        else {
            return;
        };
        loop {
            let again = {
                let Some(core) = core.upgrade() else { return };
                self.follow(&core).await
            };
            let changed = match again {
                Some(again) => tokio::time::timeout(again, changes.changed()).await,
                None => Ok(changes.changed().await),
            };
            if let Ok(Err(_)) = changed {
                return; // the cache is gone, and the server with it
            }
        }
    }

    /// Makes one pass over all definitions. Returns after what time to run again if no definition changes before.
    pub(super) async fn follow(&mut self, core: &Core) -> Option<Duration> {
        let state = core.definitions.cache().snapshot().state;
        let gone = |name: &String, known: &KnownDefinition| {
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
            self.unsettled = true;
            let known = self.known.remove(&name);
            let open = known.and_then(|known| known.open);
            closed.extend(open.map(|open| open.resource));
        }
        for (key, object) in state.iter() {
            let known = self.known.get(key.name());
            if known.is_some_and(|known| known.revision == object.revision()) {
                continue;
            }
            self.unsettled = true;
            if let Err(status) = self.read(key.name(), object).await {
                tracing::warn!(definition = key.name(), %status, "cannot parse a CustomResourceDefinition");
            }
        }
        let mut again = None;
        if self.unsettled {
            let settled = self.settle(core).await;
            self.unsettled = !settled;
            self.failures = if settled { 0 } else { self.failures + 1 };
            if !settled {
                again = Some((RETRY_FIRST * (1 << self.failures.min(6))).min(RETRY_MAX));
            }
        }
        self.started = true;
        for resource in closed {
            resource.close();
        }
        again.into_iter().chain(self.clean_up(core).await).min()
    }

    /// Parses and compiles a definition that is new or has changed.
    async fn read(&mut self, name: &str, object: &Object) -> Result<(), Status> {
        tracing::trace!(target: "tidings::walk", "compiles a definition that has come or changed");
        let value: Value = serde_json::from_slice(object.as_bytes()).map_err(Status::internal)?;
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        let before = self.known.get(name).filter(|known| {
            known.generation == generation && names_of(&known.brief) == names_of(&value)
        });
        let (definition, compiled_at) = match before {
            Some(known) => (known.definition.clone(), known.compiled_at),
            None => {
                // On another thread: large schemas take long to compile.
                let (whole, stored) = (value.clone(), object.clone());
                let read = move || Definition::read_stored(&whole, &stored);
                let read = tokio::task::spawn_blocking(read);
                let read = read.await.map_err(Status::internal)?.map_err(|why| {
                    tracing::warn!(
                        definition = name,
                        why,
                        "cannot serve a CustomResourceDefinition"
                    );
                });
                (read.ok().map(Arc::new), object.revision())
            }
        };
        let before = self.known.remove(name);
        let (open, filling) = before.map_or((None, None), |known| (known.open, known.filling));
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
        let terminating = !meta["deletionTimestamp"].is_null();
        let kinds = definition
            .as_ref()
            .map(|definition| custom_kinds(definition, object, terminating));
        let known = KnownDefinition {
            uid: object.uid().into_owned(),
            revision: object.revision(),
            generation,
            brief,
            definition,
            compiled_at,
            kinds: kinds.unwrap_or_default(),
            open,
            filling,
        };
        self.known.insert(name.to_owned(), known);
        Ok(())
    }

    /// Serves all established definitions, then writes their status. False if something failed and must be retried.
    async fn settle(&mut self, core: &Core) -> bool {
        let now = clock::now();
        let mut settled = true;
        let mut statuses = Vec::new();
        for (name, known) in &self.known {
            let others = self.known.iter().filter(|(other, _)| *other != name);
            let others: Vec<&Value> = others.map(|(_, other)| &other.brief).collect();
            let status = definition::status_of(&known.brief, &others, &now);
            statuses.push((name.clone(), status));
        }
        let is_established =
            |status: &Value| definition::has_condition(&json!({ "status": status }), "Established");
        let established = statuses.iter().filter(|(_, status)| is_established(status));
        let established: Vec<&String> = established.map(|(name, _)| name).collect();
        // The caches of all definitions are filled at the same time.
        for name in &established {
            if let Some(known) = self.known.get_mut(*name) {
                known.begin(core, self.started);
            }
        }
        let mut served = Vec::new();
        for name in established {
            let Some(known) = self.known.get_mut(name) else {
                continue;
            };
            let opened = known.open(core).await;
            settled &= opened.is_ok();
            served.extend(opened.ok().flatten());
        }
        core.serve_custom(&served);
        for (name, status) in statuses {
            let Some(known) = self.known.get(&name) else {
                continue;
            };
            // A definition that cannot be served, such as one whose schema is not structural, must not get the condition Established.
            let is_served = known.open.is_some();
            let unserved = is_established(&status) && !is_served;
            if status == known.brief["status"] || known.terminating() || unserved {
                continue;
            }
            let written = edit_definition(core, &name, known, Some(Subresource::Status), |draft| {
                let own = draft.members.entry("status").or_insert_with(|| json!({}));
                for member in ["conditions", "acceptedNames"] {
                    own[member] = status[member].clone();
                }
            });
            // A definition that has changed meanwhile (404, 409) gets another pass anyway.
            if let Err(status) = written.await
                && !matches!(status.code, 404 | 409)
            {
                tracing::warn!(definition = name, %status, "cannot update the status of a CustomResourceDefinition; will retry");
                settled = false;
            }
        }
        settled
    }

    /// Deletes the objects of deleted definitions, and removes the cleanup finalizer of definitions that have none left (W186). Returns after
    /// what time to run again.
    async fn clean_up(&mut self, core: &Core) -> Option<Duration> {
        let mut again = None;
        for (name, known) in &self.known {
            if !(known.terminating() && known.has_cleanup_finalizer()) {
                continue;
            }
            match delete_objects_or_release(core, name, known).await {
                Ok(wait) => again = again.into_iter().chain(wait).min(),
                Err(status) => {
                    tracing::warn!(definition = name, %status, "cannot delete the custom resources of a deleted CustomResourceDefinition; will retry");
                    again = Some(LOOK_EVERY);
                }
            }
        }
        again
    }
}

impl KnownDefinition {
    /// The compiled definition, and the kind of its storage version. `None` if it cannot be served.
    fn stored(&self) -> Option<(&Arc<Definition>, &Arc<Kind>)> {
        let definition = self.definition.as_ref()?;
        let storage = &definition.storage().name;
        let stored = self.kinds.iter().find(|kind| kind.version == *storage);
        Some((definition, stored?))
    }

    /// The kinds of the versions that are served.
    fn served_kinds(&self) -> Vec<Arc<Kind>> {
        let versions = self.definition.iter().flat_map(|known| &known.versions);
        let kinds = std::iter::zip(versions, &self.kinds);
        let served = kinds.filter(|(version, _)| version.served);
        served.map(|(_, kind)| kind.clone()).collect()
    }

    /// Begins to fill a cache for the objects, if there is none. A definition that is `new` has no objects before its own revision.
    fn begin(&mut self, core: &Core, new: bool) {
        if self.open.is_some() || self.filling.is_some() {
            return;
        }
        let Some((definition, stored)) = self.stored() else {
            return;
        };
        let history = core.hold_history();
        let from = Revision(if new { self.revision.get() } else { 0 });
        let resource = core.open_resource(stored, reader(definition), from);
        let open = OpenDefinition {
            resource: Arc::new(resource),
            read_by: self.compiled_at,
            shown_at: ResourceVersion::default(),
        };
        self.filling = Some(FillingDefinition {
            open,
            new,
            _history: history,
        });
    }

    /// Waits until the cache for the objects is filled, and makes it follow the current definition. `None` if the definition cannot be served.
    async fn open(&mut self, core: &Core) -> Result<Option<CustomResource>, ()> {
        let Some((definition, stored)) = self.stored() else {
            return Ok(None);
        };
        let (definition, stored) = (definition.clone(), stored.clone());
        if let Some(filling) = &self.filling {
            // The resource is served only when its cache has everything that the store has.
            let until = match filling.new {
                true => ResourceVersion::default(),
                false => core.revision().await.map_err(drop)?,
            };
            let filled = filling.open.resource.fill(Revision(until.get()));
            if tokio::time::timeout(FILL_TIMEOUT, filled).await.is_err() {
                let definition = &self.brief["metadata"]["name"];
                tracing::warn!(%definition, "the cache for a CustomResourceDefinition is not filled yet");
                return Err(());
            }
            self.open = self.filling.take().map(|filled| filled.open);
        }
        let (kinds, served) = (self.kinds.clone(), self.served_kinds());
        let (revision, compiled_at) = (self.revision, self.compiled_at);
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        if open.read_by != compiled_at {
            open.resource.cache().set_reader(reader(&definition));
            // The cache must reach the revision of the definition first: objects up to it were translated by the definition before.
            if let Err(status) = open.resource.reach(revision).await {
                tracing::warn!(%status, "the cache for a CustomResourceDefinition is behind the definition");
            }
            open.resource.cache().reread().await;
            open.read_by = compiled_at;
        }
        if open.shown_at != revision {
            open.resource = Arc::new(open.resource.with_kinds(stored, kinds));
            open.shown_at = revision;
        }
        Ok(Some(CustomResource {
            kinds: served,
            resource: open.resource.clone(),
        }))
    }
}

/// Translates stored objects as a definition says: prunes and fills in defaults. The schema is compiled with the first object.
fn reader(definition: &Arc<Definition>) -> StoredReader {
    let definition = definition.clone();
    Arc::new(
        move |json| match definition.storage().schema.is_compiled() {
            true => as_read(&definition, json),
            false => do_long_work(|| as_read(&definition, json)),
        },
    )
}

/// Deletes some objects of a deleted definition; when none are left, removes its cleanup finalizer. Returns after what time to go on.
async fn delete_objects_or_release(
    core: &Core,
    name: &str,
    known: &KnownDefinition,
) -> Result<Option<Duration>, Status> {
    if known.filling.is_some() {
        return Ok(Some(LOOK_EVERY)); // it is not known yet whether there are objects
    }
    if let Some(OpenDefinition { resource, .. }) = &known.open {
        resource.refresh().await?;
        let state = resource.cache().snapshot().state;
        let waiting = state.iter().filter(|(_, object)| !object.is_terminating());
        let waiting: Vec<&ObjectKey> = waiting.map(|(key, _)| key).take(DELETE_AT_ONCE).collect();
        if !waiting.is_empty() {
            report_deletion(core, name, known).await?;
        }
        for key in &waiting {
            match client::delete(core, resource, key, DeleteOptions::background()).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        resource.refresh().await?;
        if !resource.cache().snapshot().state.is_empty() {
            let held = waiting.is_empty();
            return Ok(Some(if held { LOOK_EVERY } else { Duration::ZERO }));
        }
    }
    let released = edit_definition(core, name, known, None, |draft| {
        let finalizers = &mut draft.meta.finalizers;
        finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
    });
    match released.await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(None),
    }
}

/// Writes into the status that objects are being deleted.
async fn report_deletion(core: &Core, name: &str, known: &KnownDefinition) -> Result<(), Status> {
    const REASON: &str = "InstanceDeletionInProgress";
    let conditions = known.brief["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    if conditions.any(|condition| condition["reason"] == REASON) {
        return Ok(());
    }
    let now = clock::now();
    let written = edit_definition(core, name, known, Some(Subresource::Status), |draft| {
        let status = draft.members.entry("status").or_insert_with(|| json!({}));
        let message = "CustomResource deletion is in progress";
        definition::set_condition(status, "Terminating", "True", REASON, message, &now);
    });
    match written.await {
        Err(status) if !matches!(status.code, 404 | 409) => Err(status),
        _ => Ok(()),
    }
}

/// Changes a definition, unless it was deleted and created again.
async fn edit_definition(
    core: &Core,
    name: &str,
    known: &KnownDefinition,
    subresource: Option<Subresource>,
    change: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    let key = ObjectKey::new("", name);
    let same = |existing: &Object| existing.uid() == known.uid;
    client::edit(core, &core.definitions, &key, same, subresource, change).await
}
