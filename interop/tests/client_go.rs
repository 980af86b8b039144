//! client-go, by the program in `go/`: typed, dynamic and metadata clients, informers, server-side apply, leader election, events.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use interop::{Server, directory, said};

#[tokio::test]
async fn what_controllers_do_with_client_go() {
    let mut go = Command::new("go");
    if go.arg("version").output().is_err() {
        // Past the capture of tests that pass, so that whoever runs them knows.
        writeln!(std::io::stderr(), "skipped: client-go (no Go toolchain)").unwrap();
        return;
    }
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("client-go");
    // Go builds again only what has changed. One that is older than go.mod wants fetches the one that it names.
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .env("GOTOOLCHAIN", "auto")
        .current_dir(directory().join("go"))
        .output();
    said(&built.unwrap()).unwrap();
    let server = Server::start().await.unwrap();
    let output = said(&server.command(&program).output().unwrap()).unwrap();
    assert!(output.ends_with("client-go is at home\n"), "{output}");
}
