//! A plugin of a key management service: asked over a socket for its state, to encrypt a seed, and to decrypt the seeds of others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use crate::cipher::random;
use crate::config::KmsConfig;
use crate::envelope::{self, EnvelopeKey, SEED_BYTES};
use crate::mark::mark;
use crate::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, SOURCE_SEED,
    StatusRequest, StatusResponse,
};

/// How often the state of a plugin is asked for.
const PROBE_EVERY: Duration = Duration::from_secs(60);
/// How often while something is wrong with it.
const PROBE_IN_TROUBLE: Duration = Duration::from_secs(10);
/// How long a seed is used after the plugin last said that its key is the current one. As in kube-apiserver.
const SEED_LIFE: Duration = Duration::from_secs(180);
/// How many decrypted seeds are kept. There is one for each start of a server and each key of the service.
const SEEDS_MAX: usize = 10_000;

/// A plugin of a key management service.
pub(crate) struct KmsProvider {
    name: String,
    socket: String,
    mark: Vec<u8>,
    channel: Channel,
    timeout: Duration,
    /// The seed that encrypts.
    seed: RwLock<Option<Arc<CurrentSeed>>>,
    /// Decrypted seeds, by the digest of their encrypted form.
    known: Mutex<HashMap<[u8; 32], Arc<EnvelopeKey>>>,
    /// Why the last probe failed.
    trouble: Mutex<Option<String>>,
}

/// A seed, and the form in which it stands with values.
struct CurrentSeed {
    seed: [u8; SEED_BYTES],
    /// Without data.
    stored: EncryptedObject,
    until: Mutex<Instant>,
}

