//! Patches of each type, and edits, as people type them.

use interop::{Server, said};

use crate::{DEPLOYMENT, refused, value};

async fn with_deployment() -> Server {
    let server = Server::start().await.unwrap();
    let file = server.file("deployment.yaml", DEPLOYMENT).unwrap();
    server.run(&["create", "-f", &file]).unwrap();
    server
}

#[tokio::test]
async fn patch_of_a_deployment() {
    let server = with_deployment().await;
    let patch = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        server.run(&["patch", "deploy", "web", &kind, "-p", patch])
    };
    let containers = || {
        let names = ".spec.template.spec.containers[*].name";
        value(&server, "deploy/web", names)
    };
    const PATCHED: &str = "deployment.apps/web patched\n";
    let extra = r#"{"spec":{"template":{"spec":{"containers":[{"name":"extra","image":"e"}]}}}}"#;
    assert_eq!(patch("strategic", extra).unwrap(), PATCHED);
    assert_eq!(containers(), "extra main side");
    assert_eq!(
        patch("strategic", extra).unwrap(),
        "deployment.apps/web patched (no change)\n"
    );
    assert_eq!(patch("merge", extra).unwrap(), PATCHED);
    assert_eq!(containers(), "extra", "a merge patch replaces lists");
    let replace = r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#;
    assert_eq!(patch("json", replace).unwrap(), PATCHED);
    let scale = r#"{"spec":{"replicas":6}}"#;
    let scaled = server.run(&[
        "patch",
        "deploy",
        "web",
        "--subresource=scale",
        "--type=merge",
        "-p",
        scale,
    ]);
    assert_eq!(scaled.unwrap(), "scale.autoscaling/web patched\n");
    assert_eq!(value(&server, "deploy/web", ".spec.replicas"), "6");

    let wrong = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        refused(&server, &["patch", "deploy", "web", &kind, "-p", patch])
    };
    assert_eq!(
        wrong("json", r#"[{"op":"remove","path":"/spec/nosuch"}]"#),
        "The request is invalid: the server rejected our request due to an error in our request\n"
    );
    let selector = wrong(
        "strategic",
        r#"{"spec":{"selector":{"matchLabels":{"app":"x"}}}}"#,
    );
    assert!(
        selector.starts_with("The Deployment \"web\" is invalid: \n* spec.")
            && selector.contains("spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: field is immutable\n"),
        "{selector}"
    );
}

#[tokio::test]
async fn patch_of_a_service() {
    let server = Server::start().await.unwrap();
    server
        .run(&[
            "create",
            "service",
            "clusterip",
            "web",
            "--tcp=80:8080",
            "--clusterip=None",
        ])
        .unwrap();
    let patch = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        let done = server.run(&["patch", "svc", "web", &kind, "-p", patch]);
        assert_eq!(done.unwrap(), "service/web patched\n");
        value(&server, "svc/web", ".spec.ports[*].name")
    };
    let tls = r#"{"spec":{"ports":[{"port":443,"name":"tls"}]}}"#;
    assert_eq!(patch("strategic", tls), "tls 80-8080");
    assert_eq!(patch("merge", tls), "tls");
    assert_eq!(
        value(&server, "svc/web", ".spec.ports"),
        r#"[{"name":"tls","port":443,"protocol":"TCP","targetPort":443}]"#
    );
    let more = r#"[{"op":"add","path":"/spec/ports/-","value":{"name":"more","port":81}}]"#;
    assert_eq!(patch("json", more), "tls more");
}

#[tokio::test]
async fn edit_of_a_deployment() {
    let server = with_deployment().await;
    let edit = |editor: &str| {
        server
            .kubectl(&["edit", "deploy", "web"])
            .env("KUBE_EDITOR", editor)
            // Where it leaves what was not accepted.
            .env("TMPDIR", server.home())
            .output()
            .unwrap()
    };
    let edited = edit("sed -i s/nginx:1/nginx:3/");
    assert_eq!(said(&edited).unwrap(), "deployment.apps/web edited\n");
    let images = ".spec.template.spec.containers[*].image";
    assert_eq!(value(&server, "deploy/web", images), "nginx:3 busybox");
    let unchanged = edit("true");
    assert!(unchanged.status.success());
    assert_eq!(
        String::from_utf8_lossy(&unchanged.stderr),
        "Edit cancelled, no changes made.\n"
    );
    let invalid = edit("sed -i 's/replicas: 2/replicas: -1/'");
    assert!(!invalid.status.success());
    let text = String::from_utf8_lossy(&invalid.stderr);
    assert!(
        text.contains("error: deployments.apps \"web\" is invalid\n"),
        "{text}"
    );
    assert_eq!(value(&server, "deploy/web", ".spec.replicas"), "2");
}
