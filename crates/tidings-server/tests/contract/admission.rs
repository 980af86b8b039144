//! Admission by webhooks: what they are asked, and what becomes of their answers, as in kube-apiserver. `tools/admission/record` asked it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::access::{Question, server};
use crate::support::TestResponse;

const RECORDED: &str = include_str!("admission.json");

#[derive(Deserialize)]
struct Recorded {
    tokens: String,
    webhooks: HashMap<String, Value>,
    setup: Vec<Question>,
    groups: Vec<Group>,
    refused: Vec<Question>,
}

/// Questions while some webhooks are configured.
#[derive(Deserialize)]
struct Group {
    title: String,
    configurations: Vec<Value>,
    questions: Vec<Value>,
}

/// A server of webhooks whose answers are data.
pub(crate) struct Webhooks {
    pub(crate) url: String,
    /// Its certificate in PEM, in base64, as configurations have it.
    pub(crate) authority: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

/// What a server of webhooks answers to a review at a path; `None` if it hangs up.
pub(crate) type AnswerFn = Arc<dyn Fn(&str, &Value) -> Option<String> + Send + Sync>;

impl Webhooks {
    pub(crate) async fn start(answers: HashMap<String, Value>) -> Webhooks {
        Webhooks::answering(Arc::new(move |path, review| {
            Some(answer(&answers[path], review))
        }))
        .await
    }

    pub(crate) async fn answering(answer: AnswerFn) -> Webhooks {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (acceptor, authority) = tls();
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let noted = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted, answer) = (acceptor.clone(), noted.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await.map(BufReader::new) else {
                        return;
                    };
                    while let Some((path, body)) = request(&mut stream).await {
                        let review: Value = serde_json::from_slice(&body).unwrap();
                        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
                        let called = json!({"path": path, "query": query, "review": review});
                        noted.lock().unwrap().push(called);
                        let Some(answer) = answer(path, &review) else {
                            return;
                        };
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Webhooks {
            url,
            authority,
            asked,
        }
    }

    /// What was asked since the last call.
    pub(crate) fn taken(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// A certificate of its own for loopback, and what believes it.
fn tls() -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let authority = STANDARD.encode(certificate.pem());
    let chain: Vec<CertificateDer<'static>> = vec![certificate.into()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), authority)
}

/// The path and the body of a request; `None` at the end of the connection.
async fn request<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? <= 2 {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((path, body))
}

fn answer(meant: &Value, review: &Value) -> String {
    let review = |mut answered: Value| {
        let version = meant["apiVersion"]
            .as_str()
            .unwrap_or("admission.k8s.io/v1");
        answered["kind"] = "AdmissionReview".into();
        answered["apiVersion"] = version.into();
        if let Some(response) = answered.get_mut("response")
            && response.get("uid").is_none()
        {
            response["uid"] = review["request"]["uid"].clone();
        }
        answered.to_string()
    };
    let body = match (&meant["raw"], &meant["review"]) {
        (Value::String(raw), _) => raw.clone(),
        (_, Value::Object(_)) => review(json!({})),
        _ => review(json!({"response": meant["response"]})),
    };
    response(meant["code"].as_u64().unwrap_or(200), &body)
}

/// A response of HTTP with JSON.
pub(crate) fn response(code: u64, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Where answers differ on purpose, or for other reasons than admission: docs/compatibility.md says which.
const ONLY_QUESTIONS: [&str; 2] = [
    "another version of the same",
    "another version that is not the same",
];
const ONLY_ANSWERS: [&str; 1] = ["custom resources are checked after they were changed"];

/// Leaves out all managedFields.
fn drop_owners(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("managedFields");
            members.values_mut().for_each(drop_owners);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_owners),
        _ => {}
    }
}

/// What differs from run to run.
const VARIES: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "continue",
];

/// A document without what differs from run to run. Members that are there stay there.
pub(crate) fn settled(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let varies = VARIES.contains(&&**name) && value.is_string() && value != "0";
                let value = if varies { "…".into() } else { settled(value) };
                (name.clone(), value)
            };
            members.iter().map(member).collect()
        }
        Value::Array(values) => values.iter().map(settled).collect(),
        Value::String(text) => {
            if let Some(at) = text.find("response.uid=\"") {
                return format!("{}…", &text[..at]).into();
            }
            // A generated name has five characters after its prefix.
            match text.find("gen-").filter(|at| text.len() >= at + 9) {
                Some(at) => format!("{}gen-…{}", &text[..at], &text[at + 9..]).into(),
                None => value.clone(),
            }
        }
        other => other.clone(),
    }
}

