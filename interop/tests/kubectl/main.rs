//! kubectl, as people use it.

#![allow(clippy::unwrap_used)]

mod apply;
mod bundle;
mod custom;
mod delete;
mod patch;
mod workloads;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use interop::{Server, said};
use serde_json::Value;

const CONFIGMAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  colour: blue
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: 'nginx:1'}
      - {name: side, image: busybox}
";

/// A process that is stopped at the end of its test.
struct Running(Child);

impl Running {
    fn start(mut command: std::process::Command) -> (Running, BufReader<ChildStdout>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (Running(child), output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn fields(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// What kubectl says on standard error when it fails.
fn refused(server: &Server, arguments: &[&str]) -> String {
    let output = server.kubectl(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} is done");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// "manager operation subresource" of each entry of managedFields.
fn managers(server: &Server, object: &str) -> Vec<String> {
    let json = ["get", object, "-o", "json", "--show-managed-fields"];
    let json: Value = serde_json::from_str(&server.run(&json).unwrap()).unwrap();
    let entries = json["metadata"]["managedFields"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |entry: &Value| {
        ["manager", "operation", "subresource"]
            .map(|name| text(&entry[name]))
            .join(" ")
    };
    let mut words: Vec<_> = entries
        .iter()
        .map(|entry| words(entry).trim_end().to_owned())
        .collect();
    words.sort();
    words
}

/// What a path of an object is.
fn value(server: &Server, object: &str, path: &str) -> String {
    let form = format!("jsonpath={{{path}}}");
    server.run(&["get", object, "-o", &form]).unwrap()
}

async fn with_configmap() -> Server {
    let server = Server::start().await.unwrap();
    let file = server.file("configmap.yaml", CONFIGMAP).unwrap();
    let created = server.run(&["create", "-f", &file]).unwrap();
    assert_eq!(created, "configmap/settings created\n");
    server
}

#[tokio::test]
async fn get_in_all_output_forms() {
    let server = with_configmap().await;
    let get = |form: &str| {
        server
            .run(&["get", "configmap", "settings", "-o", form])
            .unwrap()
    };
    let table = server.run(&["get", "cm"]).unwrap();
    let lines: Vec<_> = table.lines().map(fields).collect();
    assert_eq!(lines[0], ["NAME", "DATA", "AGE"]);
    assert_eq!(lines[1][..2], ["settings", "1"]);
    let json: Value = serde_json::from_str(&get("json")).unwrap();
    assert_eq!(
        (&json["kind"], &json["data"]["colour"]),
        (&"ConfigMap".into(), &"blue".into())
    );
    assert!(get("yaml").contains("\ndata:\n  colour: blue\n"));
    assert_eq!(get("name"), "configmap/settings\n");
    assert_eq!(get("jsonpath={.data.colour}"), "blue");
    assert_eq!(get("go-template={{.metadata.name}}"), "settings");
    assert_eq!(
        get("custom-columns=C:.data.colour").lines().nth(1),
        Some("blue")
    );
    assert!(get("wide").contains("settings"));
    let labelled = server
        .run(&["get", "cm", "-A", "-l", "app=web", "--show-labels"])
        .unwrap();
    assert!(labelled.contains("app=web"), "{labelled}");
    let service = server.run(&["get", "svc", "-o", "wide"]).unwrap();
    assert_eq!(
        fields(service.lines().next().unwrap()),
        [
            "NAME",
            "TYPE",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "PORT(S)",
            "AGE",
            "SELECTOR"
        ]
    );
    let raw = server.run(&["get", "--raw", "/readyz"]).unwrap();
    assert_eq!(raw, "ok");
    let missing = server.kubectl(&["get", "cm", "nosuch"]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&missing.stderr),
        "Error from server (NotFound): configmaps \"nosuch\" not found\n"
    );
}

/// These send protobuf: kubectl makes the objects with its typed clients.
#[tokio::test]
async fn create_by_words() {
    let server = Server::start().await.unwrap();
    let create = |words: &str| {
        let mut arguments = vec!["create"];
        arguments.extend(words.split(' '));
        server.run(&arguments).unwrap()
    };
    assert_eq!(create("namespace team"), "namespace/team created\n");
    assert_eq!(
        create("configmap c --from-literal=a=1 -n team"),
        "configmap/c created\n"
    );
    assert_eq!(
        create("secret generic s --from-literal=password=x"),
        "secret/s created\n"
    );
    assert_eq!(
        create("serviceaccount robot"),
        "serviceaccount/robot created\n"
    );
    assert_eq!(
        create("deployment web --image=nginx --replicas=3 --port=80"),
        "deployment.apps/web created\n"
    );
    assert_eq!(
        create("service clusterip web --tcp=80:8080"),
        "service/web created\n"
    );
    assert_eq!(
        create("job once --image=busybox -- date"),
        "job.batch/once created\n"
    );
    let often = [
        "create",
        "cronjob",
        "often",
        "--image=busybox",
        "--schedule=*/5 * * * *",
    ];
    assert_eq!(server.run(&often).unwrap(), "cronjob.batch/often created\n");
    assert_eq!(
        create("role reader --verb=get,list --resource=pods"),
        "role.rbac.authorization.k8s.io/reader created\n"
    );
    assert_eq!(
        create("clusterrolebinding b --clusterrole=view --user=jane"),
        "clusterrolebinding.rbac.authorization.k8s.io/b created\n"
    );
    assert_eq!(create("quota q --hard=pods=3"), "resourcequota/q created\n");
    assert_eq!(
        create("ingress i --rule=a.example/b=web:80"),
        "ingress.networking.k8s.io/i created\n"
    );
    let data = ["get", "cm", "c", "-n", "team", "-o", "jsonpath={.data}"];
    assert_eq!(server.run(&data).unwrap(), r#"{"a":"1"}"#);
    let rules = ["get", "role", "reader", "-o", "jsonpath={.rules}"];
    assert_eq!(
        server.run(&rules).unwrap(),
        r#"[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]"#
    );
    let table = server.run(&["get", "deploy,svc,job,cronjob,ing"]).unwrap();
    assert!(
        table.contains("deployment.apps/web") && table.contains("ingress.networking.k8s.io/i"),
        "{table}"
    );
    assert_eq!(
        server
            .run(&["expose", "deploy", "web", "--name=again", "--port=80"])
            .unwrap(),
        "service/again exposed\n"
    );
}

#[tokio::test]
async fn get_and_watch() {
    let server = with_configmap().await;
    let (_running, mut output) = Running::start(server.kubectl(&["get", "cm", "-w"]));
    assert_eq!(fields(&line(&mut output)), ["NAME", "DATA", "AGE"]);
    assert_eq!(fields(&line(&mut output))[..2], ["settings", "1"]);
    server
        .run(&["patch", "cm", "settings", "-p", r#"{"data":{"size":"1"}}"#])
        .unwrap();
    assert_eq!(fields(&line(&mut output))[..2], ["settings", "2"]);
    let (_one, mut output) =
        Running::start(server.kubectl(&["get", "cm", "settings", "-w", "-o", "name"]));
    assert_eq!(line(&mut output), "configmap/settings");
    server.run(&["delete", "cm", "settings"]).unwrap();
    assert_eq!(line(&mut output), "configmap/settings");
}

#[tokio::test]
async fn apply_diff_scale_and_describe() {
    let server = Server::start().await.unwrap();
    let file = server.file("deployment.yaml", DEPLOYMENT).unwrap();
    assert_eq!(
        server.run(&["apply", "-f", &file]).unwrap(),
        "deployment.apps/web created\n"
    );
    assert_eq!(
        server.run(&["apply", "-f", &file]).unwrap(),
        "deployment.apps/web unchanged\n"
    );
    let changed = server
        .file("changed.yaml", &DEPLOYMENT.replace("nginx:1", "nginx:2"))
        .unwrap();
    let diff = server.kubectl(&["diff", "-f", &changed]).output().unwrap();
    let text = String::from_utf8_lossy(&diff.stdout);
    assert_eq!(diff.status.code(), Some(1), "there is a difference");
    assert!(
        text.contains("-      - image: nginx:1") && text.contains("+      - image: nginx:2"),
        "{text}"
    );
    assert_eq!(
        server.run(&["apply", "-f", &changed]).unwrap(),
        "deployment.apps/web configured\n"
    );
    let images = "jsonpath={.spec.template.spec.containers[*].image}";
    assert_eq!(
        server.run(&["get", "deploy", "web", "-o", images]).unwrap(),
        "nginx:2 busybox"
    );
    assert_eq!(
        server
            .run(&["scale", "deploy/web", "--replicas=5"])
            .unwrap(),
        "deployment.apps/web scaled\n"
    );
    let table = server.run(&["get", "deploy", "-o", "wide"]).unwrap();
    let lines: Vec<_> = table.lines().map(fields).collect();
    assert_eq!(
        lines[0],
        [
            "NAME",
            "READY",
            "UP-TO-DATE",
            "AVAILABLE",
            "AGE",
            "CONTAINERS",
            "IMAGES",
            "SELECTOR"
        ]
    );
    assert_eq!((lines[1][1], lines[1][5]), ("0/5", "main,side"));
    let described = server.run(&["describe", "deploy", "web"]).unwrap();
    assert!(
        described.contains("5 desired") && described.contains("nginx:2"),
        "{described}"
    );
    let set = server
        .run(&["set", "image", "deploy/web", "side=busybox:2"])
        .unwrap();
    assert_eq!(set, "deployment.apps/web image updated\n");
    assert_eq!(
        server.run(&["get", "deploy", "web", "-o", images]).unwrap(),
        "nginx:2 busybox:2"
    );
}

#[tokio::test]
async fn label_annotate_patch_replace_and_edit() {
    let server = with_configmap().await;
    server
        .run(&["label", "cm", "settings", "tier=front"])
        .unwrap();
    server
        .run(&["annotate", "cm", "settings", "note=hello"])
        .unwrap();
    server
        .run(&[
            "patch",
            "cm",
            "settings",
            "--type=merge",
            "-p",
            r#"{"data":{"merge":"1"}}"#,
        ])
        .unwrap();
    server
        .run(&[
            "patch",
            "cm",
            "settings",
            "--type=json",
            "-p",
            r#"[{"op":"add","path":"/data/json","value":"1"}]"#,
        ])
        .unwrap();
    let edit = server
        .kubectl(&["edit", "cm", "settings"])
        .env("KUBE_EDITOR", "sed -i s/blue/green/")
        .output()
        .unwrap();
    assert_eq!(said(&edit).unwrap(), "configmap/settings edited\n");
    let json: Value = serde_json::from_str(
        &server
            .run(&[
                "get",
                "cm",
                "settings",
                "-o",
                "json",
                "--show-managed-fields",
            ])
            .unwrap(),
    )
    .unwrap();
    let meta = &json["metadata"];
    assert_eq!(
        (&meta["labels"]["tier"], &meta["annotations"]["note"]),
        (&"front".into(), &"hello".into())
    );
    assert_eq!(
        json["data"],
        serde_json::json!({"colour": "green", "json": "1", "merge": "1"})
    );
    let managers: Vec<_> = meta["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    for manager in [
        "kubectl-create",
        "kubectl-label",
        "kubectl-annotate",
        "kubectl-patch",
        "kubectl-edit",
    ] {
        assert!(managers.contains(&manager), "{manager} in {managers:?}");
    }
    let file = server
        .file("replaced.yaml", &CONFIGMAP.replace("blue", "red"))
        .unwrap();
    assert_eq!(
        server.run(&["replace", "-f", &file]).unwrap(),
        "configmap/settings replaced\n"
    );
    assert_eq!(
        server
            .run(&["get", "cm", "settings", "-o", "jsonpath={.data}"])
            .unwrap(),
        r#"{"colour":"red"}"#
    );
}

#[tokio::test]
async fn wait_and_delete() {
    let server = with_configmap().await;
    let waited = server
        .run(&[
            "wait",
            "--for=jsonpath={.data.colour}=blue",
            "cm/settings",
            "--timeout=20s",
        ])
        .unwrap();
    assert_eq!(waited, "configmap/settings condition met\n");
    let (_waiting, mut output) =
        Running::start(server.kubectl(&["wait", "--for=delete", "cm/settings", "--timeout=20s"]));
    // Once its watch is open it sees the deletion.
    let watched = |metrics: &str| {
        let watches = "apiserver_longrunning_requests{group=\"\",resource=\"configmaps\"} ";
        metrics
            .lines()
            .any(|line| line.strip_prefix(watches).is_some_and(|count| count != "0"))
    };
    while !watched(&server.run(&["get", "--raw", "/metrics"]).unwrap()) {}
    assert_eq!(
        server.run(&["delete", "cm", "settings"]).unwrap(),
        "configmap \"settings\" deleted\n"
    );
    assert_eq!(line(&mut output), "configmap/settings condition met");
    let namespace = server
        .file(
            "namespace.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n",
        )
        .unwrap();
    server.run(&["create", "-f", &namespace]).unwrap();
    let file = server.file("again.yaml", CONFIGMAP).unwrap();
    server.run(&["create", "-n", "team", "-f", &file]).unwrap();
    assert_eq!(
        server
            .run(&["delete", "ns", "team", "--timeout=20s"])
            .unwrap(),
        "namespace \"team\" deleted\n"
    );
    assert_eq!(server.run(&["get", "cm", "-A", "-o", "name"]).unwrap(), "");
    let protected = server
        .kubectl(&["delete", "ns", "default"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&protected.stderr);
    assert!(
        text.contains("namespaces \"default\" is forbidden: this namespace may not be deleted"),
        "{text}"
    );
}

#[tokio::test]
async fn lists_and_unknown_kinds() {
    let server = with_configmap().await;
    let both = server
        .run(&["get", "cm/settings", "svc/kubernetes", "-o", "yaml"])
        .unwrap();
    assert!(both.contains("kind: List"));
    let file = server.file("list.yaml", &both).unwrap();
    let applied = server.run(&["apply", "-f", &file]).unwrap();
    assert_eq!(
        applied,
        "configmap/settings configured\nservice/kubernetes configured\n"
    );
    let foo = server
        .file(
            "foo.yaml",
            "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: x}\n",
        )
        .unwrap();
    let unknown = server.kubectl(&["apply", "-f", &foo]).output().unwrap();
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        text.contains("no matches for kind \"Foo\" in version \"example.com/v1\""),
        "{text}"
    );
    let old = server
        .run(&["explain", "pod.spec", "--output=plaintext-openapiv2"])
        .unwrap();
    assert!(old.contains("containers"), "{old}");
}

#[tokio::test]
async fn mistakes_are_explained() {
    let server = Server::start().await.unwrap();
    let refused = |text: &str| {
        let file = server.file("bad.yaml", text).unwrap();
        let output = server.kubectl(&["create", "-f", &file]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = refused(&format!("{CONFIGMAP}size: 1\n"));
    assert!(
        unknown.contains("strict decoding error: unknown field \"size\""),
        "{unknown}"
    );
    let name = refused(&CONFIGMAP.replace("settings", "Bad_Name"));
    assert!(
        name.contains("a lowercase RFC 1123 subdomain must consist of"),
        "{name}"
    );
    let place =
        refused(&CONFIGMAP.replace("name: settings", "name: settings\n  namespace: nosuch"));
    assert!(place.contains("namespaces \"nosuch\" not found"), "{place}");
}

#[tokio::test]
async fn api_resources_versions_and_explain() {
    let server = Server::start().await.unwrap();
    let resources = server.run(&["api-resources", "--no-headers"]).unwrap();
    assert!(resources.lines().count() > 50, "{resources}");
    assert!(
        resources
            .lines()
            .any(|line| fields(line) == ["deployments", "deploy", "apps/v1", "true", "Deployment"])
    );
    let namespaced = server
        .run(&[
            "api-resources",
            "--namespaced=false",
            "--verbs=list",
            "-o",
            "name",
        ])
        .unwrap();
    assert!(namespaced.contains("nodes\n") && !namespaced.contains("pods\n"));
    let versions = server.run(&["api-versions"]).unwrap();
    assert!(versions.contains("networking.k8s.io/v1\n"), "{versions}");
    let explained = server.run(&["explain", "configmap"]).unwrap();
    assert!(
        explained.contains("KIND:       ConfigMap") && explained.contains("immutable"),
        "{explained}"
    );
    let field = server
        .run(&["explain", "deployment.metadata.labels"])
        .unwrap();
    assert!(
        field.contains("FIELD: labels <map[string]string>"),
        "{field}"
    );
    let deep = server
        .run(&["explain", "pod.spec.containers.ports"])
        .unwrap();
    assert!(
        deep.contains("containerPort\t<integer> -required-"),
        "{deep}"
    );
    let version = server.run(&["version", "-o", "json"]).unwrap();
    let version: Value = serde_json::from_str(&version).unwrap();
    assert_eq!(version["serverVersion"]["minor"], "36");
}

/// Watches a ConfigMap with curl through `kubectl proxy`, and changes it with `kubectl edit`: the change and its manager are seen.
#[tokio::test]
async fn the_demonstration_with_a_proxy() {
    let server = Server::start().await.unwrap();
    let coredns = CONFIGMAP.replace("name: settings", "name: coredns\n  namespace: kube-system");
    let file = server.file("coredns.yaml", &coredns).unwrap();
    server.run(&["create", "-f", &file]).unwrap();
    let (_proxy, mut output) = Running::start(server.kubectl(&["proxy", "--port=0"]));
    let address = line(&mut output);
    let address = address.strip_prefix("Starting to serve on ").unwrap();
    let url = format!("http://{address}/api/v1/watch/namespaces/kube-system/configmaps/coredns");
    let mut curl = server.command("curl");
    curl.args(["--silent", "--no-buffer", &url]);
    let (_curl, mut events) = Running::start(curl);
    let added: Value = serde_json::from_str(&line(&mut events)).unwrap();
    assert_eq!(
        (&added["type"], &added["object"]["metadata"]["name"]),
        (&"ADDED".into(), &"coredns".into())
    );
    let edit = server
        .kubectl(&["edit", "configmap", "coredns", "-n", "kube-system"])
        .env("KUBE_EDITOR", "sed -i s/blue/green/")
        .output();
    said(&edit.unwrap()).unwrap();
    let modified: Value = serde_json::from_str(&line(&mut events)).unwrap();
    assert_eq!(
        (&modified["type"], &modified["object"]["data"]["colour"]),
        (&"MODIFIED".into(), &"green".into())
    );
    let entries = modified["object"]["metadata"]["managedFields"]
        .as_array()
        .unwrap();
    let edited = entries
        .iter()
        .find(|entry| entry["manager"] == "kubectl-edit")
        .unwrap();
    assert_eq!(edited["operation"], "Update");
    assert_eq!(
        edited["fieldsV1"],
        serde_json::json!({"f:data": {"f:colour": {}}})
    );
}

#[tokio::test]
async fn auth() {
    let server = Server::start().await.unwrap();
    let run = |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        server.run(&words).unwrap()
    };
    assert_eq!(run("auth can-i create pods"), "yes\n");
    assert_eq!(run("auth can-i list deployments.apps -A"), "yes\n");
    assert_eq!(run("auth can-i get /metrics"), "yes\n");
    let rules = run("auth can-i --list");
    let lines: Vec<_> = rules.lines().map(fields).collect();
    assert!(lines.contains(&vec!["*.*", "[]", "[]", "[*]"]), "{rules}");
    assert!(lines.contains(&vec!["[*]", "[]", "[*]"]), "{rules}");
    let who = run("auth whoami");
    let lines: Vec<_> = who.lines().map(fields).collect();
    assert_eq!(lines[1], ["Username", "admin"]);
    assert_eq!(
        lines[2],
        ["Groups", "[system:masters", "system:authenticated]"]
    );
}

#[tokio::test]
async fn delete_what_is_owned() {
    let server = Server::start().await.unwrap();
    for (policy, left) in [
        ("background", ""),
        ("foreground", ""),
        ("orphan", "configmap/child\n"),
    ] {
        server.run(&["create", "configmap", "owner"]).unwrap();
        let uid = ["get", "cm", "owner", "-o", "jsonpath={.metadata.uid}"];
        let uid = server.run(&uid).unwrap();
        let child = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: child\n  ownerReferences:\n  - {{apiVersion: v1, kind: ConfigMap, \
             name: owner, uid: {uid}, blockOwnerDeletion: true}}\n"
        );
        let file = server.file("child.yaml", &child).unwrap();
        server.run(&["create", "-f", &file]).unwrap();
        let cascade = format!("--cascade={policy}");
        server.run(&["delete", "cm", "owner", &cascade]).unwrap();
        if policy == "background" {
            let gone = ["wait", "--for=delete", "cm/child", "--timeout=20s"];
            server.run(&gone).unwrap();
        }
        let rest = server.run(&["get", "cm", "-o", "name"]).unwrap();
        assert_eq!(rest, left, "{policy}");
    }
}
