//! Admission: after it is known that a user may write, and before the write becomes real, webhooks may change the object or refuse it.
//!
//! A request goes through it as an [`Admitting`]: the object as it was sent may be changed ([`Admitting::change`]), and what would be stored is
//! checked ([`Admitting::check`]). What decides is pure ([`tidings_admission`]); here it is asked.

mod counts;
mod index;
mod mutations;
mod policies;
mod questions;
mod webhooks;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use tidings_access::User;
use tidings_admission::{AdmissionRequest, MatchResources, Operation, ResourceKind, Webhook};
use tidings_api::{Labels, Object, ObjectKey, Status};
use tidings_json::{Map, Value};
use tidings_plugins::PluginSet;
use tidings_registry::{Draft, Kind, Name, ScaleView, Subresource};

pub(crate) use counts::AdmissionCounts;
use index::{AdmissionIndex, Configured};

use super::access::Access;
use super::resource::Resource;
use super::served::ServedSet;
use super::webhook_authorizer::AccessAnswers;
use super::webhook_clients::WebhookClients;

/// True for the kinds that configure admission. Who has the answer to a write of one may rely on it.
pub(super) fn is_configuration(kind: &Kind) -> bool {
    *kind.group == *"admissionregistration.k8s.io"
}

/// What all requests share: the configurations, and the connections to webhooks.
pub(crate) struct Admission {
    index: AdmissionIndex,
    clients: Arc<WebhookClients>,
    counts: AdmissionCounts,
    namespaces: Arc<Resource>,
}

impl Admission {
    pub(super) fn new(
        served: &ServedSet,
        namespaces: Arc<Resource>,
        clients: Arc<WebhookClients>,
        plugins: &PluginSet,
    ) -> Admission {
        Admission {
            index: AdmissionIndex::new(served, plugins),
            clients,
            counts: AdmissionCounts::default(),
            namespaces,
        }
    }

    /// True if nothing is configured: requests then pay nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.index.current().is_empty()
    }

    /// Counters, for metrics.
    pub(crate) fn counts(&self) -> &AdmissionCounts {
        &self.counts
    }
}

/// What a request said of itself, for the options of a review.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentOptions {
    /// `fieldManager`, if it was sent.
    pub(crate) field_manager: String,
    /// `fieldValidation`, if it was sent.
    pub(crate) field_validation: String,
}

impl SentOptions {
    /// The options as upstream writes them: `CreateOptions` or `UpdateOptions`.
    pub(super) fn to_value(&self, kind: &str, dry_run: bool) -> Value {
        let mut options = options_of(kind, dry_run);
        for (name, text) in [
            ("fieldManager", &self.field_manager),
            ("fieldValidation", &self.field_validation),
        ] {
            if !text.is_empty() {
                options.insert(name.into(), text.as_str().into());
            }
        }
        options.into()
    }
}

/// Options of a kind, in which only `dryRun` may be set.
pub(super) fn options_of(kind: &str, dry_run: bool) -> Map {
    let mut options = Map::new();
    options.insert("kind".into(), kind.into());
    options.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    if dry_run {
        options.insert("dryRun".into(), vec![Value::from("All")].into());
    }
    options
}

/// What clients and the audit log are told.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) warnings: Vec<String>,
    pub(crate) notes: Vec<(Cow<'static, str>, String)>,
}

/// Who asks, and what admission needs to know of the request: part of a call.
#[derive(Clone)]
pub(crate) struct AdmissionContext {
    pub(super) admission: Arc<Admission>,
    pub(super) access: Arc<Access>,
    pub(super) served: Arc<ServedSet>,
    pub(super) said: Arc<Mutex<Said>>,
}

impl AdmissionContext {
    /// Takes what was said.
    pub(super) fn take_said(&self) -> Said {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a request is about.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    pub(super) kind: &'a Arc<Kind>,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) subresource: Option<Subresource>,
    pub(super) key: &'a ObjectKey,
    pub(super) user: &'a Arc<User>,
    pub(super) dry_run: bool,
    pub(super) options: Value,
    pub(super) answers: Option<&'a Arc<AccessAnswers>>,
}

/// The objects of a request.
#[derive(Clone, Copy)]
struct Objects<'o> {
    new: Option<&'o Object>,
    old: Option<&'o Object>,
}

/// A request on its way through admission.
pub(super) struct Admitting<'a> {
    context: &'a AdmissionContext,
    kind: &'a Arc<Kind>,
    resource: &'a Arc<Resource>,
    subresource: Option<Subresource>,
    request: AdmissionRequest<'a>,
    answers: Option<Arc<AccessAnswers>>,
    /// The objects of the request as the conversion webhook has written them in other versions.
    converted: Mutex<Vec<ConvertedObject>>,
}

/// An object, and what it is in another version.
struct ConvertedObject {
    object: Object,
    version: Name,
    converted: Object,
}

