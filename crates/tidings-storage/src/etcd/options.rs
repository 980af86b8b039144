//! Options of a store in etcd, and the errors when it is opened.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::contract::Error;

/// The connection to etcd, and how much history is kept there.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, such as `/registry`.
    pub prefix: String,
    /// Certificates for endpoints with `https`.
    pub tls: Option<EtcdTls>,
    /// The minimum age of history: younger revisions can be read and watched from.
    pub history_age: Duration,
    /// The minimum number of revisions of history, of any age.
    pub history_revisions_min: u64,
    /// Key prefixes with lifetimes: a key is deleted when this time has passed since its last write.
    pub lifetimes: Vec<(Bytes, Duration)>,
    /// The maximum size of a key and its value together. etcd's own limit, `--max-request-bytes`, applies to whole requests and
    /// must be some kilobytes larger.
    pub value_bytes_max: usize,
    /// A monotonic clock that counts from any moment; tests pass their own.
    pub now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The maximum step of the running time between two readings of the clock.
    pub clock_step_max: Duration,
}

/// Certificates, in PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// The certificate authority of the members. Without it no member is trusted.
    pub authority: Option<Vec<u8>>,
    /// The certificate and key of this client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EtcdTls")
    }
}

impl EtcdOptions {
    /// Default options for these members.
    pub fn new(endpoints: impl IntoIterator<Item = String>) -> EtcdOptions {
        EtcdOptions {
            endpoints: endpoints.into_iter().collect(),
            prefix: "/registry".to_owned(),
            tls: None,
            history_age: Duration::from_secs(600),
            history_revisions_min: 1000,
            lifetimes: Vec::new(),
            value_bytes_max: crate::VALUE_BYTES_MAX,
            now: Arc::new(crate::monotonic_clock),
            // The compactor reads the clock about once a minute.
            clock_step_max: Duration::from_secs(120),
        }
    }
}

impl std::fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdOpenError {
    /// No endpoint was given.
    #[error("no endpoint of etcd is given")]
    NoEndpoints,
    /// An endpoint is invalid.
    #[error("{endpoint} is no endpoint of etcd: {why}")]
    BadEndpoint {
        /// The endpoint.
        endpoint: String,
        /// Why it is invalid.
        why: String,
    },
    /// The prefix is invalid.
    #[error("the prefix {0:?} must begin with / and not end with it, as /registry")]
    BadPrefix(String),
    /// etcd does not answer.
    #[error("etcd does not answer")]
    Unreachable(#[source] Error),
    /// kube-apiserver uses the prefix.
    #[error(
        "{key} was written by kube-apiserver in its binary form, which is not read here: choose another prefix for a store \
         of its own"
    )]
    Foreign {
        /// A key that kube-apiserver wrote.
        key: String,
    },
}
