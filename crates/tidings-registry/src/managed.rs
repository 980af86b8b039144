//! managedFields: the fields that each manager owns (W157), and the application of configurations to objects (W154-W156).

use std::collections::BTreeSet;
use std::sync::Arc;

use tidings_api::{Cause, Object, Reason, Status, UnstampedObject};
use tidings_json::{Map, Touched, Value};
use tidings_merge::{
    Apply, Changes, Configuration, Conflicts, FieldSet, Managed, Manager, fields_of,
};

use crate::field_schema::FieldSchema;
use crate::model::{Draft, Kind, Meta};
use crate::reading::OddField;
use crate::stored::StoredObject;

/// Members of metadata that the server sets: they have no owner.
const SERVER_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];
/// The annotation in which client-side `kubectl apply` keeps the applied configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of server-side `kubectl apply`, which takes over the fields of client-side apply.
const KUBECTL: &str = "kubectl";

/// The members of metadata that can have owners, as JSON.
fn owned_metadata(meta: &Meta) -> Value {
    let mut owned = Map::new();
    let strings = |map: &std::collections::BTreeMap<String, String>| {
        let members = map.iter();
        let members = members.map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        Value::Object(members.collect())
    };
    if !meta.generate_name.is_empty() {
        owned.insert("generateName".into(), meta.generate_name.clone().into());
    }
    if !meta.labels.is_empty() {
        owned.insert("labels".into(), strings(&meta.labels));
    }
    if !meta.annotations.is_empty() {
        owned.insert("annotations".into(), strings(&meta.annotations));
    }
    if !meta.finalizers.is_empty() {
        owned.insert("finalizers".into(), meta.finalizers.clone().into());
    }
    if !meta.owner_references.is_empty() {
        owned.insert(
            "ownerReferences".into(),
            meta.owner_references.clone().into(),
        );
    }
    Value::Object(owned)
}

/// The fields that differ between two drafts. Each comes with its [`owned_metadata`].
fn changes<'a>(
    (old, before): (&'a Draft, &'a Value),
    (new, after): (&'a Draft, &'a Value),
    manager: &Manager,
) -> Changes<'a> {
    fn members<'a>(
        draft: &'a Draft,
        metadata: &'a Value,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let members = draft.members.iter();
        let members = members.map(|(name, value)| (name.as_str(), value));
        members.chain([("metadata", metadata)])
    }
    let (before, after) = (members(old, before), members(new, after));
    let mut changes = Changes::between(before, after, new.kind.field_schema());
    if manager.subresource.is_empty() && new.kind.status {
        // A Node can be created with a status. No manager owns that status.
        changes.ignore(&FieldSet::of_names(&[&["status"]]));
    }
    changes
}

/// Records in managedFields the fields that the manager sets in a new object.
pub fn track_created(new: &mut Draft, manager: &Manager, now: &str) {
    tracing::trace!(target: "tidings::walk", "notes which fields the writer owns");
    if new.keeps_owners {
        return;
    }
    new.meta.managed_fields = sent(&mut new.meta, &Managed::default()).unwrap_or_default();
    track(new, &Draft::empty(&new.kind), manager, now);
}

/// Records in managedFields the fields that the manager changes in an object.
pub fn track_updated(new: &mut Draft, old: &Draft, manager: &Manager, now: &str) {
    tracing::trace!(target: "tidings::walk", "notes which fields the writer owns");
    if std::mem::take(&mut new.meta.managed_reset) {
        new.meta.managed_fields.0.clear();
        return;
    }
    if new.keeps_owners {
        return;
    }
    // A client may replace managedFields. If it sends none, or invalid ones, the stored ones stay.
    let known = &old.meta.managed_fields;
    let sent = match manager.subresource.is_empty() {
        true => sent(&mut new.meta, known),
        false => None,
    };
    new.meta.managed_sent.clear();
    new.meta.managed_fields = sent.unwrap_or_else(|| known.clone());
    // A client that removed all managedFields gets none.
    if !new.meta.managed_fields.0.is_empty() {
        track(new, old, manager, now);
    }
}

/// An object before and after a write, in a version that is not that of the request.
pub struct OtherVersion {
    /// The kind of the version.
    pub kind: Arc<Kind>,
    /// The object before the write.
    pub before: Object,
    /// The object after it.
    pub after: Object,
}

