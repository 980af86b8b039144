//! A Kubernetes Lease as the lock of a leader election.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidings_informer::leader::{LeaseLock, LeaseRecord, LeaseVersion, LockError};
use tidings_informer::{BoxFuture, SourceError};

use crate::client::RestClient;

/// A `coordination.k8s.io/v1` Lease for leader election. An update changes only the leader election record: labels, owners and what
/// else the Lease has stay as they are.
#[derive(Debug, Clone)]
pub struct KubeLeaseLock {
    client: RestClient,
    namespace: String,
    name: String,
    identity: String,
    /// The Lease as it was last read or written.
    known: Arc<Mutex<Option<LeaseObject>>>,
}

/// The largest answer that is read; a Lease is much smaller.
const BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseObject {
    api_version: String,
    kind: String,
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: LeaseSpec,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The leader election record, and what else is in the spec of a Lease.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    #[serde(with = "micro_time")]
    acquire_time: Option<SystemTime>,
    #[serde(with = "micro_time")]
    renew_time: Option<SystemTime>,
    lease_transitions: Option<u32>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl LeaseSpec {
    fn set(&mut self, record: LeaseRecord) {
        self.holder_identity = Some(record.holder);
        self.lease_duration_seconds = Some(record.lease_duration_seconds);
        self.acquire_time = Some(record.acquire_time);
        self.renew_time = Some(record.renew_time);
        self.lease_transitions = Some(record.transitions);
    }

    fn record(self) -> LeaseRecord {
        LeaseRecord {
            holder: self.holder_identity.unwrap_or_default(),
            lease_duration_seconds: self.lease_duration_seconds.unwrap_or_default(),
            acquire_time: self.acquire_time.unwrap_or(SystemTime::UNIX_EPOCH),
            renew_time: self.renew_time.unwrap_or(SystemTime::UNIX_EPOCH),
            transitions: self.lease_transitions.unwrap_or_default(),
        }
    }
}

/// Times in the format of a Lease (`MicroTime`): with six digits of a second.
mod micro_time {
    use std::time::SystemTime;

    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option)] // serde requires this signature
    pub(super) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let time = time.and_then(|time| Timestamp::try_from(time).ok());
        match time {
            Some(time) => serializer.collect_str(&format_args!("{time:.6}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        let time = text.map(|text| text.parse::<Timestamp>()).transpose();
        Ok(time
            .map_err(serde::de::Error::custom)?
            .map(SystemTime::from))
    }
}

impl KubeLeaseLock {
    /// A lock on the Lease with this namespace and name. `identity` must be unique among the candidates: the name of the Pod, for
    /// example.
    pub fn new(
        client: &RestClient,
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> KubeLeaseLock {
        KubeLeaseLock {
            // The election has its own deadlines: no retries, and a short timeout here.
            client: client.clone().retries(0).timeout(Duration::from_secs(10)),
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            known: Arc::default(),
        }
    }

    fn collection(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.namespace
        )
    }

    /// Sends a request, and keeps the Lease that is the answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&LeaseObject>,
    ) -> Result<LeaseObject, SourceError> {
        let body = match body {
            Some(lease) => serde_json::to_vec(lease).map_err(SourceError::transport)?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(SourceError::transport)?;
        let answer = self.client.request(request).await?.into_body();
        let answer = Limited::new(answer, BYTES_MAX).collect().await;
        let answer = answer.map_err(SourceError::transport)?.to_bytes();
        let lease: LeaseObject = serde_json::from_slice(&answer)
            .map_err(|_| SourceError::Unexpected("something that is not a Lease".into()))?;
        *self.known() = Some(lease.clone());
        Ok(lease)
    }

    fn known(&self) -> MutexGuard<'_, Option<LeaseObject>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// The Lease at a version, read again only if another version is known.
    async fn at(&self, wanted: &str) -> Result<LeaseObject, LockError> {
        let known = self.known().clone();
        let known = known.filter(|lease| version(lease) == wanted);
        let lease = match known {
            Some(lease) => lease,
            None => self.ask(Method::GET, &self.path(), None).await?,
        };
        if version(&lease) != wanted {
            return Err(LockError::Conflict);
        }
        Ok(lease)
    }

    fn new_lease(&self) -> LeaseObject {
        let mut metadata = Map::new();
        metadata.insert("name".into(), self.name.clone().into());
        metadata.insert("namespace".into(), self.namespace.clone().into());
        LeaseObject {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            metadata,
            spec: LeaseSpec::default(),
            other: Map::new(),
        }
    }
}

fn version(lease: &LeaseObject) -> LeaseVersion {
    let version = lease.metadata.get("resourceVersion");
    version
        .and_then(|version| version.as_str())
        .unwrap_or_default()
        .to_owned()
}

impl LeaseLock for KubeLeaseLock {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn get(&self) -> BoxFuture<'_, Result<Option<(LeaseRecord, LeaseVersion)>, LockError>> {
        Box::pin(async move {
            let lease = match self.ask(Method::GET, &self.path(), None).await {
                Ok(lease) => lease,
                Err(error) if error.code() == Some(404) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let version = version(&lease);
            Ok(Some((lease.spec.record(), version)))
        })
    }

    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<LeaseVersion, LockError>> {
        Box::pin(async move {
            let mut lease = self.new_lease();
            lease.spec.set(record);
            let written = self
                .ask(Method::POST, &self.collection(), Some(&lease))
                .await?;
            Ok(version(&written))
        })
    }

    fn update(
        &self,
        record: LeaseRecord,
        at: LeaseVersion,
    ) -> BoxFuture<'_, Result<LeaseVersion, LockError>> {
        Box::pin(async move {
            let mut lease = self.at(&at).await?;
            lease.spec.set(record);
            let written = self.ask(Method::PUT, &self.path(), Some(&lease)).await?;
            Ok(version(&written))
        })
    }
}
