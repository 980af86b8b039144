//! Conversion of custom resources between the versions of their definition, by its webhook.
//!
//! Objects are stored in the storage version. What a request of another version reads is converted for it ([`Conversion::convert`]); what it writes is
//! converted before it is stored. Lists and watches of a version share a cache of converted objects ([`Conversion::cache`]), which is made for the first
//! of them: the webhook is asked once for an object, not once for a watch. Objects that have the version already are not sent to the webhook.

mod counts;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidings_admission::{ConversionFailure, ConversionReview, WebhookConversion};
use tidings_api::{EventType, Object, Reason, ServedObject, Status};
use tidings_cache::{Cache, ConvertError, ConvertedCache, Converter};
use tidings_json::Value;
use tidings_registry::{Kind, Name};
use tokio::sync::Notify;
use uuid::Uuid;

use counts::ConversionCall;
pub(crate) use counts::ConversionCounts;

use super::long_work::do_long_work;
use super::webhook_clients::{WebhookClients, not_answered};

/// How long an answer may take, as upstream.
const TIMEOUT_SECONDS: u32 = 30;
/// How many indexes the cache of a version may have.
const INDEXES_MAX: usize = 8;

/// What the conversions of all definitions share.
#[derive(Clone)]
pub(crate) struct ConversionContext {
    pub(super) clients: Arc<WebhookClients>,
    pub(super) counts: Arc<ConversionCounts>,
    /// How many bytes of objects the event log of a cache may hold.
    pub(super) log_bytes_max: usize,
    /// Notified of every change of every cache.
    pub(super) changed: Arc<Notify>,
}

impl fmt::Debug for ConversionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversionContext").finish_non_exhaustive()
    }
}

/// The conversion of the objects of one definition.
pub(crate) struct Conversion {
    /// The name of the definition.
    definition: String,
    webhook: Result<WebhookConversion, String>,
    /// The versions of the definition, with the group.
    versions: Vec<String>,
    spec_hash: u64,
    context: ConversionContext,
    caches: Mutex<HashMap<Name, Arc<ConvertedCache>>>,
}

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conversion({})", self.definition)
    }
}

/// A failed conversion, for those who wait for a cache.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotConverted(String);

/// The answer to a request whose object cannot be converted, as upstream: 500 without a reason.
pub(super) fn not_converted(error: &impl fmt::Display) -> Status {
    let mut status = Status::failure(500, Reason::InternalError, error.to_string());
    status.reason = None;
    status
}

impl Conversion {
    /// The conversion of the objects of a kind; `None` if no webhook converts them.
    pub(super) fn of(kind: &Kind, context: &ConversionContext) -> Option<Conversion> {
        let custom = kind.custom.as_ref()?;
        let definition = &custom.definition;
        let webhook = WebhookConversion::read(definition.webhook.as_ref()?);
        let versions = definition.versions.iter();
        let versions = versions.map(|version| format!("{}/{}", definition.group, version.name));
        Some(Conversion {
            definition: format!("{}.{}", kind.plural, kind.group),
            webhook: webhook.map_err(|why| why.to_string()),
            versions: versions.collect(),
            spec_hash: custom.spec_hash,
            context: context.clone(),
            caches: Mutex::default(),
        })
    }

    /// True if the kind comes from the definition that this was made for, unchanged.
    pub(super) fn is_of(&self, kind: &Kind) -> bool {
        let custom = kind.custom.as_ref();
        custom.is_some_and(|custom| custom.spec_hash == self.spec_hash)
    }