/// The versions other than its own in which an object has owners of fields.
///
/// # Errors
/// If it is no object of the kind.
pub fn other_owned_versions(kind: &Arc<Kind>, object: &Object) -> Result<Vec<String>, Status> {
    let draft = Draft::of(kind, object)?;
    let own = kind.group_version().to_string();
    let versions = draft.meta.managed_fields.versions();
    let others: BTreeSet<&str> = versions.filter(|version| *version != own).collect();
    Ok(others.into_iter().map(str::to_owned).collect())
}

/// What is written of an object that a webhook converts between versions: those who own fields in other versions lose what has changed there. Unless
/// the writer `takes` fields of others, it must not have changed any.
///
/// # Errors
/// If it is no object of the kind, or with 409 if others own what has changed.
pub fn settle_owners(
    kind: &Arc<Kind>,
    written: &Object,
    (manager, takes): (&Manager, bool),
    others: &[OtherVersion],
) -> Result<UnstampedObject, Status> {
    let mut draft = Draft::of(kind, written)?;
    for other in others {
        let before = Draft::of(&other.kind, &other.before)?;
        let after = Draft::of(&other.kind, &other.after)?;
        let metadata = (owned_metadata(&before.meta), owned_metadata(&after.meta));
        let changes = changes((&before, &metadata.0), (&after, &metadata.1), manager);
        let version = other.kind.group_version().to_string();
        let managed = &mut draft.meta.managed_fields;
        if !takes {
            let checked = managed.check_in_version(&version, &changes, manager);
            checked.map_err(|conflicts| conflict(&conflicts))?;
        }
        managed.take_in_version(&version, &changes, manager);
    }
    draft.write()
}

/// The managedFields that a client sent, if they are valid and not empty.
fn sent(meta: &mut Meta, known: &Managed) -> Option<Managed> {
    let entries = std::mem::take(&mut meta.managed_sent);
    Managed::decode(&entries, known).filter(|sent| !sent.0.is_empty())
}

/// Updates the managedFields of `new` with its differences from `old`.
fn track(new: &mut Draft, old: &Draft, manager: &Manager, now: &str) {
    let mut managed = std::mem::take(&mut new.meta.managed_fields);
    let (before, after) = (owned_metadata(&old.meta), owned_metadata(&new.meta));
    let changes = changes((old, &before), (new, &after), manager);
    managed.update(&changes, manager, now);
    new.meta.managed_fields = managed;
}

/// Keeps the old times in managedFields if a write changes nothing but them: such a write must not change the object (W103). It
/// happens when a member is stored under another name, as `stringData` of a Secret is.
pub fn keep_times(new: &mut Draft, old: &Draft) {
    let (after, before) = (&new.meta.managed_fields, &old.meta.managed_fields);
    if after == before || after.0.len() != before.0.len() {
        return;
    }
    let mut pairs = std::iter::zip(&after.0, &before.0);
    if !pairs.all(|(after, before)| after.is_same_but_for_time(before)) {
        return;
    }
    let after = std::mem::replace(&mut new.meta.managed_fields, before.clone());
    if !new.is_same_as(old) {
        new.meta.managed_fields = after;
    }
}

/// A configuration that a manager applies.
pub(crate) struct ApplyRequest<'a> {
    /// The kind that the object is stored as.
    pub kind: &'a Kind,
    /// The manager that applies it.
    pub manager: &'a Manager,
    /// The object as the manager wants it to be.
    pub config: &'a Configuration<'a, FieldSchema<'a>>,
    /// The manager takes over fields that others own.
    pub force: bool,
}

/// The result of an apply that changes or creates an object.
pub(crate) struct ApplyOutcome {
    /// The object after the apply.
    pub object: Value,
    /// The managedFields after the apply.
    pub managed: Managed,
    /// The object before the apply, if it existed.
    pub before: Option<StoredObject>,
    /// The parts of the object that changed.
    pub touched: Touched,
}

/// Makes the configuration of an apply, with the set of its fields.
///
/// # Errors
/// With 500, as upstream answers, if it does not fit the schema of the kind (W156).
pub(crate) fn configuration<'a>(
    kind: &'a Kind,
    config: &'a Value,
    ignored: &'a FieldSet<'a>,
) -> Result<Configuration<'a, FieldSchema<'a>>, Status> {
    Configuration::new(config, kind.field_schema(), ignored).map_err(|errors| {
        let of = |name: &str| config["metadata"][name].as_str().unwrap_or_default();
        untyped(
            kind,
            &[of("namespace"), of("name")].join("/"),
            &errors.to_string(),
        )
    })
}