/// Asks those who check about what is posted to a part of an object. What they would change stays as it is.
pub(super) async fn check_posted(
    admitting: Option<&Admitting<'_>>,
    posted: &Draft,
) -> Result<(), Status> {
    let Some(admitting) = admitting.filter(|admitting| admitting.is_checked()) else {
        return Ok(());
    };
    let json = posted.write()?.value().clone();
    let posted = Object::parse(json).map_err(Status::internal)?;
    Box::pin(admitting.check(Some(&posted), None)).await
}

impl<'a> Admitting<'a> {
    /// A request that nobody may be asked about has none.
    pub(super) fn new(context: &'a AdmissionContext, asked: Asked<'a>) -> Option<Admitting<'a>> {
        let mut on = resource_kind(asked.kind);
        if on.configures_admission() {
            return None;
        }
        if let Some(other) = asked.subresource.and_then(Subresource::other_kind) {
            on.kind = other.kind.to_owned();
            on.kind_version = Some((other.group.to_owned(), other.version.to_owned()));
        }
        let namespace = match asked.kind.is_namespace {
            true => asked.key.name(),
            false => asked.key.namespace(),
        };
        Some(Admitting {
            context,
            kind: asked.kind,
            resource: asked.resource,
            subresource: asked.subresource,
            answers: asked.answers.cloned(),
            converted: Mutex::default(),
            request: AdmissionRequest {
                operation: asked.operation,
                on,
                subresource: asked.subresource.map_or("", Subresource::as_str),
                namespace,
                name: asked.key.name(),
                user: asked.user,
                dry_run: asked.dry_run,
                options: asked.options,
            },
        })
    }

    /// Lets those change an object who may. `None` if nobody has changed it. `tracked` makes the draft as those see it.
    pub(super) async fn change(
        &self,
        draft: &Draft,
        old: Option<&Object>,
        tracked: impl FnOnce(Draft) -> Result<Draft, Status>,
    ) -> Result<Option<Draft>, Status> {
        let index = self.context.admission.index.current();
        let asks = self.concerns_any(&index.mutating);
        let mut policies = index.mutating_policies.iter();
        let evaluates = policies.any(|(policy, _)| self.about(&policy.base.matching).is_some());
        if !asks && !evaluates {
            return Ok(None);
        }
        let mut seen = tracked(draft.clone())?;
        let mut is_changed = false;
        if evaluates {
            let mut changing = mutations::Changing::new(seen)?;
            mutations::change(self, &index, &mut changing, old, false).await?;
            is_changed = changing.is_changed();
            seen = changing.draft;
        }
        let by_webhooks = match asks {
            true => webhooks::change(self, &index, seen.clone(), old).await?,
            false => None,
        };
        let Some(changed) = by_webhooks else {
            return Ok(is_changed.then_some(seen));
        };
        if !evaluates {
            return Ok(Some(changed));
        }
        let mut changing = mutations::Changing::new(changed)?;
        mutations::change(self, &index, &mut changing, old, true).await?;
        Ok(Some(changing.draft))
    }

    /// Lets those refuse a write who may. `new` is the object as it would be stored, `old` as it is.
    pub(super) async fn check(
        &self,
        new: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        let index = self.context.admission.index.current();
        if self.request.operation == Operation::Delete && self.concerns_any(&index.mutating) {
            // They cannot change what is deleted, but refuse.
            webhooks::check_each(self, &index, old).await?;
        }
        if self.concerns_policies(&index) {
            policies::check(self, &index, new, old).await?;
        }
        if self.concerns_any(&index.validating) {
            webhooks::check(self, &index, new, old).await?;
        }
        Ok(())
    }

    /// True if [`Admitting::check`] asks somebody.
    pub(super) fn is_checked(&self) -> bool {
        let index = self.context.admission.index.current();
        self.concerns_any(&index.validating)
            || self.concerns_policies(&index)
            || (self.request.operation == Operation::Delete && self.concerns_any(&index.mutating))
    }

    fn concerns_any(&self, webhooks: &[Arc<Webhook>]) -> bool {
        let mut webhooks = webhooks.iter();
        webhooks.any(|webhook| self.about(&webhook.matching).is_some())
    }

    fn concerns_policies(&self, index: &Configured) -> bool {
        let mut policies = index.policies.iter();
        policies.any(|(policy, _)| self.about(&policy.base.matching).is_some())
    }

    /// The resource that rules mean by the request; `None` if they do not mean it.
    fn about(&self, matching: &MatchResources) -> Option<ResourceKind> {
        matching.about(&self.request, &|| self.equivalents())
    }

    /// False if selectors leave the request out.
    fn selects(&self, matching: &MatchResources, objects: Objects<'_>) -> Result<bool, Status> {
        let namespace = match matching.has_namespace_selector() {
            true => self.namespace_labels(objects)?,
            false => None,
        };
        let both = [objects.new, objects.old];
        let labels: Vec<&Labels> = both.into_iter().flatten().map(Object::labels).collect();
        Ok(matching.selects(namespace.as_ref(), &labels))
    }

    /// The labels of the namespace that the object is in, or is. `None` if it is in none.
    fn namespace_labels(&self, objects: Objects<'_>) -> Result<Option<Labels>, Status> {
        let name = self.request.namespace;
        if name.is_empty() {
            return Ok(None);
        }
        if self.kind.is_namespace
            && self.request.operation != Operation::Delete
            && let Some(new) = objects.new
        {
            return Ok(Some(new.labels().clone()));
        }
        Ok(Some(self.namespace(name)?.labels().clone()))
    }

    fn namespace(&self, name: &str) -> Result<Object, Status> {
        let namespaces = &self.context.admission.namespaces;
        let found = namespaces.get(&ObjectKey::new("", name));
        found.ok_or_else(|| Status::not_found(namespaces.kind.group_resource(), name))
    }

    /// The JSON of an object as those see it who are asked about a kind.
    fn shown<'o>(
        &self,
        kind: &Kind,
        object: Option<&'o Object>,
    ) -> Result<Option<Cow<'o, [u8]>>, Status> {
        let Some(object) = object else {
            return Ok(None);
        };
        if self.subresource == Some(Subresource::Scale) {
            let scale = ScaleView::of(object, self.kind)?;
            return Ok(Some(scale.to_json()?.into()));
        }
        if let Some(converted) = self.known_in(kind, object) {
            return Ok(Some(converted.as_bytes().to_vec().into()));
        }
        Ok(Some(kind.shown(object)))
    }

    /// Lets the conversion webhook write the objects in the version of a kind that somebody is asked about, if it is another one.
    async fn prepare(&self, kind: &Kind, objects: Objects<'_>) -> Result<(), Status> {
        if !self.is_converted(kind) || self.subresource == Some(Subresource::Scale) {
            return Ok(());
        }
        for object in [objects.new, objects.old].into_iter().flatten() {
            if self.known_in(kind, object).is_none() {
                let converted = self.resource.in_version(kind, object.clone()).await?;
                self.all_converted().push(ConvertedObject {
                    object: object.clone(),
                    version: kind.version.clone(),
                    converted,
                });
            }
        }
        Ok(())
    }

    /// True if objects of the request are converted to a kind by the conversion webhook.
    fn is_converted(&self, kind: &Kind) -> bool {
        kind.version != self.kind.version && kind.is_converted_by_webhook()
    }

    fn all_converted(&self) -> std::sync::MutexGuard<'_, Vec<ConvertedObject>> {
        let converted = self.converted.lock();
        converted.unwrap_or_else(PoisonError::into_inner)
    }

    /// The object in the version of a kind, if it was converted to it.
    fn known_in(&self, kind: &Kind, object: &Object) -> Option<Object> {
        if !self.is_converted(kind) {
            return None;
        }
        let all = self.all_converted();
        let mut all = all.iter();
        let known = all.find(|one| one.version == kind.version && one.object == *object);
        known.map(|known| known.converted.clone())
    }

    /// The draft with what was made of it in the version of a kind.
    async fn with_changes(
        &self,
        draft: &Draft,
        kind: &Arc<Kind>,
        changed: Value,
    ) -> Result<Draft, Status> {
        if !self.is_converted(kind) {
            return draft.with_changes(kind, changed);
        }
        let back = self.resource.value_in_version(self.kind, changed).await?;
        draft.with_changes(self.kind, back)
    }

    /// As [`Admitting::shown`], as a value; null if there is no object.
    fn shown_value(&self, kind: &Kind, object: Option<&Object>) -> Result<Value, Status> {
        match self.shown(kind, object)? {
            Some(json) => serde_json::from_slice(&json).map_err(Status::internal),
            None => Ok(Value::Null),
        }
    }

    /// The other versions and groups in which the same objects are served.
    fn equivalents(&self) -> Vec<ResourceKind> {
        let kinds = self.context.served.kinds_of(self.resource);
        let others = kinds.filter(|kind| !Arc::ptr_eq(kind, self.kind));
        let subresource = self.subresource;
        others
            .filter(|kind| subresource.is_none_or(|part| kind.has(part)))
            .map(|kind| {
                let mut other = resource_kind(kind);
                if subresource == Some(Subresource::Scale) {
                    other.kind.clone_from(&self.request.on.kind);
                    other.kind_version.clone_from(&self.request.on.kind_version);
                }
                other
            })
            .collect()
    }

    /// The kind that a webhook is asked about.
    fn kind_of(&self, about: &ResourceKind) -> Result<Arc<Kind>, Status> {
        if *about == self.request.on {
            return Ok(self.kind.clone());
        }
        let catalog = &self.context.served.catalog;
        let found = catalog.find(&about.group, &about.version, &about.resource);
        found.cloned().ok_or_else(|| {
            Status::internal(format!(
                "unable to convert to {}/{}, Resource={}: unknown kind",
                about.group, about.version, about.resource
            ))
        })
    }

    fn warn(&self, warnings: &[String]) {
        self.said().warnings.extend_from_slice(warnings);
    }

    fn note(&self, name: impl Into<Cow<'static, str>>, text: String) {
        self.said().notes.push((name.into(), text));
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        let said = self.context.said.lock();
        said.unwrap_or_else(PoisonError::into_inner)
    }
}

fn resource_kind(kind: &Kind) -> ResourceKind {
    ResourceKind::new(&kind.group, &kind.version, &kind.plural, &kind.kind)
}
