//! Follows the definitions: accepts names, serves what is established, and lets go of what is deleted.
//!
//! Every server does this for itself. What they write into the status of a definition is the same, so it does not matter who is
//! first.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, Status};
use tidings_json::{Value, json};
use tidings_storage::{HistoryHold, Revision};
use tidings_structural::definition::{self, CLEANUP_FINALIZER, Definition};

use super::kinds::{Interned, Reader};
use crate::api::Inner;
use crate::cache::Cache;
use crate::clock;
use crate::registry;
use crate::registry::Kind;
use crate::registry::draft::Draft;
use crate::served::{CustomResource, Resource};
use crate::verbs::delete::{DeleteOptions, delete_one};
use crate::verbs::update::edit;

/// When what did not succeed is tried again, at first and at last.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How often a deleted definition is looked at whose objects are held by finalizers.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many objects of one deleted definition are deleted before others have their turn.
const DELETE_AT_ONCE: usize = 200;
/// How much is brought into another form before others have their turn.
const REFORM_BYTES: usize = 256 << 10;
/// How long a new cache is waited for.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Says that a group of Kubernetes' own may be used.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The versions of a definition, and whether they are served.
type VersionKinds = Vec<(&'static Kind, bool)>;

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
    filling: Option<Filling>,
}

/// The objects of a definition.
struct Open {
    resource: Arc<Resource>,
    reader: Arc<Reader>,
}

/// What will be open when it is filled.
struct Filling {
    open: Open,
    /// The definition has just come: there are no objects in the history before it.
    new: bool,
    /// History does not end before the cache is filled.
    _history: HistoryHold,
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
    /// All definitions have been looked at once. Those that come later have no history.
    started: bool,
    /// What is served, or a status, is not yet as the definitions want it.
    unsettled: bool,
    /// How often in a row that did not succeed.
    failures: u32,
    /// Definitions that have gone, by group and plural. Watches may still tell of their last objects: they are forgotten with
    /// the next look.
    gone: Vec<(String, String)>,
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
                self.follow(&api).await
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

