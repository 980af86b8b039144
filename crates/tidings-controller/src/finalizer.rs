//! Finalizers: clean-up before an object goes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tidings_informer::{Action, Cached, SourceError};
use tidings_kube::{KubeObject, ObjectPath, PatchKind, resource_of};

use crate::context::Context;

/// How often the finalizers are read again after another writer changed them.
const TRIES: usize = 5;

/// What a reconcile with a finalizer has to do; [`Context::finalizer`] tells it.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cached, Context, Finalizing};
/// use tidings_kube::SourceError;
///
/// # async fn publish(name: &str) {}
/// # async fn unpublish(name: &str) {}
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
///     ctx.finalizer(&map, "example.com/published", async |step| {
///         match step {
///             Finalizing::Apply => publish(map.name()).await,
///             Finalizing::Cleanup => unpublish(map.name()).await,
///         }
///         Ok(Action::AwaitChange)
///     })
///     .await
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalizing {
    /// The object has the finalizer: reconcile it.
    Apply,
    /// The object is being deleted: clean up. The finalizer is removed when that returns [`Action::AwaitChange`]. An error, or an action that
    /// asks for another call, keeps it: the clean-up goes on later. (kube-rs removes it after every success.)
    Cleanup,
}

impl<S> Context<S> {
    /// Reconciles an object that has to be cleaned up after: adds a finalizer before the first [`Finalizing::Apply`], and removes it
    /// when [`Finalizing::Cleanup`] returns [`Action::AwaitChange`]. An object that is being deleted without the finalizer is left alone.
    ///
    /// The finalizer is added and removed by patches that test the place where it stands, so that those of others stay.
    ///
    /// # Errors
    /// Those of `reconcile`, and of the patches.
    pub async fn finalizer<K, E, F>(
        &self,
        object: &Arc<Cached<K>>,
        name: &str,
        reconcile: impl FnOnce(Finalizing) -> F,
    ) -> Result<Action, E>
    where
        K: KubeObject,
        E: From<SourceError>,
        F: Future<Output = Result<Action, E>>,
    {
        let meta = object.meta();
        let has = meta.finalizers.iter().flatten().any(|known| known == name);
        let is_deleting = meta.deletion_timestamp.is_some();
        match (is_deleting, has) {
            (false, false) => {
                let added = self
                    .change_finalizers(object, |known| add(known, name))
                    .await?;
                if !added {
                    return Ok(Action::AwaitChange); // the object is gone or being deleted
                }
                reconcile(Finalizing::Apply).await
            }
            (false, true) => reconcile(Finalizing::Apply).await,
            (true, true) => {
                let action = reconcile(Finalizing::Cleanup).await?;
                if action != Action::AwaitChange {
                    return Ok(action); // the clean-up goes on later
                }
                self.change_finalizers(object, |known| remove(known, name))
                    .await?;
                Ok(Action::AwaitChange)
            }
            (true, false) => Ok(Action::AwaitChange),
        }
    }

    /// Patches the finalizers. Reads the object again if another writer was faster. False if it is gone, or being deleted where a
    /// finalizer is to be added.
    async fn change_finalizers<K: KubeObject>(
        &self,
        object: &Arc<Cached<K>>,
        patch: impl Fn(&FinalizerState) -> Option<serde_json::Value>,
    ) -> Result<bool, SourceError> {
        let resource = resource_of::<K>();
        let path = ObjectPath::new(&resource, object.namespace(), object.name());
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut state = FinalizerState {
            uid: uid.clone(),
            finalizers: object.meta().finalizers.clone().unwrap_or_default(),
            deletion_timestamp: object
                .meta()
                .deletion_timestamp
                .as_ref()
                .map(|_| String::new()),
        };
        let mut last = None;
        for _ in 0..TRIES {
            let Some(patch) = patch(&state) else {
                return Ok(state.deletion_timestamp.is_none());
            };
            match self
                .client()
                .patch_object(&path, PatchKind::Json, &patch)
                .await
            {
                Ok(_) => return Ok(true),
                Err(error) if error.code() == Some(404) => return Ok(false),
                // A test of the patch failed, or another write came between.
                Err(error) if matches!(error.code(), Some(409 | 422)) => last = Some(error),
                Err(error) => return Err(error),
            }
            let Some(fresh) = self.client().get_object(&path).await? else {
                return Ok(false);
            };
            let fresh: WithMetadata = serde_json::from_slice(fresh.as_bytes()).unwrap_or_default();
            if fresh.metadata.uid != uid {
                return Ok(false);
            }
            state = fresh.metadata;
        }
        Err(last.unwrap_or_else(|| SourceError::Unexpected("no answer to a patch".into())))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WithMetadata {
    metadata: FinalizerState,
}

/// The metadata that a change of finalizers depends on.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FinalizerState {
    uid: String,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

/// The patch that adds a finalizer; `None` if it is there, or cannot be added any more.
fn add(state: &FinalizerState, name: &str) -> Option<serde_json::Value> {
    if state.deletion_timestamp.is_some() || state.finalizers.iter().any(|known| known == name) {
        return None;
    }
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": state.uid});
    Some(if state.finalizers.is_empty() {
        json!([uid,
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": [name]}])
    } else {
        json!([uid,
            {"op": "test", "path": "/metadata/finalizers", "value": state.finalizers},
            {"op": "add", "path": "/metadata/finalizers/-", "value": name}])
    })
}

/// The patch that removes a finalizer wherever it stands; `None` if it is not there.
fn remove(state: &FinalizerState, name: &str) -> Option<serde_json::Value> {
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": state.uid})];
    // From the last to the first, so that the places before it stay.
    for (at, _) in (state.finalizers.iter().enumerate().rev()).filter(|(_, known)| *known == name) {
        let place = format!("/metadata/finalizers/{at}");
        patch.push(json!({"op": "test", "path": place, "value": name}));
        patch.push(json!({"op": "remove", "path": place}));
    }
    (patch.len() > 1).then(|| patch.into())
}
