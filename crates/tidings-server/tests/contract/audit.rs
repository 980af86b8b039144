//! The audit log: the events of many requests, as kube-apiserver writes them. `tools/audit/record` asked it.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tidings_server::{
    ApiOptions, AuditDelivery, AuditFileOptions, AuditLog, AuditMode, AuditPolicy, Authentication,
    AuthorizationMode, ConfigFile, Credentials,
};

use crate::access::Question;
use crate::support::TestServer;

const RECORDED: &str = include_str!("audit.json");

#[derive(Deserialize)]
struct Recorded {
    tokens: String,
    policy: String,
    setup: Vec<Question>,
    questions: Vec<Question>,
}

fn log(policy: &str, path: &std::path::Path, mode: AuditMode) -> Arc<AuditLog> {
    let file = ConfigFile::new("policy.yaml", policy.as_bytes()).unwrap();
    let log = AuditLog::new(AuditPolicy::read(&file).unwrap());
    let log = log.to_file(AuditFileOptions::new(path), &AuditDelivery::new(mode));
    Arc::new(log.unwrap())
}

async fn server(tokens: &str, audit: Arc<AuditLog>) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, tokens).unwrap();
    let mut options = ApiOptions::default();
    let credentials = Credentials::default().token_file(&path).unwrap();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::Rbac];
    options.audit = Some(audit);
    TestServer::with(options).await
}

fn events(path: &std::path::Path) -> HashMap<String, Vec<Value>> {
    let mut events: HashMap<String, Vec<Value>> = HashMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let id = event["auditID"].as_str().unwrap().to_owned();
        events.entry(id).or_default().push(event);
    }
    events
}

/// What differs from run to run.
const VARIES: [&str; 9] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "requestReceivedTimestamp",
    "stageTimestamp",
    "sourceIPs",
    "authentication.kubernetes.io/issued-credential-id",
    // Generated texts.
    "description",
    "cells",
];

/// An event without what differs from run to run. Members that are there stay there.
fn settled(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let varies = VARIES.contains(&&**name) && !value.is_object();
                let value = if varies {
                    Value::from("…")
                } else {
                    settled(value)
                };
                (name.clone(), value)
            };
            members
                .iter()
                .filter(|(name, _)| *name != "sourceIPs")
                .map(member)
                .collect()
        }
        Value::Array(values) => values.iter().map(settled).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn events_are_those_of_kube_apiserver() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let server = server(
        &recorded.tokens,
        log(&recorded.policy, &path, AuditMode::Blocking),
    )
    .await;
    for question in recorded.setup.iter().chain(&recorded.questions) {
        server.ask(question).await;
    }
    drop(server);
    let written = events(&path);
    let mut wrong = Vec::new();
    for (number, question) in recorded.questions.iter().enumerate() {
        let events = written.get(&format!("q{number}"));
        let is = settled(&events.cloned().unwrap_or_default().into());
        let should = settled(&question.answer);
        if is != should {
            wrong.push(format!(
                "{} {}\n  is     {is}\n  should {should}",
                question.method, question.path
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
