//! Writes of a reconcile: children, status, deletions. Nothing is sent where nothing changes.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tidings_api::{Object, ObjectKey};
use tidings_informer::{Cached, SourceError};
use tidings_json::find_member;
use tidings_kube::{KubeObject, ObjectPath, resource_of};

use crate::configuration::{ChildConfiguration, no_json};
use crate::context::Context;
use crate::owners::{self, OwnerLink};

impl<S> Context<S> {
    /// Applies a child of an object (server-side apply): in the namespace of its owner unless it names another one, with the owner as its
    /// controller, under the name of the controller as field manager, taking over fields that others own. A child that cannot have this owner
    /// is labelled instead, if the controller [owns such objects](crate::Controller::owns_labelled).
    ///
    /// Sends nothing if the child in the cache was applied with the same configuration, by this process or an earlier one, and still has all
    /// of it: an annotation, `applied.tidings.dev/<controller>`, has a hash of what was applied. False if nothing was sent.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply<K, D>(&self, owner: &Cached<K>, child: &D) -> Result<bool, SourceError>
    where
        K: KubeObject,
        D: KubeObject + Serialize,
    {
        let child = ChildConfiguration::of(self, owner, child)?;
        self.apply_configuration::<D>(&child).await
    }

    /// Applies a child of type `D` that is JSON, as [`Context::apply`] does. `apiVersion` and `kind` are filled in.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply_json<D>(
        &self,
        owner: &Cached<impl KubeObject>,
        child: Value,
    ) -> Result<bool, SourceError>
    where
        D: KubeObject + Serialize,
    {
        let child = ChildConfiguration::of_json::<_, _, D>(self, owner, child)?;
        self.apply_configuration::<D>(&child).await
    }

    async fn apply_configuration<D: KubeObject + Serialize>(
        &self,
        child: &ChildConfiguration,
    ) -> Result<bool, SourceError> {
        if self.is_applied::<D>(child) {
            return Ok(false);
        }
        let version = self.send_applied(child).await?;
        self.confirm_applied::<D>(child, version);
        Ok(true)
    }

    /// True if the cached child was applied with the same configuration, and still has all of it.
    pub(crate) fn is_applied<D: KubeObject + Serialize>(&self, child: &ChildConfiguration) -> bool {
        let cached = self.find_store::<D>();
        let Some(cached) = cached.get_by_key(child.key.as_str()) else {
            return false;
        };
        if cached.mark() != child.hash {
            return false;
        }
        if !cached.is_mark_confirmed() && child.is_in(&cached) {
            cached.confirm_mark();
        }
        cached.is_mark_confirmed()
    }

    /// Applies a configuration. Returns the version of the child that came of it.
    pub(crate) async fn send_applied(
        &self,
        child: &ChildConfiguration,
    ) -> Result<u64, SourceError> {
        let ChildConfiguration { resource, key, .. } = child;
        let path = ObjectPath::new(resource, key.namespace(), key.name());
        let (manager, text) = (self.controller(), child.text.clone());
        let answer = self.client().apply_text(&path, manager, true, text).await?;
        Ok(answer.revision().get())
    }

    /// Notes that a version of a child is what came of a configuration, also if the server has stored a value in another form.
    pub(crate) fn confirm_applied<D: KubeObject>(&self, child: &ChildConfiguration, version: u64) {
        let cached = self.latest::<D>(&child.key);
        if let Some(cached) = cached.filter(|cached| cached.version() == version)
            && cached.mark() == child.hash
        {
            cached.confirm_mark();
        }
    }

    /// Sets the status of an object by server-side apply. Sends nothing if the object in the cache has this status already. False if
    /// nothing was sent.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply_status<K>(
        &self,
        object: &Cached<K>,
        status: &impl Serialize,
    ) -> Result<bool, SourceError>
    where
        K: KubeObject + Serialize,
    {
        let status = to_raw_value(status).map_err(no_json)?;
        // The last state that this process wrote, if the cache does not have it yet.
        let latest = self.latest::<K>(object.key());
        let latest = latest.filter(|latest| latest.uid() == object.uid());
        let current = latest
            .as_ref()
            .map_or(object.value(), |latest| latest.value());
        let current = serde_json::to_vec(current).map_err(no_json)?;
        let known = find_member(&current, &["status"]).map(|known| known.of(&current));
        if known.is_some_and(|known| is_same_json(known, status.get().as_bytes())) {
            return Ok(false);
        }
        let resource = resource_of::<K>();
        let path = ObjectPath::new(&resource, object.namespace(), object.name());
        let uid = object.meta().uid.as_deref();
        // With the uid, so that an object that was deleted and created again keeps its own status.
        let configuration = StatusConfiguration {
            api_version: &resource.api_version,
            kind: &resource.kind,
            metadata: json!({"name": object.name(), "uid": uid}),
            status: &status,
        };
        let manager = format!("{}-status", self.controller());
        let path = path.subresource("status");
        self.client()
            .apply_object(&path, &manager, true, &configuration)
            .await?;
        Ok(true)
    }

    /// Deletes a cached object, unless it was deleted and created again meanwhile. False if it is gone already.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn delete<D: KubeObject>(&self, object: &Cached<D>) -> Result<bool, SourceError> {
        let resource = resource_of::<D>();
        let path = ObjectPath::new(&resource, object.namespace(), object.name());
        let uid = object.meta().uid.as_deref();
        self.client().delete_object(&path, uid).await
    }

    /// Deletes the objects of a type that an object owns and that are not wanted any more, but none that another object controls. Returns how
    /// many.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    ///
    /// # Panics
    /// If the controller does not own the type.
    pub async fn prune<D: KubeObject>(
        &self,
        owner: &Cached<impl Sized>,
        is_wanted: impl Fn(&Cached<D>) -> bool,
    ) -> Result<usize, SourceError> {
        let mut pruned = 0;
        for object in self.owned::<D>(owner) {
            let is_kept = object.meta().deletion_timestamp.is_some()
                || owners::is_controlled_by_another(&OwnerLink::of::<D>(&object), owner.uid());
            if !is_wanted(&object) && !is_kept {
                pruned += usize::from(self.delete(&object).await?);
            }
        }
        Ok(pruned)
    }

    /// Reads an object from the server, not from the cache.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn read<D: KubeObject>(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<Object>, SourceError> {
        let resource = resource_of::<D>();
        let path = ObjectPath::new(&resource, key.namespace(), key.name());
        self.client().get_object(&path).await
    }
}

/// What is applied to set a status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusConfiguration<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    status: &'a RawValue,
}

/// True if two JSON texts say the same. Texts of one type mostly are equal byte by byte.
fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let read = |json: &[u8]| serde_json::from_slice::<Value>(json).ok();
    one == other || read(one) == read(other)
}
