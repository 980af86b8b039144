//! A thin client of etcd: calls with deadlines, and a choice between several members.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::proto::{IgnoredMessage, StatusResponse, WatchRequest, WatchResponse};
use super::{EtcdOpenError, EtcdOptions};
use crate::contract::Error;

/// The deadline of a call over all members.
const BUDGET: Duration = Duration::from_secs(3);
/// The deadline of a page of a list, which no client waits for.
const BUDGET_OF_PAGE: Duration = Duration::from_secs(60);
/// The deadline during an outage, so that callers learn of it soon.
const BUDGET_IN_TROUBLE: Duration = Duration::from_millis(500);
/// The time without an answer after which [`BUDGET_IN_TROUBLE`] applies.
const TROUBLE_AFTER: Duration = Duration::from_secs(2);
/// How long a connection to a member may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd closes connections that send pings more often than every five seconds, or pings without open calls.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(6);
/// How long the answer to a ping may take.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// A page of a list can be larger than gRPC's default limit of 4 MiB.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

const TOO_LARGE: Error = Error::TooLarge {
    bytes: 0,
    bytes_max: None,
};

/// Whether a failed call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// The call changes nothing, so it can be repeated.
    None,
    /// A page of a list: it changes nothing and may take longer.
    Page,
    /// The call changes something: it is repeated only if it was certainly not done.
    Write,
}

/// A client of all members of an etcd cluster.
pub(super) struct EtcdClient {
    members: Vec<EtcdMember>,
    /// The index of the member that is asked first: the one that answered last.
    current: AtomicUsize,
    trouble: Mutex<Option<EtcdOutage>>,
    /// The number of calls without an answer.
    pub(super) unanswered: AtomicU64,
}

/// A member of the cluster.
struct EtcdMember {
    name: String,
    channel: Channel,
}

/// An outage: no member has answered since.
#[derive(Debug, Clone)]
struct EtcdOutage {
    since: Instant,
    why: String,
}

/// The messages of etcd's watch, and the channel for requests to it.
pub(super) struct RawWatch {
    pub(super) requests: mpsc::Sender<WatchRequest>,
    pub(super) responses: Streaming<WatchResponse>,
}

impl EtcdClient {
    pub(super) fn new(options: &EtcdOptions) -> Result<EtcdClient, EtcdOpenError> {
        if options.endpoints.is_empty() {
            return Err(EtcdOpenError::NoEndpoints);
        }
        let members = options
            .endpoints
            .iter()
            .map(|endpoint| member(endpoint, options));
        Ok(EtcdClient {
            members: members.collect::<Result<_, _>>()?,
            // A random start, so that several servers do not all use the same member.
            current: AtomicUsize::new(fastrand::usize(..options.endpoints.len())),
            trouble: Mutex::new(None),
            unanswered: AtomicU64::new(0),
        })
    }

    fn trouble(&self) -> MutexGuard<'_, Option<EtcdOutage>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A description of the outage, if there is one.
    pub(super) fn what_is_wrong(&self) -> Option<String> {
        let trouble = self.trouble();
        let EtcdOutage { since, why } = trouble.as_ref()?;
        let seconds = since.elapsed().as_secs();
        Some(format!("etcd has not answered for {seconds} s: {why}"))
    }

    fn answered(&self) {
        *self.trouble() = None;
    }

