//! Commands about workloads that need no controller, and those that ask what one may do and what fields there are.

use interop::Server;

use crate::{DEPLOYMENT, fields, refused, value};

#[tokio::test]
async fn rollouts() {
    let server = Server::start().await.unwrap();
    let file = server.file("deployment.yaml", DEPLOYMENT).unwrap();
    server.run(&["create", "-f", &file]).unwrap();
    let rollout = |what: &str| server.run(&["rollout", what, "deploy/web"]).unwrap();
    let cannot = |what: &str| refused(&server, &["rollout", what, "deploy/web"]);
    assert_eq!(
        rollout("history"),
        "deployment.apps/web \nNo rollout history found.\n"
    );
    assert_eq!(rollout("restart"), "deployment.apps/web restarted\n");
    let restarted = r".spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt";
    assert_ne!(value(&server, "deploy/web", restarted), "");
    assert_eq!(value(&server, "deploy/web", ".metadata.generation"), "2");
    assert_eq!(rollout("pause"), "deployment.apps/web paused\n");
    assert_eq!(
        cannot("pause"),
        "error: deployments.apps \"web\" is already paused\n"
    );
    assert_eq!(
        cannot("restart"),
        "error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)\n"
    );
    assert_eq!(rollout("resume"), "deployment.apps/web resumed\n");
    assert_eq!(
        cannot("undo"),
        "error: no rollout history found for deployment \"web\"\n"
    );
    assert_eq!(
        server.run(&["set", "env", "deploy/web", "A=b"]).unwrap(),
        "deployment.apps/web env updated\n"
    );
    let limits = ["set", "resources", "deploy/web", "--limits=cpu=100m"];
    assert_eq!(
        server.run(&limits).unwrap(),
        "deployment.apps/web resource requirements updated\n"
    );
    assert_eq!(
        value(
            &server,
            "deploy/web",
            ".spec.template.spec.containers[1]['env','resources']"
        ),
        r#"[{"name":"A","value":"b"}] {"limits":{"cpu":"100m"}}"#
    );
    let autoscale = ["autoscale", "deploy", "web", "--min=1", "--max=3"];
    assert_eq!(
        server.run(&autoscale).unwrap(),
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    );
}

#[tokio::test]
async fn jobs() {
    let server = Server::start().await.unwrap();
    let often = [
        "create",
        "cronjob",
        "often",
        "--image=busybox",
        "--schedule=*/5 * * * *",
    ];
    server.run(&often).unwrap();
    let from = ["create", "job", "now", "--from=cronjob/often"];
    assert_eq!(server.run(&from).unwrap(), "job.batch/now created\n");
    let owner = ".metadata.ownerReferences[0]['kind','name','controller']";
    assert_eq!(value(&server, "job/now", owner), "CronJob often true");
    let once = ["create", "job", "once", "--image=busybox", "--", "date"];
    assert_eq!(server.run(&once).unwrap(), "job.batch/once created\n");
    let table = server.run(&["get", "jobs"]).unwrap();
    let lines: Vec<_> = table.lines().map(fields).collect();
    assert_eq!(
        lines[0],
        ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    );
    assert_eq!(lines[1][..3], ["now", "Running", "0/1"]);
    // The Job goes with what it was made from.
    server
        .run(&["delete", "cronjob", "often", "--cascade=foreground"])
        .unwrap();
    assert_eq!(
        server.run(&["get", "jobs", "-o", "name"]).unwrap(),
        "job.batch/once\n"
    );
}

#[tokio::test]
async fn who_may_do_what() {
    let server = Server::start().await.unwrap();
    for question in [
        "create deployments",
        "* * --all-namespaces",
        "get pods --subresource=log",
        "get /healthz",
    ] {
        let mut arguments = vec!["auth", "can-i"];
        arguments.extend(question.split(' '));
        assert_eq!(server.run(&arguments).unwrap(), "yes\n", "{question}");
    }
    let unknown = server
        .kubectl(&["auth", "can-i", "get", "nosuch"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&unknown.stderr),
        "Warning: the server doesn't have a resource type 'nosuch'\n\n"
    );
    let who = server.run(&["auth", "whoami"]).unwrap();
    let lines: Vec<_> = who.lines().map(fields).collect();
    assert_eq!(lines[0], ["ATTRIBUTE", "VALUE"]);
    assert_eq!(lines[1], ["Username", "admin"]);
    assert_eq!(
        lines[2],
        ["Groups", "[system:masters", "system:authenticated]"]
    );
}

#[tokio::test]
async fn explain_of_a_deployment() {
    let server = Server::start().await.unwrap();
    let explain = |path: &str| server.run(&["explain", path]).unwrap();
    let strategy = explain("deployment.spec.strategy");
    assert!(
        strategy.starts_with("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: strategy <DeploymentStrategy>\n")
            && strategy.contains("  rollingUpdate\t<RollingUpdateDeployment>\n")
            && strategy.contains("  type\t<string>\n  enum: Recreate, RollingUpdate\n")
            && strategy.contains("     - `\"Recreate\"` Kill all existing pods before creating new ones.\n"),
        "{strategy}"
    );
    assert!(
        strategy.contains("\nDESCRIPTION:\n    The deployment strategy to use to replace existing pods with new ones.\n"),
        "{strategy}"
    );
    let policy = "pod.spec.containers.imagePullPolicy";
    let old = server.run(&["explain", policy, "--output=plaintext-openapiv2"]);
    let old = old.unwrap();
    assert!(
        old.contains("FIELD:    imagePullPolicy <string>") && old.contains("Image pull policy."),
        "{old}"
    );
    let tree = server.run(&["explain", "pod.spec", "--recursive"]).unwrap();
    assert!(
        tree.contains("      limits\t<map[string]Quantity>\n") && tree.lines().count() > 1000,
        "{tree}"
    );
    let replicas = explain("deployment.spec.replicas");
    assert!(replicas.contains("FIELD: replicas <integer>"), "{replicas}");
    let whole = explain("deployment.spec");
    assert!(
        whole.contains("  selector\t<LabelSelector> -required-\n")
            && whole.contains("  template\t<PodTemplateSpec> -required-\n"),
        "{whole}"
    );
    assert_eq!(
        refused(&server, &["explain", "deployment.spec.nosuch"]),
        "error: field \"nosuch\" does not exist\n"
    );
}
