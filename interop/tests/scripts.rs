//! The Python and the JavaScript client, each by a script beside this directory.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use interop::{Server, directory, said};

/// Where packages are installed: beside the built tests, once.
fn installed(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn run(command: &mut Command) -> String {
    said(&command.output().unwrap()).unwrap()
}

/// The interpreter with the packages of the Python client. They are installed once, by whichever test comes first.
fn python() -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let packages = installed("python");
    let python = packages.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&packages));
    }
    let requirements = directory().join("python/requirements.txt");
    run(Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
        ])
        .arg(requirements));
    python
}

#[tokio::test]
async fn the_python_client() {
    let python = python();
    let server = Server::start().await.unwrap();
    let script = directory().join("python/client.py");
    let output = run(server.command(&python).arg(script));
    assert_eq!(output, "the Python client is at home\n");
}

#[tokio::test]
async fn webhooks_in_python() {
    let python = python();
    let server = Server::start().await.unwrap();
    let script = directory().join("python/webhooks.py");
    let output = run(server.command(&python).arg(script));
    assert_eq!(output, "the Python webhooks are at home\n");
}

#[tokio::test]
async fn the_javascript_informer() {
    let packages = installed("javascript");
    for file in ["package.json", "package-lock.json", "informer.js"] {
        std::fs::copy(
            directory().join("javascript").join(file),
            packages.join(file),
        )
        .unwrap();
    }
    run(Command::new("npm")
        .args(["ci", "--silent", "--no-audit", "--no-fund"])
        .current_dir(&packages));
    let server = Server::start().await.unwrap();
    let output = run(server.command("node").arg(packages.join("informer.js")));
    assert_eq!(output, "the JavaScript client is at home\n");
}