struct Placeholders<'a> {
    webhooks: &'a Webhooks,
    other: String,
}

impl Placeholders<'_> {
    fn pairs(&self) -> [(&str, &str); 4] {
        let host = self.webhooks.url.trim_start_matches("https://");
        [
            ("{{url}}", &self.webhooks.url),
            ("{{ca}}", &self.webhooks.authority),
            ("{{other}}", &self.other),
            ("{{host}}", host),
        ]
    }

    fn filled<T: serde::de::DeserializeOwned>(&self, value: &Value, version: &str) -> T {
        let mut text = value.to_string().replace("{{version}}", version);
        for (name, meant) in self.pairs() {
            text = text.replace(name, meant);
        }
        serde_json::from_str(&text).unwrap()
    }

    fn told(&self, value: &Value) -> Value {
        let mut text = value.to_string();
        for (name, meant) in self.pairs() {
            text = text.replace(meant, name);
        }
        serde_json::from_str(&text).unwrap()
    }
}

fn configuring(method: &str, configuration: &Value, name: &str) -> Question {
    let kind = configuration["kind"].as_str().unwrap().to_lowercase() + "s";
    let path = match &*kind {
        "configmaps" => "/api/v1/namespaces/blue/configmaps".to_owned(),
        kind => format!(
            "/apis/admissionregistration.k8s.io/v1/{}",
            kind.replace("policys", "policies")
        ),
    };
    let body = if method == "POST" {
        configuration.clone()
    } else {
        Value::Null
    };
    serde_json::from_value(json!({
        "token": "admin-token",
        "method": method,
        "path": format!("{path}{name}"),
        "body": body,
    }))
    .unwrap()
}

fn told(answer: &TestResponse, webhooks: &Webhooks) -> Value {
    let warnings: Vec<&str> = answer
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    json!({"code": answer.code, "body": body, "warnings": warnings, "asked": webhooks.taken()})
}

#[tokio::test]
async fn webhooks_are_asked_as_kube_apiserver_asks_them() {
    answer_as(RECORDED).await;
}

