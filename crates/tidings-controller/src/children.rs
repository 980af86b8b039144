//! The children of an object as a set: all are applied, and what is not in the set any more is deleted.

use serde::Serialize;
use serde_json::Value;
use tidings_informer::{Cached, SourceError};
use tidings_kube::{KubeObject, ObjectPath};

use crate::configuration::ChildConfiguration;
use crate::context::Context;

impl<S> Context<S> {
    /// The children that an object should have, as a set; see [`Children`].
    pub fn children<'c, K: KubeObject>(&'c self, owner: &'c Cached<K>) -> Children<'c, S, K> {
        Children {
            context: self,
            owner,
            wanted: Vec::new(),
        }
    }
}

/// The children that an object should have. [`Children::apply`] applies them in the order in which they were added, then deletes what the
/// object owns besides them, of all types that the controller [owns](crate::Controller::owns), but nothing that another object controls. An empty set deletes all: also of types of which nothing was added,
/// so that what an earlier version of the program made is cleaned up.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
/// # use tidings_controller::{Action, Cached, Context};
/// # use tidings_kube::SourceError;
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
///     let (mut secret, mut service) = (Secret::default(), Service::default());
///     secret.metadata.name = Some(map.name().to_owned());
///     service.metadata.name = Some(map.name().to_owned());
///     let mut children = ctx.children(&map);
///     children.add(&secret)?;
///     if map.data.is_some() {
///         children.add(&service)?;
///     }
///     let applied = children.apply().await?;
///     println!("{} sent, {} deleted", applied.sent, applied.deleted);
///     Ok(Action::AwaitChange)
/// }
/// ```
#[must_use = "nothing is sent before apply"]
pub struct Children<'c, S, K> {
    context: &'c Context<S>,
    owner: &'c Cached<K>,
    wanted: Vec<Child<'c, S>>,
}

/// A child, and how its cache is asked whether it is there already, and told that it is.
struct Child<'c, S> {
    configuration: ChildConfiguration,
    is_current: fn(&'c Context<S>, &ChildConfiguration) -> bool,
    confirm: fn(&'c Context<S>, &ChildConfiguration, u64),
}

/// What [`Children::apply`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AppliedChildren {
    /// Children that were sent, because something had changed.
    pub sent: usize,
    /// Objects that were deleted.
    pub deleted: usize,
}

impl<'c, S, K: KubeObject> Children<'c, S, K> {
    /// Adds a child. Its namespace and owner are filled in as by [`Context::apply`].
    ///
    /// # Errors
    /// If the child cannot be owned by the object, or is no JSON.
    pub fn add<D>(&mut self, child: &D) -> Result<&mut Self, SourceError>
    where
        D: KubeObject + Serialize,
    {
        let configuration = ChildConfiguration::of(self.context, self.owner, child)?;
        Ok(self.push::<D>(configuration))
    }

    /// Adds a child of type `D` that is JSON. Its type, namespace and owner are filled in.
    ///
    /// # Errors
    /// If the child cannot be owned by the object, or is no object.
    pub fn add_json<D>(&mut self, child: Value) -> Result<&mut Self, SourceError>
    where
        D: KubeObject + Serialize,
    {
        let configuration =
            ChildConfiguration::of_json::<_, _, D>(self.context, self.owner, child)?;
        Ok(self.push::<D>(configuration))
    }

    fn push<D: KubeObject + Serialize>(&mut self, configuration: ChildConfiguration) -> &mut Self {
        self.wanted.push(Child {
            configuration,
            is_current: Context::is_applied::<D>,
            confirm: Context::confirm_applied::<D>,
        });
        self
    }

    /// Applies the children, then deletes what the object owns besides them. Nothing is deleted if an apply fails.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn apply(self) -> Result<AppliedChildren, SourceError> {
        let mut done = AppliedChildren::default();
        for child in &self.wanted {
            let (context, configuration) = (self.context, &child.configuration);
            if !(child.is_current)(context, configuration) {
                let version = context.send_applied(configuration).await?;
                (child.confirm)(context, configuration, version);
                done.sent += 1;
            }
        }
        for source in &self.context.shared.sources {
            let resource = source.resource();
            for object in source.owned_by(self.owner.uid()) {
                let is_wanted = self.wanted.iter().any(|child| {
                    let wanted = &child.configuration;
                    wanted.resource.group == resource.group
                        && wanted.resource.plural == resource.plural
                        && wanted.key == object.key
                });
                if is_wanted || object.is_terminating || object.is_controlled_by_another {
                    continue;
                }
                let path = ObjectPath::new(resource, object.key.namespace(), object.key.name());
                let client = self.context.client();
                let deleted = client.delete_object(&path, Some(&object.uid)).await?;
                done.deleted += usize::from(deleted);
            }
        }
        Ok(done)
    }
}

impl<S, K> std::fmt::Debug for Children<'_, S, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children")
            .field("wanted", &self.wanted.len())
            .finish_non_exhaustive()
    }
}