impl fmt::Debug for KmsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KmsProvider({})", self.name)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KmsProvider {
    /// A plugin, which is not asked anything yet. Must be called within a tokio runtime.
    pub(crate) fn new(config: &KmsConfig) -> Result<KmsProvider, String> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", config.socket));
        let endpoint = endpoint.map_err(|error| format!("its endpoint cannot be used: {error}"))?;
        Ok(KmsProvider {
            name: config.name.clone(),
            socket: config.socket.clone(),
            mark: mark("kms", "v2", &config.name),
            channel: endpoint.connect_timeout(config.timeout).connect_lazy(),
            timeout: config.timeout,
            seed: RwLock::default(),
            known: Mutex::default(),
            trouble: Mutex::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Why the plugin cannot be used; `None` if it can.
    pub(crate) fn trouble(&self) -> Option<String> {
        locked(&self.trouble).clone()
    }

    fn current(&self) -> Option<Arc<CurrentSeed>> {
        let seed = self.seed.read();
        seed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the plugin for its state until the task is aborted, and makes a new seed when the service has a new key.
    pub(crate) async fn follow(&self) {
        loop {
            let is_well = locked(&self.trouble).is_none();
            let pause = if is_well {
                PROBE_EVERY
            } else {
                PROBE_IN_TROUBLE
            };
            tokio::time::sleep(pause).await;
            match self.probe().await {
                Ok(()) if !is_well => {
                    tracing::info!(provider = self.name, "the KMS plugin can be used again");
                }
                Err(error) if is_well => {
                    tracing::error!(provider = self.name, %error, "the KMS plugin cannot be used");
                }
                _ => {}
            }
        }
    }

    /// Asks the plugin for its state once.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let probed = self.try_probe().await;
        *locked(&self.trouble) = probed.as_ref().err().cloned();
        probed
    }

    async fn try_probe(&self) -> Result<(), String> {
        let status: StatusResponse = self.call("Status", StatusRequest {}).await?;
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            return Err(self.says(&format!("its version is {:?}, expected v2", status.version)));
        }
        if status.health != "ok" {
            return Err(self.says(&format!("it says that it is not well: {}", status.health)));
        }
        let until = Instant::now() + SEED_LIFE;
        if let Some(current) = self.current()
            && current.stored.key_id == status.key_id
        {
            *locked(&current.until) = until;
            return Ok(());
        }
        let seed = random()?;
        let request = EncryptRequest {
            plaintext: seed.to_vec(),
            uid: Uuid::new_v4().to_string(),
        };
        let answer: EncryptResponse = self.call("Encrypt", request).await?;
        let stored = EncryptedObject {
            data: Vec::new(),
            key_id: answer.key_id,
            source: answer.ciphertext,
            annotations: answer.annotations,
            source_type: SOURCE_SEED,
        };
        envelope::check(&stored).map_err(|why| self.says(&why))?;
        if stored.source.windows(SEED_BYTES).any(|part| part == seed) {
            return Err(self.says("it answers the seed as it is instead of encrypting it"));
        }
        self.remember(envelope::digest(&stored), Arc::new(EnvelopeKey::Seed(seed)));
        tracing::info!(
            provider = self.name,
            "values are encrypted with a new seed of the KMS plugin"
        );
        let current = Arc::new(CurrentSeed {
            seed,
            stored,
            until: Mutex::new(until),
        });
        *self.seed.write().unwrap_or_else(PoisonError::into_inner) = Some(current);
        Ok(())
    }

    fn says(&self, why: &str) -> String {
        format!("the KMS plugin {} at {}: {why}", self.name, self.socket)
    }

    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, String>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let path = format!("/v2.KeyManagementService/{method}");
        let path = PathAndQuery::from_maybe_shared(path).map_err(|error| error.to_string())?;
        let mut grpc = Grpc::new(self.channel.clone());
        let answered = async {
            grpc.ready().await.map_err(|error| told(&error))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(Request::new(request), path, codec).await;
            answer.map_err(|status| format!("{method}: {}", status.message()))
        };
        match timeout(self.timeout, answered).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(why)) => Err(self.says(&why)),
            Err(_) => Err(self.says(&format!(
                "{method}: no answer within {} s",
                self.timeout.as_secs_f64()
            ))),
        }
    }

    /// Encrypts a value, in the form in which it is stored.
    pub(crate) fn seal(&self, clear: &[u8], bound_to: &[u8]) -> Result<Vec<u8>, String> {
        let current = self.current();
        let current = current.ok_or_else(|| self.says("it has not encrypted a seed yet"))?;
        if Instant::now() > *locked(&current.until) {
            let why = "it has not said for 3 minutes that its key is the current one";
            return Err(self.says(why));
        }
        let mut stored = current.stored.clone();
        stored.data = envelope::seal(&current.seed, clear, bound_to)?;
        let mut out = self.mark.clone();
        out.reserve_exact(stored.encoded_len());
        stored.encode_raw(&mut out);
        Ok(out)
    }

    /// Reads the form in which a value is stored.
    pub(crate) fn read(&self, rest: &[u8]) -> Result<EncryptedObject, String> {
        let stored = EncryptedObject::decode(rest).map_err(|error| error.to_string())?;
        envelope::check(&stored)?;
        Ok(stored)
    }

    /// The key of a value, if the plugin has decrypted it before.
    pub(crate) fn known_key(&self, stored: &EncryptedObject) -> Option<Arc<EnvelopeKey>> {
        locked(&self.known).get(&envelope::digest(stored)).cloned()
    }

    /// Lets the plugin decrypt the key of a value.
    pub(crate) async fn fetch_key(
        &self,
        stored: &EncryptedObject,
    ) -> Result<Arc<EnvelopeKey>, String> {
        let request = DecryptRequest {
            ciphertext: stored.source.clone(),
            uid: Uuid::new_v4().to_string(),
            key_id: stored.key_id.clone(),
            annotations: stored.annotations.clone(),
        };
        let answer: DecryptResponse = self.call("Decrypt", request).await?;
        let key = EnvelopeKey::new(stored.source_type, &answer.plaintext);
        let key = Arc::new(key.ok_or_else(|| self.says("what it has decrypted is no key"))?);
        self.remember(envelope::digest(stored), key.clone());
        Ok(key)
    }

    fn remember(&self, digest: [u8; 32], key: Arc<EnvelopeKey>) {
        let mut known = locked(&self.known);
        if known.len() >= SEEDS_MAX {
            known.clear();
        }
        known.insert(digest, key);
    }

    /// True if a value was encrypted with the key that the service uses now.
    pub(crate) fn is_current(&self, stored: &EncryptedObject) -> bool {
        let current = self.current();
        current.is_some_and(|current| {
            current.stored.key_id == stored.key_id && stored.source_type == SOURCE_SEED
        })
    }
}

/// What an error and the errors behind it say.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
