//! Deletion of what owns other objects.

use interop::Server;

use crate::{DEPLOYMENT, refused, value};

/// A Deployment, and a ConfigMap that belongs to it and holds it back.
async fn with_owner() -> Server {
    let server = Server::start().await.unwrap();
    let file = server.file("deployment.yaml", DEPLOYMENT).unwrap();
    server.run(&["create", "-f", &file]).unwrap();
    let uid = value(&server, "deploy/web", ".metadata.uid");
    let owned = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: owned\n  ownerReferences:\n  - {{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, blockOwnerDeletion: true}}\n"
    );
    let file = server.file("owned.yaml", &owned).unwrap();
    server.run(&["create", "-f", &file]).unwrap();
    server
}

fn delete(server: &Server, cascade: &str) {
    let cascade = format!("--cascade={cascade}");
    let deleted = server.run(&["delete", "deploy", "web", &cascade, "--timeout=60s"]);
    assert_eq!(deleted.unwrap(), "deployment.apps \"web\" deleted\n");
}

const NOT_FOUND: &str = "Error from server (NotFound): configmaps \"owned\" not found\n";

#[tokio::test]
async fn in_the_foreground() {
    let server = with_owner().await;
    delete(&server, "foreground");
    // kubectl waits for the owner, which waits for what it owns.
    assert_eq!(refused(&server, &["get", "cm", "owned"]), NOT_FOUND);
}

#[tokio::test]
async fn in_the_background() {
    let server = with_owner().await;
    delete(&server, "background");
    let gone = ["wait", "--for=delete", "cm/owned", "--timeout=60s"];
    server.run(&gone).unwrap();
    assert_eq!(refused(&server, &["get", "cm", "owned"]), NOT_FOUND);
}

#[tokio::test]
async fn and_orphan() {
    let server = with_owner().await;
    delete(&server, "orphan");
    assert_eq!(
        value(&server, "cm/owned", ".metadata.ownerReferences"),
        "",
        "nobody owns it"
    );
}
