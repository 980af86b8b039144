//! Conversion of custom resources by webhooks, as in kube-apiserver (W183). `tools/conversion/record` asked it.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Question, server};
use crate::admission::{AnswerFn, Webhooks, response, settled};
use crate::support::TestServer;

const RECORDED: &str = include_str!("conversion.json");
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Deserialize)]
struct Recorded {
    tokens: String,
    definition: Value,
    groups: Vec<Group>,
}

/// Questions while the webhook is in a mode.
#[derive(Deserialize)]
struct Group {
    title: String,
    mode: String,
    questions: Vec<Value>,
}

/// An object in another version, as the webhook of a mode says.
fn converted(original: &Value, desired: &str, mode: &str) -> Value {
    let mut sent = original.clone();
    sent["apiVersion"] = desired.into();
    let mut none = serde_json::Map::new();
    let spec = sent.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.unwrap_or(&mut none);
    if desired == "example.com/v2" {
        if let Some(host) = spec.remove("host") {
            let hosts: Vec<&str> = host.as_str().unwrap().split(',').collect();
            spec.insert("hosts".into(), hosts.into());
        }
    } else if let Some(Value::Array(hosts)) = spec.remove("hosts") {
        let hosts: Vec<&str> = hosts.iter().map(|host| host.as_str().unwrap()).collect();
        spec.insert("host".into(), hosts.join(",").into());
    }
    if desired == "example.com/v1" {
        spec.remove("level");
    }
    match mode {
        "relabel" => {
            let metadata = &mut sent["metadata"];
            metadata["labels"]["converted"] =
                format!("to-{}", &desired[desired.len() - 2..]).into();
            metadata["annotations"] = json!({"was": original["apiVersion"]});
            metadata["finalizers"] = json!(["example.com/other"]);
            metadata["generation"] = 77.into();
        }
        "other-kind" => sent["kind"] = "Page".into(),
        "other-version" => sent["apiVersion"] = "example.com/v7".into(),
        "other-name" => sent["metadata"]["name"] = "other".into(),
        "no-metadata" => sent["metadata"]["labels"] = "none".into(),
        "bad-label" => sent["metadata"]["labels"] = json!({"app": "not a label"}),
        _ => {}
    }
    sent
}

/// What the webhook of a mode answers to a review; `None` if it hangs up.
fn answer(review: &Value, mode: &str) -> Option<String> {
    if let Some(code) = mode.strip_prefix("code-") {
        return Some(response(code.parse().unwrap(), "oh no"));
    }
    let request = &review["request"];
    let desired = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    let objects: Vec<Value> = objects
        .map(|object| converted(object, desired, mode))
        .collect();
    let mut answered = json!({
        "kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}},
    });
    let said = &mut answered["response"];
    match mode {
        "hangs-up" => return None,
        "nonsense" => return Some(response(200, "<html>")),
        "failure" => {
            said["result"] = json!({"status": "Failure", "message": "cannot convert today"})
        }
        "silent-failure" => said["result"] = json!({"status": "Failure"}),
        "other-uid" => said["uid"] = "other".into(),
        "no-objects" => said["convertedObjects"] = json!([]),
        "no-response" => *said = Value::Null,
        _ => {}
    }
    Some(response(200, &answered.to_string()))
}

/// A server with a definition whose webhook is in a mode that can be changed.
struct Converting {
    server: TestServer,
    webhooks: Webhooks,
    mode: Arc<Mutex<String>>,
}

impl Converting {
    async fn start(recorded: &Recorded, server: TestServer) -> Converting {
        let mode = Arc::new(Mutex::new("ok".to_owned()));
        let current = mode.clone();
        let answers: AnswerFn = Arc::new(move |path, review| {
            if path == "//moved" {
                let to = "HTTP/1.1 307 X\r\nlocation: /convert\r\ncontent-length: 0\r\n\r\n";
                return Some(to.to_owned());
            }
            let mode = current.lock().unwrap().clone();
            answer(review, &mode)
        });
        let webhooks = Webhooks::answering(answers).await;
        let converting = Converting {
            server,
            webhooks,
            mode,
        };
        let definition = recorded.definition.to_string();
        let definition = definition
            .replace("{{url}}", &converting.webhooks.url)
            .replace("{{ca}}", &converting.webhooks.authority);
        let definition: Value = serde_json::from_str(&definition).unwrap();
        let (code, told) = converting.ask("POST", CRDS, &definition).await;
        assert_eq!(code, 201, "{told}");
        let path = format!("{CRDS}/sites.example.com");
        loop {
            let (_, definition) = converting.ask("GET", &path, &Value::Null).await;
            if definition["status"]["conditions"][1]["status"] == "True" {
                return converting;
            }
            tokio::task::yield_now().await;
        }
    }

    fn set_mode(&self, mode: &str) {
        *self.mode.lock().unwrap() = mode.to_owned();
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let question =
            json!({"token": "admin-token", "method": method, "path": path, "body": body});
        self.answer(&serde_json::from_value(question).unwrap())
            .await
    }

    /// A hash of the version in which objects are stored.
    async fn storage_version(&self) -> Value {
        let (_, found) = self.ask("GET", "/apis/example.com/v1", &Value::Null).await;
        found["resources"][0]["storageVersionHash"].clone()
    }

    async fn answer(&self, question: &Question) -> (u16, Value) {
        let answer = self.server.ask(question).await;
        let body = serde_json::from_str(&answer.text);
        (
            answer.code,
            body.unwrap_or_else(|_| answer.text.clone().into()),
        )
    }
}