    /// The cache of the objects of another cache in the version of a kind.
    pub(super) fn cache(
        self: &Arc<Self>,
        kind: &Arc<Kind>,
        stored: &Arc<Cache>,
    ) -> Arc<ConvertedCache> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            // The cache stands in this, so its task must not hold it.
            let (conversion, kind) = (Arc::downgrade(self), kind.clone());
            let convert: Converter = Arc::new(move |objects| {
                let (conversion, kind) = (conversion.clone(), kind.clone());
                Box::pin(async move {
                    let conversion = conversion.upgrade().ok_or_else(|| {
                        Arc::new(NotConverted("the definition has changed".into())) as ConvertError
                    })?;
                    let converted = conversion.converted(objects, &kind).await;
                    converted.map_err(|why| Arc::new(NotConverted(why)) as ConvertError)
                })
            });
            let ConversionContext {
                log_bytes_max,
                changed,
                ..
            } = self.context.clone();
            let cache =
                ConvertedCache::open(stored.clone(), convert, log_bytes_max, INDEXES_MAX, changed);
            Arc::new(cache)
        };
        let known = caches.entry(kind.version.clone());
        known.or_insert_with(open).clone()
    }

    /// The cache of the version of a kind, if it is open.
    pub(super) fn open_cache(&self, kind: &Kind) -> Option<Arc<ConvertedCache>> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.get(&kind.version).cloned()
    }

    /// The caches that are open.
    pub(super) fn caches(&self) -> Vec<(Name, Arc<ConvertedCache>)> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let caches = caches.iter();
        caches
            .map(|(version, cache)| (version.clone(), cache.clone()))
            .collect()
    }

    /// Ends the caches, because the definition has changed.
    pub(super) fn close(&self) {
        for (_, cache) in self.caches() {
            cache.close();
        }
    }

    /// Objects in the version of a kind. Those that have it are not sent to the webhook.
    pub(super) async fn convert(
        &self,
        objects: Vec<Object>,
        kind: &Kind,
    ) -> Result<Vec<Object>, Status> {
        let converted = self.converted(objects, kind).await;
        converted.map_err(|why| not_converted(&why))
    }

    async fn converted(
        &self,
        mut objects: Vec<Object>,
        kind: &Kind,
    ) -> Result<Vec<Object>, String> {
        let others: Vec<usize> = (0..objects.len())
            .filter(|at| !kind.shows_as_stored(&objects[*at]))
            .collect();
        let values = others.iter().map(|at| {
            let value = serde_json::from_slice(objects[*at].as_bytes());
            value.map_err(|error| error.to_string())
        });
        let values = values.collect::<Result<Vec<Value>, String>>()?;
        let converted = self.ask(values, kind).await?;
        let is_long = kind
            .custom
            .as_ref()
            .is_some_and(|custom| !custom.is_compiled());
        let put = || {
            for (at, value) in std::iter::zip(others, converted) {
                let revision = objects[at].revision();
                let json = kind.shown_converted(value);
                objects[at] = Object::stamped(&json, revision, EventType::Modified)
                    .map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        };
        match is_long {
            true => do_long_work(put)?,
            false => put()?,
        }
        Ok(objects)
    }

    /// What the webhook makes of objects that do not have the version of a kind.
    pub(super) async fn ask(&self, objects: Vec<Value>, kind: &Kind) -> Result<Vec<Value>, String> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        let from = first["apiVersion"].as_str().unwrap_or_default();
        for object in &objects {
            let from = object["apiVersion"].as_str().unwrap_or_default();
            if !self.versions.iter().any(|known| known == from) {
                return Err(format!(
                    "request to convert CR from an invalid group/version: {from}"
                ));
            }
        }
        let desired = kind.group_version().to_string();
        let webhook = self.webhook.as_ref().map_err(Clone::clone)?;
        let Some(version) = webhook.version else {
            return Err("no supported conversion review versions".to_owned());
        };
        let uid = Uuid::new_v4().to_string();
        let review = ConversionReview {
            uid: &uid,
            version,
            desired: &desired,
            objects: &objects,
        };
        let began = Instant::now();
        let answer = self.answer(webhook, &review).await;
        let call = ConversionCall {
            definition: &self.definition,
            from_version: from.rsplit('/').next().unwrap_or_default(),
            to_version: &kind.version,
            failure: answer
                .as_ref()
                .err()
                .map(|failure| failure.problem.as_str()),
        };
        self.context.counts.called(&call, began.elapsed());
        answer.map_err(|failure| {
            // The reason may quote what the webhook has sent, so only the client is told.
            let (definition, problem) = (&self.definition, failure.problem.as_str());
            tracing::warn!(
                definition,
                problem,
                version = desired,
                "a conversion webhook failed"
            );
            failure.to_string()
        })
    }

    async fn answer(
        &self,
        webhook: &WebhookConversion,
        review: &ConversionReview<'_>,
    ) -> Result<Vec<Value>, ConversionFailure> {
        let failed = |why: &str| review.not_answered(why);
        let client = self
            .context
            .clients
            .client(&webhook.client, TIMEOUT_SECONDS);
        let client = client.map_err(|why| failed(&why))?;
        let deadline = Duration::from_secs(TIMEOUT_SECONDS.into());
        let answered = client.post(Bytes::from(review.to_json()), deadline).await;
        let answered = answered.map_err(|error| {
            let definition = &self.definition;
            tracing::warn!(definition, %error, "a conversion webhook has not answered");
            failed(&error.in_go())
        })?;
        match not_answered(&answered) {
            Some(why) => Err(failed(&why)),
            None => review.read(&answered.body),
        }
    }
}
