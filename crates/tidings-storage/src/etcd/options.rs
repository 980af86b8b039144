//! How etcd is reached, and why it cannot be.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::contract::Error;

/// How to reach etcd, and how history is kept there.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// What all keys begin with, as `/registry`.
    pub prefix: String,
    /// For endpoints with `https`.
    pub tls: Option<EtcdTls>,
    /// Changes younger than this can be read and watched from.
    pub history_age: Duration,
    /// However old they are, this many last revisions can be.
    pub history_revisions_min: u64,
    /// Keys that begin with this live for so long after their last write.
    pub lifetimes: Vec<(Bytes, Duration)>,
    /// A key and its value may be this large together. etcd's own bound, `--max-request-bytes`, is for whole requests: it must be
    /// some kilobytes larger.
    pub value_bytes_max: usize,
    /// A clock that nobody sets, counted from any moment; tests pass their own.
    pub now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Whatever the clock says, time goes on by no more than this from one look at it to the next.
    pub clock_step_max: Duration,
}

/// Certificates, in PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// Who signs for the members. Unset, nobody is trusted.
    pub authority: Option<Vec<u8>>,
    /// The certificate and key that this client shows.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EtcdTls")
    }
}

impl EtcdOptions {
    /// For these members.
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
            // The compactor looks about once a minute.
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
pub enum OpenError {
    /// None was given.
    #[error("no endpoint of etcd is given")]
    NoEndpoints,
    /// One makes no sense.
    #[error("{endpoint} is no endpoint of etcd: {why}")]
    BadEndpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// The prefix makes no sense.
    #[error("the prefix {0:?} must begin with / and not end with it, as /registry")]
    BadPrefix(String),
    /// Nobody answers.
    #[error("etcd does not answer")]
    Unreachable(#[source] Error),
    /// The prefix is a Kubernetes cluster's.
    #[error(
        "{key} was written by kube-apiserver in its binary form, which is not read here: choose another prefix for a store \
         of its own"
    )]
    Foreign {
        /// A key of theirs.
        key: String,
    },
}