/// The error 500 for a configuration that does not fit the schema.
fn untyped(kind: &Kind, named: &str, errors: &str) -> Status {
    let (group, version) = (&kind.group, &kind.version);
    let message = format!(
        "failed to create typed patch object ({named}; {group}/{version}, Kind={}): {errors}",
        kind.kind
    );
    let mut status = Status::failure(500, Reason::InternalError, message);
    status.reason = None;
    status
}

/// The error 500 for unknown fields inside atomic values, which field sets do not describe.
pub(crate) fn undeclared(kind: &Kind, named: &str, odd: &[OddField]) -> Status {
    let error = |field: &OddField| format!(".{}: field not declared in schema", field.path());
    let errors: Vec<String> = odd.iter().map(error).collect();
    match errors.as_slice() {
        [only] => untyped(kind, named, only),
        several => untyped(kind, named, &format!("errors:\n  {}", several.join("\n  "))),
    }
}

impl<'a> ApplyRequest<'a> {
    /// Applies the configuration to an existing object, or creates one. `None` if the object does not change.
    ///
    /// # Errors
    /// With 409 if other managers own the fields (W155).
    pub(crate) fn apply_to(
        &self,
        existing: Option<&Object>,
        now: &str,
    ) -> Result<Option<ApplyOutcome>, Status> {
        let (mut object, mut managed) = match existing {
            Some(object) => {
                let shown = self.kind.shown(object);
                // Mostly a manager applies the same fields again, so its entry need not be parsed.
                let stored = StoredObject::read_with(&shown, self.config.fields_v1());
                let StoredObject { members, managed } = stored.map_err(Status::internal)?;
                (Value::Object(members), managed)
            }
            None => (Value::Object(Map::new()), Managed::default()),
        };
        let apply = Apply {
            config: self.config,
            force: self.force,
            now,
        };
        let owners = managed.clone();
        let applied = match managed.apply(self.manager, &mut object, apply) {
            Err(conflicts) if self.manager.name == KUBECTL => {
                let left = self.other_than_client_side(&object, conflicts);
                if !left.0.is_empty() {
                    return Err(conflict(&left));
                }
                let apply = Apply {
                    force: true,
                    ..apply
                };
                managed.apply(self.manager, &mut object, apply)
            }
            applied => applied,
        };
        let displaced = applied.map_err(|conflicts| conflict(&conflicts))?;
        let last_applied = self.last_applied(&object);
        // Any write may remove an object that is being deleted (W147).
        let terminating = object["metadata"].get("deletionTimestamp").is_some();
        let is_new = !displaced.is_empty() || last_applied.is_some() || managed != owners;
        if existing.is_some() && !is_new && !terminating {
            return Ok(None);
        }
        let touched = match existing {
            Some(_) => displaced.touched(),
            None => Touched::Whole,
        };
        let before = existing.and_then(|_| {
            let mut before = object.clone();
            displaced.restore(&mut before);
            match before {
                Value::Object(members) => Some(StoredObject {
                    members,
                    managed: owners,
                }),
                _ => None,
            }
        });
        if let Some(config) = last_applied {
            object["metadata"]["annotations"][LAST_APPLIED] = config;
        }
        Ok(Some(ApplyOutcome {
            object,
            managed,
            before,
            touched,
        }))
    }

    /// The conflicts without those with client-side `kubectl apply`: fields whose value is still the one in the last applied
    /// configuration.
    fn other_than_client_side(&self, live: &Value, conflicts: Conflicts) -> Conflicts {
        let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
        let last = last.and_then(|last| serde_json::from_str::<Value>(last).ok());
        let Some(last) = last.filter(|last| last["apiVersion"] == live["apiVersion"]) else {
            return conflicts;
        };
        let schema = self.kind.field_schema();
        let Ok(mut own) = fields_of(&last, schema) else {
            return conflicts;
        };
        let since = Changes::of(Some(&last), Some(live), schema);
        own.remove(&since.set);
        own.remove(&since.removed);
        let own: std::collections::BTreeSet<String> = own.paths().into_iter().collect();
        let others = conflicts.0.into_iter();
        Conflicts(others.filter(|one| !own.contains(&one.path)).collect())
    }

    /// The new last applied configuration, so that kubectl can return to client-side apply. `None` if the object has no such
    /// annotation, or the same one.
    fn last_applied(&self, object: &Value) -> Option<Value> {
        if self.manager.name != KUBECTL || !self.manager.subresource.is_empty() {
            return None;
        }
        let last = object["metadata"].get("annotations")?.get(LAST_APPLIED)?;
        let mut config = self.config.value().clone();
        let annotations = config["metadata"].get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        config.sort_all_objects();
        let applied = Value::from(format!("{config}\n"));
        (*last != applied).then_some(applied)
    }
}

