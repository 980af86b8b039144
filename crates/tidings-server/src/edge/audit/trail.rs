//! The trail of one request: gathers what its audit event says, and writes the event at each stage.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidings_access::{Attributes, User, Verdict};
use tidings_api::Status;
use tidings_audit::{
    AuditDecision, AuditEvent, AuditStatus, Level, Stage, shortened_agent, without_managed_fields,
};
use tidings_json::Value;

use super::AuditLog;

/// The trail of a request. If it is dropped before its end, the last event is written then.
#[derive(Debug)]
pub(crate) struct AuditTrail {
    log: Arc<AuditLog>,
    decision: AuditDecision,
    event: Mutex<AuditEvent>,
    /// Which stage is written if the trail is dropped.
    last: Mutex<Option<Stage>>,
}

/// A request, as far as its first event tells.
pub(crate) struct TrailHead<'a> {
    pub(crate) id: &'a str,
    pub(crate) uri: String,
    pub(crate) api_version: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The address of the client.
    pub(crate) source: Option<String>,
    /// Who asks; `None` if nobody knows.
    pub(crate) user: Option<&'a User>,
}

impl AuditTrail {
    /// Begins the trail of a request. `None` if the policy wants nothing to be written about it.
    pub(crate) fn begin(
        log: &Arc<AuditLog>,
        head: TrailHead<'_>,
        asked: &Attributes<'_>,
    ) -> Option<AuditTrail> {
        let decision = log.policy.decide(head.user, asked);
        log.count_level(decision.level);
        if decision.level == Level::None {
            return None;
        }
        let mut event = AuditEvent::new(decision.level, head.id, asked);
        event.uri = head.uri;
        event.api_version = head.api_version.to_owned();
        event.user = head.user.cloned();
        event.sources = sources(head.headers, head.source);
        let agent = head.headers.get(USER_AGENT);
        let agent = agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        event.agent = shortened_agent(&agent.unwrap_or_default());
        event.received = Timestamp::now();
        Some(AuditTrail {
            log: log.clone(),
            decision,
            event: Mutex::new(event),
            last: Mutex::new(Some(Stage::ResponseComplete)),
        })
    }

    fn event(&self) -> MutexGuard<'_, AuditEvent> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, stage: Stage) -> bool {
        if self.decision.omitted.has(stage) {
            return true;
        }
        let event = self.event().clone();
        let at = match stage {
            Stage::RequestReceived => event.received,
            _ => Timestamp::now(),
        };
        self.log.write(&event, stage, at).await
    }

    /// Writes that the request has come.
    ///
    /// # Errors
    /// If that cannot be written, and requests may not be served then.
    pub(crate) async fn received(&self) -> Result<(), Status> {
        if self.write(Stage::RequestReceived).await {
            return Ok(());
        }
        self.log.refused.fetch_add(1, Ordering::Relaxed);
        Err(Status::internal("failed to store audit event"))
    }

    /// Writes that a response has begun whose body takes long.
    pub(crate) async fn started(&self) {
        self.write(Stage::ResponseStarted).await;
    }

    /// Writes that the request is complete.
    pub(crate) async fn complete(self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.write(Stage::ResponseComplete).await;
    }

    /// Writes that nobody knows who asked.
    pub(crate) async fn unauthorized(self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.started().await;
    }

    /// Notes as whom the request is made.
    pub(crate) fn impersonated(&self, user: &User, constraint: &str) {
        let mut event = self.event();
        event.impersonated = Some(user.clone());
        constraint.clone_into(&mut event.constraint);
    }

    /// Notes what was decided about the request, and why.
    pub(crate) fn decided(&self, verdict: &Verdict) {
        let decision = if verdict.is_allowed() {
            "allow"
        } else {
            "forbid"
        };
        self.annotate("authorization.k8s.io/decision", decision);
        self.annotate("authorization.k8s.io/reason", &verdict.reason);
    }

    pub(crate) fn annotate(&self, name: &str, text: &str) {
        let mut event = self.event();
        event.annotations.insert(name.to_owned(), text.to_owned());
    }

    /// Notes the status of the response.
    pub(crate) fn status(&self, status: &Status, code: u16) {
        self.event().status = Some(AuditStatus::of(status, code));
    }

    /// Notes the code of the response, if no more is known of it.
    pub(crate) fn code(&self, code: u16) {
        let mut event = self.event();
        if event.status.is_none() {
            event.status = Some(AuditStatus::code(code));
        }
    }

    /// True if the body of the request is written.
    pub(crate) fn wants_request(&self) -> bool {
        self.decision.level >= Level::Request
    }

    /// True if the body of the response is written.
    pub(crate) fn wants_response(&self) -> bool {
        self.decision.level >= Level::RequestResponse
    }

    /// Notes the object in the body of a request: what it is named, and the body itself if it is written.
    pub(crate) fn sent_object(&self, json: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Value>(json) else {
            return;
        };
        self.event().note_object(&body);
        if self.wants_request() {
            self.sent(body);
        }
    }

    /// Notes the body of a request that is no object, if it is written.
    pub(crate) fn sent(&self, body: Value) {
        let raw = self.raw(body);
        self.event().request = raw;
    }

    /// Notes the body of the response.
    pub(crate) fn answered(&self, json: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Value>(json) else {
            return;
        };
        let raw = self.raw(body);
        self.event().response = raw;
    }

    /// The body of the response is too large to be written.
    pub(crate) fn truncate(&self) {
        self.event().truncate();
    }

    fn raw(&self, mut body: Value) -> Option<Box<RawValue>> {
        if self.decision.omit_managed_fields {
            without_managed_fields(&mut body);
        }
        RawValue::from_string(tidings_go::json_text(&body)).ok()
    }
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(mut stage) = *last else { return };
        let event = self.event.get_mut().unwrap_or_else(PoisonError::into_inner);
        if std::thread::panicking() {
            stage = Stage::Panic;
            let status = Status::internal("the server has failed");
            event.status = Some(AuditStatus::of(&status, status.code));
        }
        if event.status.is_none() {
            event.status = Some(AuditStatus::closed_early());
        }
        if !self.decision.omitted.has(stage) {
            self.log.offer(event, stage, Timestamp::now());
        }
    }
}

/// The addresses of a client: those that proxies name, and that of the connection.
fn sources(headers: &HeaderMap, connected: Option<String>) -> Vec<String> {
    let values = |name: &str| {
        let all = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let all = all.flat_map(|value| value.split(',')).map(str::trim);
        let addresses = all.filter(|address| address.parse::<std::net::IpAddr>().is_ok());
        addresses.map(ToOwned::to_owned).collect::<Vec<String>>()
    };
    let mut sources = values("x-forwarded-for");
    for more in values("x-real-ip").into_iter().take(1).chain(connected) {
        if sources.last() != Some(&more) {
            sources.push(more);
        }
    }
    sources
}