    /// One look at all definitions. Says when there should be another, if nothing changes before.
    pub(crate) async fn follow(&mut self, api: &Inner) -> Option<Duration> {
        for (group, plural) in std::mem::take(&mut self.gone) {
            let mut others = self
                .known
                .values()
                .filter_map(|known| known.definition.as_ref());
            // There may be another one of the same names by now.
            if !others.any(|other| other.group == group && other.names.plural == plural) {
                self.interned.forget(&group, &plural);
            }
        }
        let state = api.cache(registry::definitions()).snapshot().state;
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
            self.unsettled = true;
            let Some(known) = self.known.remove(&name) else {
                continue;
            };
            let definition = known.definition.as_ref();
            self.gone.extend(definition.map(|definition| {
                let plural = definition.names.plural.clone();
                (definition.group.clone(), plural)
            }));
            closed.extend(known.open.map(|open| open.resource));
        }
        for (key, object) in &state {
            let known = self.known.get(key.name());
            if known.is_some_and(|known| known.revision == object.revision()) {
                continue;
            }
            self.unsettled = true;
            if let Err(status) = self.read(key.name(), object).await {
                tracing::warn!(definition = key.name(), %status, "a definition cannot be read");
            }
        }
        let mut again = None;
        if self.unsettled {
            let settled = self.settle(api).await;
            self.unsettled = !settled;
            self.failures = if settled { 0 } else { self.failures + 1 };
            if !settled {
                again = Some((AGAIN * (1 << self.failures.min(6))).min(LONGEST_WAIT));
            }
        }
        self.started = true;
        for resource in closed {
            resource.cache.close();
        }
        again.into_iter().chain(self.clean_up(api).await).min()
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
        let known = Known {
            uid: object.uid().into_owned(),
            revision: object.revision(),
            generation,
            brief,
            object: object.clone(),
            definition,
            open,
            filling,
        };
        self.known.insert(name.to_owned(), known);
        Ok(())
    }

    /// Serves all that is established, and then says so. False if something did not succeed: it is for another time.
    async fn settle(&mut self, api: &Inner) -> bool {
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
        // All of them are filled at the same time.
        for name in &established {
            if let Some(known) = self.known.get_mut(*name) {
                known.begin(api, &mut self.interned, self.started);
            }
        }
        let mut served = Vec::new();
        for name in established {
            let Some(known) = self.known.get_mut(name) else {
                continue;
            };
            let opened = known.open(api, &mut self.interned).await;
            settled &= opened.is_ok();
            served.extend(opened.ok().flatten());
        }
        api.serve_custom(&served);
        for (name, status) in statuses {
            let Some(known) = self.known.get(&name) else {
                continue;
            };
            // What cannot be served, such as versions that a webhook converts, is not said to be.
            let is_served = known.open.is_some();
            let unserved = is_established(&status) && !is_served;
            if status == known.brief["status"] || known.terminating() || unserved {
                continue;
            }
            let written = edit_definition(api, &name, known, Some("status"), |draft| {
                let own = draft.members.entry("status").or_insert_with(|| json!({}));
                for member in ["conditions", "acceptedNames"] {
                    own[member] = status[member].clone();
                }
            });
            // What has changed meanwhile is looked at again anyway.
            if let Err(status) = written.await
                && !matches!(status.code, 404 | 409)
            {
                tracing::warn!(definition = name, %status, "the status of a definition cannot be written; it is tried again");
                settled = false;
            }
        }
        settled
    }

    /// Deletes the objects of deleted definitions, and lets those go that have none left (W186). Says when to look again.
    async fn clean_up(&mut self, api: &Inner) -> Option<Duration> {
        let mut again = None;
        for (name, known) in &self.known {
            if !(known.terminating() && known.held()) {
                continue;
            }
            match release(api, name, known).await {
                Ok(wait) => again = again.into_iter().chain(wait).min(),
                Err(status) => {
                    tracing::warn!(definition = name, %status, "a definition cannot be emptied; it is tried again");
                    again = Some(LOOK_EVERY);
                }
            }
        }
        again
    }
}

impl Known {
    /// The kinds of the definition, and the one that its objects are stored as. `None` if it cannot be served.
    fn kinds(&self, interned: &mut Interned) -> Option<(VersionKinds, &'static Kind)> {
        let definition = self.definition.as_ref()?;
        let kinds = interned.kinds(definition, &self.object, self.terminating());
        let storage = &definition.storage().name;
        let stored = kinds.iter().find(|(kind, _)| kind.version == storage);
        let (stored, _) = *stored?;
        Some((kinds, stored))
    }

    /// Begins to fill a cache for the objects, if there is none. A definition that is `new` has no objects in the history before it.
    fn begin(&mut self, api: &Inner, interned: &mut Interned, new: bool) {
        if self.open.is_some() || self.filling.is_some() {
            return;
        }
        if let Some((_, stored)) = self.kinds(interned)
            && let Some(definition) = self.definition.clone()
        {
            let reader = Arc::new(Reader::new(definition));
            let history = api.store.hold_history();
            let from = Revision(if new { self.revision.get() } else { 0 });
            let resource = api.opener.open(stored, Some(reader.clone()), from);
            self.filling = Some(Filling {
                open: Open { resource, reader },
                new,
                _history: history,
            });
        }
    }

