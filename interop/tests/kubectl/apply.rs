//! Server-side apply with kubectl, and the way to it and back.

use interop::Server;

use crate::{DEPLOYMENT, managers, refused, value};

const APPLIED: &str = "deployment.apps/web serverside-applied\n";
const CONTAINERS: &str = ".spec.template.spec.containers[*].image";

#[tokio::test]
async fn server_side_apply() {
    let server = Server::start().await.unwrap();
    let file = server.file("deployment.yaml", DEPLOYMENT).unwrap();
    let apply = ["apply", "--server-side", "-f", &file];
    let version = || value(&server, "deploy/web", ".metadata.resourceVersion");
    assert_eq!(server.run(&apply).unwrap(), APPLIED);
    let before = version();
    assert_eq!(server.run(&apply).unwrap(), APPLIED);
    assert_eq!(version(), before, "nothing changes the second time");

    server
        .run(&["scale", "deploy/web", "--replicas=5"])
        .unwrap();
    let text = refused(&server, &apply);
    let conflict = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas\n";
    assert!(text.contains(conflict), "{text}");
    assert!(
        text.contains("re-run the apply\n  command with the `--force-conflicts` flag"),
        "{text}"
    );
    assert_eq!(value(&server, "deploy/web", ".spec.replicas"), "5");
    let force = [&apply[..], &["--force-conflicts"]].concat();
    assert_eq!(server.run(&force).unwrap(), APPLIED);
    assert_eq!(value(&server, "deploy/web", ".spec.replicas"), "2");
    assert_eq!(managers(&server, "deploy/web"), ["kubectl Apply"]);

    // Who wants the same has it as well; who wants something else is told whose it is.
    let other = [&apply[..], &["--field-manager=other"]].concat();
    assert_eq!(server.run(&other).unwrap(), APPLIED);
    let another = DEPLOYMENT.replace("nginx:1", "nginx:2");
    let another = server.file("another.yaml", &another).unwrap();
    let third = [
        "apply",
        "--server-side",
        "-f",
        &another,
        "--field-manager=third",
    ];
    let text = refused(&server, &third);
    let field = ".spec.template.spec.containers[name=\"main\"].image";
    assert!(
        text.contains("Apply failed with 2 conflicts:")
            && text.contains(&format!("conflicts with \"kubectl\":\n- {field}\n"))
            && text.contains(&format!("conflicts with \"other\":\n- {field}\n")),
        "{text}"
    );
    assert_eq!(value(&server, "deploy/web", CONTAINERS), "nginx:1 busybox");
}

#[tokio::test]
async fn from_client_side_apply_and_back() {
    let server = Server::start().await.unwrap();
    let old = server.file("old.yaml", DEPLOYMENT).unwrap();
    let new = server
        .file("new.yaml", &DEPLOYMENT.replace("nginx:1", "nginx:2"))
        .unwrap();
    let fewer = DEPLOYMENT.replace("      - {name: side, image: busybox}\n", "");
    let fewer = server.file("fewer.yaml", &fewer).unwrap();
    let last = r".metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration";

    server.run(&["apply", "-f", &old]).unwrap();
    let before = ["kubectl-client-side-apply Update"];
    assert_eq!(managers(&server, "deploy/web"), before);
    let applied = server.run(&["apply", "--server-side", "-f", &new]);
    assert_eq!(applied.unwrap(), APPLIED, "its own fields are no conflict");
    assert_eq!(
        managers(&server, "deploy/web"),
        ["kubectl Apply", "kubectl-last-applied Apply"]
    );
    assert!(value(&server, "deploy/web", last).contains("nginx:2"));

    let back = server.run(&["apply", "-f", &old]);
    assert_eq!(back.unwrap(), "deployment.apps/web configured\n");
    assert_eq!(value(&server, "deploy/web", CONTAINERS), "nginx:1 busybox");
    assert!(value(&server, "deploy/web", last).contains("nginx:1"));
    assert_eq!(
        managers(&server, "deploy/web"),
        ["kubectl Apply", "kubectl-client-side-apply Update"]
    );

    let again = server.run(&["apply", "--server-side", "-f", &old]);
    assert_eq!(again.unwrap(), APPLIED);
    let fewer = server.run(&["apply", "--server-side", "-f", &fewer]);
    assert_eq!(fewer.unwrap(), APPLIED);
    assert_eq!(
        value(&server, "deploy/web", CONTAINERS),
        "nginx:1",
        "what is applied no more goes"
    );
}

#[tokio::test]
async fn server_side_diff() {
    let server = Server::start().await.unwrap();
    let old = server.file("old.yaml", DEPLOYMENT).unwrap();
    let new = server
        .file("new.yaml", &DEPLOYMENT.replace("nginx:1", "nginx:2"))
        .unwrap();
    server.run(&["apply", "--server-side", "-f", &old]).unwrap();
    let same = server.run(&["diff", "--server-side", "-f", &old]);
    assert_eq!(same.unwrap(), "");
    let diff = server
        .kubectl(&["diff", "--server-side", "-f", &new])
        .output()
        .unwrap();
    assert_eq!(diff.status.code(), Some(1), "there is a difference");
    let text = String::from_utf8_lossy(&diff.stdout);
    let changed: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with(['-', '+']))
        .filter(|line| !line.starts_with("---") && !line.starts_with("+++"))
        .collect();
    assert_eq!(
        changed,
        [
            "-  generation: 1",
            "+  generation: 2",
            "-      - image: nginx:1",
            "+      - image: nginx:2"
        ]
    );
    server
        .run(&["scale", "deploy/web", "--replicas=5"])
        .unwrap();
    let text = refused(&server, &["diff", "--server-side", "-f", &new]);
    assert!(
        text.contains("Error from server (Conflict): Apply failed with 1 conflict"),
        "{text}"
    );
    assert_eq!(value(&server, "deploy/web", CONTAINERS), "nginx:1 busybox");
}