    fn unanswered(&self, why: &str) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let mut trouble = self.trouble();
        let since = trouble
            .as_ref()
            .map_or_else(Instant::now, |before| before.since);
        *trouble = Some(EtcdOutage {
            since,
            why: why.to_owned(),
        });
    }

    fn deadline(&self) -> Instant {
        let troubled = self
            .trouble()
            .as_ref()
            .is_some_and(|trouble| trouble.since.elapsed() >= TROUBLE_AFTER);
        Instant::now() + if troubled { BUDGET_IN_TROUBLE } else { BUDGET }
    }

    /// Makes a call, to the member that answered last and then to the others.
    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        effect: CallEffect,
    ) -> Result<A, Error>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let deadline = match effect {
            CallEffect::Page => Instant::now() + BUDGET_OF_PAGE,
            CallEffect::None | CallEffect::Write => self.deadline(),
        };
        let (first, count) = (self.current.load(Ordering::Relaxed), self.members.len());
        let mut why = String::new();
        for turn in 0..count {
            let at = (first + turn) % count;
            let member = &self.members[at];
            let now = Instant::now();
            // If the call may be repeated, a silent member must leave time for the others.
            let share = match effect {
                CallEffect::None | CallEffect::Page => (deadline - now) / (count - turn) as u32,
                CallEffect::Write => deadline - now,
            };
            let attempt = member.unary(path, request.clone());
            match timeout_at(now + share, attempt).await {
                Ok(Ok(answer)) => {
                    self.current.store(at, Ordering::Relaxed);
                    self.answered();
                    return Ok(answer);
                }
                Ok(Err(status)) => {
                    if let Some(refusal) = refusal(&status) {
                        self.answered();
                        return Err(refusal);
                    }
                    why = format!("{}: {}", member.name, story(&status));
                    if effect == CallEffect::Write && !is_undone(&status) {
                        self.unanswered(&why);
                        self.current.store(at + 1, Ordering::Relaxed);
                        return Err(Error::Uncertain(why));
                    }
                }
                Err(_) => {
                    let milliseconds = share.as_millis();
                    why = format!("{}: no answer within {milliseconds} ms", member.name);
                    if effect == CallEffect::Write {
                        self.unanswered(&why);
                        self.current.store(at + 1, Ordering::Relaxed);
                        return Err(Error::Uncertain(why));
                    }
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.unanswered(&why);
        Err(Error::Unavailable(why))
    }

    /// Opens a watch at the member that answered last. Also returns the version of that member.
    pub(super) async fn watch(&self, first: WatchRequest) -> Result<(RawWatch, String), Error> {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        let member = &self.members[at];
        let opened = timeout_at(Instant::now() + BUDGET, member.watch(first)).await;
        let why = match opened {
            Ok(Ok(opened)) => {
                self.answered();
                return Ok(opened);
            }
            Ok(Err(status)) => format!("{}: {}", member.name, story(&status)),
            Err(_) => format!("{}: no answer to a watch", member.name),
        };
        self.unanswered(&why);
        self.turn_away();
        Err(Error::Unavailable(why))
    }

    /// Makes another member the first to be asked.
    pub(super) fn turn_away(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }
}

fn member(endpoint: &str, options: &EtcdOptions) -> Result<EtcdMember, EtcdOpenError> {
    let bad = |why: String| EtcdOpenError::BadEndpoint {
        endpoint: endpoint.to_owned(),
        why,
    };
    let secure = endpoint.starts_with("https://");
    if !secure && !endpoint.starts_with("http://") {
        return Err(bad(
            "write it as http://HOST:PORT or https://HOST:PORT".to_owned()
        ));
    }
    if !secure && options.tls.is_some() {
        return Err(bad(
            "certificates are for https:// endpoints; this one is http://".to_owned(),
        ));
    }
    let mut builder = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|error| bad(story(&error)))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        // Large windows, so that a page of a list does not wait for window updates.
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20);
    if secure {
        let mut tls = ClientTlsConfig::new();
        let given = options.tls.clone().unwrap_or_default();
        if let Some(authority) = given.authority {
            tls = tls.ca_certificate(Certificate::from_pem(authority));
        }
        if let Some((certificate, key)) = given.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        builder = builder
            .tls_config(tls)
            .map_err(|error| bad(story(&error)))?;
    }
    Ok(EtcdMember {
        name: endpoint.to_owned(),
        channel: builder.connect_lazy(),
    })
}

impl EtcdMember {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(unreachable)?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(with_leader(request), path, codec).await?;
        Ok(answer.into_inner())
    }

    async fn watch(&self, first: WatchRequest) -> Result<(RawWatch, String), Status> {
        let status: StatusResponse = self
            .unary("/etcdserverpb.Maintenance/Status", IgnoredMessage {})
            .await?;
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(unreachable)?;
        let (requests, receiver) = mpsc::channel(8);
        // The new channel has space.
        let _ = requests.try_send(first);
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let answer = grpc
            .streaming(with_leader(RequestStream(receiver)), path, codec)
            .await?;
        let watch = RawWatch {
            requests,
            responses: answer.into_inner(),
        };
        Ok((watch, status.version))
    }
}

fn unreachable(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(error))
}

/// Asks etcd to refuse the request at once if the member has no leader, instead of waiting for one.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// The error of a call that etcd has understood and refused: another member would give the same answer.
fn refusal(status: &Status) -> Option<Error> {
    let says = |words: &str| status.message().contains(words);
    match status.code() {
        Code::OutOfRange if says("compacted") => Some(Error::Compacted {
            requested: Default::default(),
            oldest: Default::default(),
        }),
        Code::OutOfRange if says("future revision") => Some(Error::Future {
            requested: Default::default(),
            current: Default::default(),
        }),
        // The caller fills in the size.
        Code::InvalidArgument if says("request is too large") => Some(TOO_LARGE),
        Code::ResourceExhausted if says("larger than max") => Some(TOO_LARGE),
        Code::ResourceExhausted if says("space exceeded") => Some(Error::Failed(
            "etcd has reached its space quota and takes no writes: compact and defragment it, then disarm its NOSPACE alarm"
                .to_owned(),
        )),
        Code::ResourceExhausted => Some(Error::Overloaded),
        Code::Unauthenticated | Code::PermissionDenied => {
            Some(Error::Failed(format!("etcd refuses: {}", status.message())))
        }
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::OutOfRange => {
            Some(Error::Failed(status.message().to_owned()))
        }
        _ => None,
    }
}

/// True if the call has certainly done nothing.
fn is_undone(status: &Status) -> bool {
    // A member without a leader refuses before it changes anything.
    status.message().contains("no leader") || was_not_sent(status)
}

fn was_not_sent(status: &Status) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error with its causes, in one line.
fn story(error: &(dyn std::error::Error + 'static)) -> String {
    let mut story = match (error as &dyn std::error::Error).downcast_ref::<Status>() {
        Some(status) if !status.message().is_empty() => status.message().to_owned(),
        _ => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !story.contains(&text) {
            story.push_str(": ");
            story.push_str(&text);
        }
        cause = error.source();
    }
    story
}

/// The requests of a watch, from a channel.
struct RequestStream(mpsc::Receiver<WatchRequest>);

impl Stream for RequestStream {
    type Item = WatchRequest;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<WatchRequest>> {
        self.0.poll_recv(context)
    }
}