    /// Waits until the cache for the objects is filled, or brings it up to date. `None` if the definition cannot be served.
    async fn open(
        &mut self,
        api: &Inner,
        interned: &mut Interned,
    ) -> Result<Option<CustomResource>, ()> {
        let (Some((kinds, stored)), Some(definition)) =
            (self.kinds(interned), self.definition.clone())
        else {
            return Ok(None);
        };
        if let Some(filling) = &self.filling {
            // Nobody is told of it before it has all that the store has.
            let until = match filling.new {
                true => Revision(0),
                false => api.store.revision().await.map_err(|_| ())?,
            };
            let filled = api.fill(&filling.open.resource, until);
            if tokio::time::timeout(FILL_TIMEOUT, filled).await.is_err() {
                let definition = &self.brief["metadata"]["name"];
                tracing::warn!(%definition, "the cache for a definition is not filled yet");
                return Err(());
            }
            self.open = self.filling.take().map(|filled| filled.open);
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        if open.reader.set(&definition) {
            // What is older than the definition is of other forms: the cache has to be past it to tell.
            if let Err(status) = api.reach(open.resource.kind, self.revision).await {
                tracing::warn!(%status, "the cache for a definition is behind it");
            }
            reform(&open.resource.cache, &open.reader).await;
        }
        if !std::ptr::eq(open.resource.kind, stored) {
            open.resource = Arc::new(open.resource.of(stored));
        }
        let resource = open.resource.clone();
        Ok(Some(CustomResource { kinds, resource }))
    }
}

/// Deletes some objects of a deleted definition; when none is left, lets it go. Says when to go on.
async fn release(api: &Inner, name: &str, known: &Known) -> Result<Option<Duration>, Status> {
    if let Some(open) = &known.open {
        let kind = open.resource.kind;
        api.refresh(kind).await?;
        let state = api.cache(kind).snapshot().state;
        let waiting = state.iter().filter(|(_, object)| !object.is_terminating());
        let waiting: Vec<&ObjectKey> = waiting.map(|(key, _)| key).take(DELETE_AT_ONCE).collect();
        if !waiting.is_empty() {
            report(api, name, known).await?;
        }
        for key in &waiting {
            match delete_one(api, kind, key, &DeleteOptions::background()).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        api.refresh(kind).await?;
        if !api.cache(kind).snapshot().state.is_empty() {
            let held = waiting.is_empty();
            return Ok(Some(if held { LOOK_EVERY } else { Duration::ZERO }));
        }
    }
    let released = edit_definition(api, name, known, None, |draft| {
        let finalizers = &mut draft.meta.finalizers;
        finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
    });
    match released.await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(None),
    }
}

/// Says in the status that objects are being deleted.
async fn report(api: &Inner, name: &str, known: &Known) -> Result<(), Status> {
    const REASON: &str = "InstanceDeletionInProgress";
    let conditions = known.brief["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    if conditions.any(|condition| condition["reason"] == REASON) {
        return Ok(());
    }
    let now = clock::now();
    let said = edit_definition(api, name, known, Some("status"), |draft| {
        let status = draft.members.entry("status").or_insert_with(|| json!({}));
        let message = "CustomResource deletion is in progress";
        definition::set_condition(status, "Terminating", "True", REASON, message, &now);
    });
    match said.await {
        Err(status) if !matches!(status.code, 404 | 409) => Err(status),
        _ => Ok(()),
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
async fn reform(cache: &Cache, reader: &Reader) {
    let form = reader.form();
    let (mut forms, mut bytes, mut changed) = (Vec::new(), 0, false);
    for original in cache.originals() {
        bytes += original.as_bytes().len();
        let read = form.of(&original, EventType::Added);
        forms.push((original, read));
        if bytes > REFORM_BYTES {
            changed |= cache.put_forms(std::mem::take(&mut forms));
            bytes = 0;
            tokio::task::yield_now().await; // others have work too
        }
    }
    if cache.put_forms(forms) || changed {
        cache.forms_changed();
    }
}

/// Changes a definition, if it is still the same one.
async fn edit_definition(
    api: &Inner,
    name: &str,
    known: &Known,
    subresource: Option<&str>,
    change: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    let key = ObjectKey::new("", name);
    let kind = registry::definitions();
    let same = |existing: &Object| existing.uid() == known.uid;
    edit(api, kind, &key, same, subresource, change).await
}
