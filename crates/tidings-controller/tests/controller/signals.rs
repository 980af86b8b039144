//! Signals to an operator, which is a process of its own: this test program, started again.

#![cfg(unix)]

use std::future::pending;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tidings_controller::{Action, Cached, Context, Controller, Manager};
use tidings_kube::{Scope, SourceError};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::server::Server;

const LONG: Duration = Duration::from_secs(20);
/// Set in the process of the operator: whether its reconciles end.
const ROLE: &str = "TIDINGS_TEST_OPERATOR";

/// The operator. Without the variable it is no test.
#[tokio::test(flavor = "multi_thread")]
async fn operator() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let (cluster, ends) = (server.cluster(), role == "ends");
    let (stopper, stopping) = tidings_informer::leader::StopSignal::new();
    let stopper = Arc::new(stopper);
    let manager = Manager::new()
        .controller(move || {
            let stopping = stopping.clone();
            let reconcile = move |_: Arc<Cached<ConfigMap>>, _: Context<()>| {
                let stopping = stopping.clone();
                async move {
                    println!("operator: reconciles");
                    stopping.wait().await;
                    if !ends {
                        pending::<()>().await;
                    }
                    println!("operator: has ended its reconcile");
                    Ok::<_, SourceError>(Action::AwaitChange)
                }
            };
            Controller::<ConfigMap>::new(&cluster)
                .scope(Scope::namespace("default"))
                .grace(10 * LONG)
                .start(reconcile, ())
        })
        .task("told", move |stop| {
            let stopper = Arc::clone(&stopper);
            async move {
                stop.wait().await;
                println!("operator: is asked to stop");
                stopper.raise();
            }
        });
    manager.run().await.unwrap();
    println!("operator: has ended");
    std::process::exit(0);
}

/// A running operator.
struct Operator {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Operator {
    fn start(role: &str) -> Operator {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::operator", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Operator { process, output }
    }

    /// Waits until the operator prints a line.
    async fn says(&mut self, what: &str) {
        let said = async {
            while let Some(line) = self.output.next_line().await.unwrap() {
                if line.ends_with(&format!("operator: {what}")) {
                    return true;
                }
            }
            false
        };
        assert_eq!(timeout(LONG, said).await, Ok(true), "{what}");
    }

    async fn signal(&self, signal: &str) {
        let id = self.process.id().unwrap();
        let kill = format!("kill -{signal} {id}");
        let sent = Command::new("sh").args(["-c", &kill]).status().await;
        assert!(sent.unwrap().success());
    }

    async fn code(&mut self) -> Option<i32> {
        let ended = timeout(LONG, self.process.wait()).await;
        ended.expect("the process ends").unwrap().code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_an_operator() {
    let mut operator = Operator::start("ends");
    operator.says("reconciles").await;
    operator.signal("TERM").await;
    operator.says("is asked to stop").await;
    operator.says("has ended its reconcile").await;
    operator.says("has ended").await;
    assert_eq!(operator.code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_an_operator_at_once() {
    for second in ["TERM", "INT"] {
        let mut operator = Operator::start("hangs");
        operator.says("reconciles").await;
        operator.signal("INT").await;
        operator.says("is asked to stop").await;
        operator.signal(second).await;
        assert_eq!(operator.code().await, Some(1), "{second}");
    }
}