/// Takes away what differs on purpose, or by the second in which something was written.
fn level(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("lastTransitionTime");
            if let Some(Value::Array(owners)) = members.get_mut("managedFields") {
                for owner in &mut *owners {
                    if owner["manager"] == "tidings" {
                        owner["manager"] = "kube-apiserver".into();
                    }
                }
                owners.sort_by_key(Value::to_string);
            }
            // The column Name is described in other words.
            if let Some(Value::Array(columns)) = members.get_mut("columnDefinitions") {
                columns[0]["description"] = Value::Null;
            }
            members.values_mut().for_each(level);
        }
        Value::Array(values) => values.iter_mut().for_each(level),
        _ => {}
    }
}

#[tokio::test]
async fn w183_objects_are_converted_as_kube_apiserver_converts_them() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let server = server(&recorded.tokens).await;
    let converting = Converting::start(&recorded, server).await;
    let mut wrong = Vec::new();
    for group in &recorded.groups {
        converting.set_mode(&group.mode);
        let mut version = String::new();
        for question in &group.questions {
            if question.get("sleep").is_some() {
                continue;
            }
            let text = question.to_string().replace("{{version}}", &version);
            let text = text
                .replace("{{url}}", &converting.webhooks.url)
                .replace("{{ca}}", &converting.webhooks.authority);
            let asked: Question = serde_json::from_str(&text).unwrap();
            let storage = converting.storage_version().await;
            let (code, body) = converting.answer(&asked).await;
            if asked.path.starts_with(CRDS) && asked.method == "PATCH" {
                while converting.storage_version().await == storage {
                    tokio::task::yield_now().await;
                }
            }
            if let Some(found) = body["metadata"]["resourceVersion"].as_str() {
                version = found.to_owned();
            }
            let told = json!({"code": code, "body": body}).to_string();
            let told = told
                .replace(&converting.webhooks.url, "{{url}}")
                .replace(&converting.webhooks.authority, "{{ca}}");
            let should = &question["answer"];
            let mut should = settled(&json!({"code": should["code"], "body": should["body"]}));
            let mut is = settled(&serde_json::from_str(&told).unwrap());
            level(&mut should);
            level(&mut is);
            if asked.path.contains("watch=true") {
                // kube-apiserver tells a watch that its version is too large; here it is told why.
                assert_eq!(should["body"]["object"]["code"], 504);
                should["body"]["object"] = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
                    "message": "conversion webhook for example.com/v1, Kind=Site failed: cannot convert today",
                });
            }
            if is != should {
                let (title, method, path) = (&group.title, &asked.method, &asked.path);
                wrong.push(format!(
                    "{title}: {method} {path}\n  is     {is}\n  should {should}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What the webhook was asked: the versions that it should convert to, and how many objects, of reviews about some objects.
fn asked(webhooks: &Webhooks) -> Vec<(String, usize)> {
    let reviews = webhooks.taken().into_iter();
    let asked = reviews.map(|called| {
        assert_eq!(called["path"], "/convert");
        assert_eq!(called["query"], "timeout=30s");
        let request = &called["review"]["request"];
        let desired = request["desiredAPIVersion"].as_str().unwrap();
        let objects = request["objects"].as_array().unwrap();
        (desired.to_owned(), objects.len())
    });
    asked.collect()
}

const V1: &str = "/apis/example.com/v1/namespaces/default/sites";
const V2: &str = "/apis/example.com/v2/namespaces/default/sites";

fn site(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": {"host": "a,b"}})
}

#[tokio::test]
async fn w183_a_webhook_is_asked_once_for_all_lists_and_watches_of_a_version() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let converting = Converting::start(&recorded, TestServer::start().await).await;
    for number in 0..600 {
        let (code, told) = converting
            .ask("POST", V1, &site(&format!("s{number}")))
            .await;
        assert_eq!(code, 201, "{told}");
    }
    let (_, list) = converting.ask("GET", V1, &Value::Null).await;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let none: [(String, usize); 0] = [];
    assert_eq!(asked(&converting.webhooks), none, "all are stored in v1");
    for _ in 0..3 {
        let (_, list) = converting.ask("GET", V2, &Value::Null).await;
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 600);
        assert!(
            items
                .iter()
                .all(|item| item["spec"]["hosts"] == json!(["a", "b"]))
        );
    }
    let many = asked(&converting.webhooks);
    assert_eq!(many.iter().map(|(_, objects)| objects).sum::<usize>(), 600);
    assert!(many.len() <= 8, "many in a call: {many:?}");
    let mut watches = Vec::new();
    for _ in 0..20 {
        let path = format!("{V2}?watch=true&resourceVersion={version}");
        watches.push(converting.server.watch(&path).await);
    }
    converting.ask("POST", V1, &site("late")).await;
    for watch in &mut watches {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["spec"]["hosts"], json!(["a", "b"]));
        assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    }
    assert_eq!(
        asked(&converting.webhooks),
        [("example.com/v2".to_owned(), 1)]
    );
}

/// Programs answer so to a path with two slashes, and envtest writes such paths.
#[tokio::test]
async fn a_webhook_may_say_that_it_is_asked_at_another_path() {
    let mut recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    recorded.definition["spec"]["conversion"]["webhook"]["clientConfig"]["url"] =
        "{{url}}//moved".into();
    let converting = Converting::start(&recorded, TestServer::start().await).await;
    converting.ask("POST", V1, &site("a")).await;
    let (code, body) = converting
        .ask("GET", &format!("{V2}/a"), &Value::Null)
        .await;
    assert_eq!(
        (code, &body["spec"]["hosts"]),
        (200, &json!(["a", "b"])),
        "{body}"
    );
}