/// The fields that an apply ignores: no manager can own them.
pub(crate) fn ignored<'a>(kind: &'a Kind, manager: &Manager) -> FieldSet<'a> {
    let mut paths: Vec<Vec<&'a str>> = vec![vec!["kind"], vec!["apiVersion"], vec!["metadata"]];
    paths.extend(SERVER_METADATA.map(|name| vec!["metadata", name]));
    match &*manager.subresource {
        "status" => {
            let others = kind.member_names().into_iter();
            let others = others.filter(|name| *name != "status");
            paths.extend(others.map(|name| vec![name]));
            paths.extend(kind.status_keeps.map(|kept| vec!["metadata", kept.name()]));
        }
        _ if kind.status => paths.push(vec!["status"]),
        _ => {}
    }
    let paths: Vec<&[&'a str]> = paths.iter().map(Vec::as_slice).collect();
    FieldSet::of_names(&paths)
}

/// The error 409, with a cause for each conflict (W155).
fn conflict(conflicts: &Conflicts) -> Status {
    let mut status = Status::failure(409, Reason::Conflict, conflicts.to_string());
    let causes = conflicts.0.iter().map(|conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.owner),
        field: conflict.path.clone(),
    });
    status.details.get_or_insert_default().causes.extend(causes);
    status
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidings_json::json;

    use super::*;
    use crate::test_kinds::kind;

    fn configmap(data: &Value) -> Draft {
        let kind = kind("", "configmaps");
        let body = json!({"metadata": {"name": "x"}, "data": data}).to_string();
        Draft::read(&kind, body.as_bytes()).unwrap()
    }

    fn manager(name: &str) -> Manager {
        Manager {
            name: name.into(),
            api_version: "v1".into(),
            subresource: String::new(),
        }
    }

    fn fields(draft: &Draft) -> BTreeMap<String, String> {
        let entries = draft.meta.managed_fields.0.iter();
        entries
            .map(|entry| (entry.manager.name.clone(), entry.fields.json().to_owned()))
            .collect()
    }

    #[test]
    fn w157_what_a_writer_sets_is_its_own() {
        let mut first = configmap(&json!({"a": "1", "b": "1"}));
        track_created(&mut first, &manager("one"), "2026-01-01T00:00:00Z");
        assert_eq!(
            fields(&first)["one"],
            r#"{"f:data":{".":{},"f:a":{},"f:b":{}}}"#
        );
        let mut second = configmap(&json!({"a": "2", "c": "1"}));
        track_updated(&mut second, &first, &manager("two"), "2026-01-01T00:00:01Z");
        assert_eq!(
            fields(&second)["one"],
            r#"{"f:data":{}}"#,
            "b is gone, a is another's"
        );
        assert_eq!(fields(&second)["two"], r#"{"f:data":{"f:a":{},"f:c":{}}}"#);
    }

    #[test]
    fn w157_a_write_that_changes_nothing_leaves_the_entries_alone() {
        let mut first = configmap(&json!({"a": "1"}));
        track_created(&mut first, &manager("one"), "2026-01-01T00:00:00Z");
        let mut again = configmap(&json!({"a": "1"}));
        track_updated(&mut again, &first, &manager("two"), "2026-01-01T00:00:01Z");
        assert_eq!(again.meta.managed_fields, first.meta.managed_fields);
    }

    #[test]
    fn w157_at_most_ten_updates_are_kept_apart() {
        let mut draft = configmap(&json!({"first": "1"}));
        track_created(&mut draft, &manager("m"), "2025-01-01T00:00:00Z");
        let mut data = Map::new();
        data.insert("first".into(), "1".into());
        for at in 0..15 {
            data.insert(format!("k{at:02}"), "1".into());
            let mut next = configmap(&Value::Object(data.clone()));
            track_updated(
                &mut next,
                &draft,
                &manager(&format!("m{at:02}")),
                &format!("2026-01-01T00:00:{at:02}Z"),
            );
            draft = next;
        }
        let fields = fields(&draft);
        assert_eq!(fields.len(), 10);
        assert!(
            fields["ancient-changes"].contains("f:k00")
                && fields["ancient-changes"].contains("f:k05")
        );
        assert_eq!(fields["m14"], r#"{"f:data":{"f:k14":{}}}"#);
    }
}