/// Asks what was asked, and compares the answers.
pub(crate) async fn answer_as(recorded: &str) {
    let recorded: Recorded = serde_json::from_str(recorded).unwrap();
    let webhooks = Webhooks::start(recorded.webhooks).await;
    let known = Placeholders {
        webhooks: &webhooks,
        other: tls().1,
    };
    let server = server(&recorded.tokens).await;
    for question in &recorded.setup {
        let answer = server.ask(question).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
    }
    let mut wrong = Vec::new();
    for group in &recorded.groups {
        for configuration in &group.configurations {
            let question = configuring("POST", &known.filled::<Value>(configuration, ""), "");
            let answer = server.ask(&question).await;
            assert_eq!(answer.code, 201, "{}: {}", group.title, answer.text);
        }
        webhooks.taken();
        let mut version = String::new();
        for question in &group.questions {
            let asked: Question = known.filled(question, &version);
            let answer = server.ask(&asked).await;
            let document: Value = serde_json::from_str(&answer.text).unwrap_or_default();
            let found = document["metadata"]["resourceVersion"].as_str();
            version = found.unwrap_or_default().to_owned();
            let mut is = settled(&known.told(&told(&answer, &webhooks)));
            let mut should = settled(&question["answer"]);
            for (titles, left_out) in [(&ONLY_QUESTIONS[..], "body"), (&ONLY_ANSWERS, "asked")] {
                if titles.contains(&&*group.title) {
                    for value in [&mut is, &mut should] {
                        value[left_out] = Value::Null;
                        drop_owners(value);
                    }
                }
            }
            let (is, should) = (is.to_string(), should.to_string());
            if is != should {
                let (title, method, path) = (&group.title, &asked.method, &asked.path);
                wrong.push(format!(
                    "{title}: {method} {path}\n  is     {is}\n  should {should}"
                ));
            }
        }
        for configuration in &group.configurations {
            let name = format!("/{}", configuration["metadata"]["name"].as_str().unwrap());
            server
                .ask(&configuring("DELETE", configuration, &name))
                .await;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn configurations_are_refused_as_kube_apiserver_refuses_them() {
    refuse_as(RECORDED).await;
}

/// Sends the configurations, and compares which are refused, and why.
pub(crate) async fn refuse_as(recorded: &str) {
    let recorded: Recorded = serde_json::from_str(recorded).unwrap();
    let webhooks = Webhooks::start(HashMap::new()).await;
    let known = Placeholders {
        webhooks: &webhooks,
        other: tls().1,
    };
    let server = server(&recorded.tokens).await;
    let mut wrong = Vec::new();
    for question in &recorded.refused {
        let body: Value = known.filled(question.body.as_ref().unwrap(), "");
        let answer = server.ask(&configuring("POST", &body, "")).await;
        let document: Value = serde_json::from_str(&answer.text).unwrap();
        let is = match answer.code {
            201 => json!(201),
            code => json!([code, known.told(&document["message"])]),
        };
        let should = &question.answer;
        let should = match should["code"].as_u64() {
            Some(201) => json!(201),
            code => json!([code, should["body"]["message"]]),
        };
        if is != should {
            wrong.push(format!("is     {is}\nshould {should}"));
        }
        if answer.code == 201 {
            server.ask(&configuring("DELETE", &body, "/wrong")).await;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Those who check are asked about what is posted to a part of a Pod.
#[tokio::test]
async fn evictions_and_bindings_are_refused_by_policies_and_webhooks() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let webhooks = Webhooks::start(recorded.webhooks).await;
    let server = server(&recorded.tokens).await;
    let ask = async |method: &str, path: &str, body: Value| {
        let question =
            json!({"token": "admin-token", "method": method, "path": path, "body": body});
        server.ask(&serde_json::from_value(question).unwrap()).await
    };
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(ask("POST", pods, pod).await.code, 201);
    let client =
        json!({"url": format!("{}/deny-message", webhooks.url), "caBundle": webhooks.authority});
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}]);
    let hook = json!({"name": "h.example.com", "clientConfig": client, "rules": rules, "admissionReviewVersions": ["v1"], "sideEffects": "None"});
    let group = "/apis/admissionregistration.k8s.io/v1";
    let made = json!({"metadata": {"name": "h"}, "webhooks": [hook]});
    let hooks = format!("{group}/validatingwebhookconfigurations");
    assert_eq!(ask("POST", &hooks, made).await.code, 201);
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let refused = ask("POST", &format!("{pods}/p/eviction"), eviction).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    let asked = webhooks.taken();
    let request = &asked[0]["review"]["request"];
    assert_eq!(
        request["kind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "pods"})
    );
    assert_eq!(
        (&request["subResource"], &request["object"]["kind"]),
        (&json!("eviction"), &json!("Eviction"))
    );
    // A policy, by an expression about the binding.
    let matched = json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}]});
    let policy = json!({"metadata": {"name": "b"}, "spec": {"matchConstraints": matched, "validations": [{"expression": "object.target.name != 'bad'"}]}});
    let policies = format!("{group}/validatingadmissionpolicies");
    assert_eq!(ask("POST", &policies, policy).await.code, 201);
    let bound = json!({"metadata": {"name": "b"}, "spec": {"policyName": "b", "validationActions": ["Deny"]}});
    let bindings = format!("{group}/validatingadmissionpolicybindings");
    assert_eq!(ask("POST", &bindings, bound).await.code, 201);
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let path = format!("{pods}/p/binding");
    assert_eq!(ask("POST", &path, binding("bad")).await.code, 422);
    assert_eq!(ask("POST", &path, binding("good")).await.code, 201);
}
