//! Measures custom resources: the time until a definition is served, and the cost of its objects.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tidings_testing::Server;

use crate::scenario::{fill_with, list_of, object};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The number of definitions that are measured.
const DEFINED: usize = 20;

fn definition(plural: &str, kind: &str) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{plural}.bench.tidings.dev"}},"spec":{{"group":"bench.tidings.dev","names":{{"plural":"{plural}","kind":"{kind}"}},"scope":"Namespaced","versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"data":{{"type":"object","properties":{{"sent":{{"type":"string"}},"fill":{{"type":"string","maxLength":4096}},"color":{{"type":"string","default":"red","enum":["red","blue"]}}}},"x-kubernetes-validations":[{{"rule":"self.color != 'blue' || self.fill.size() < 100"}}]}}}}}}}}}}]}}}}"#
    )
    .into_bytes()
}

fn path(plural: &str) -> String {
    format!("/apis/bench.tidings.dev/v1/namespaces/default/{plural}")
}

/// An object of the usual size.
fn instance(kind: &str, name: &str) -> Vec<u8> {
    let head = format!(r#"{{"apiVersion":"bench.tidings.dev/v1","kind":"{kind}","#);
    let mut body = head.into_bytes();
    body.extend_from_slice(&object(name)[1..]);
    body
}

/// Creates a definition and its first object. Returns the time until the object was created.
pub(crate) async fn define(server: &Server, number: usize) -> anyhow::Result<Duration> {
    let mut connection = server.client.connect().await?;
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    let started = Instant::now();
    let body = definition(&plural, &kind);
    let (code, _) = connection.measure("POST", DEFINITIONS, &body).await?;
    ensure!(code == 201, "define: {code}");
    let body = instance(&kind, "first");
    while connection.measure("POST", &path(&plural), &body).await?.0 != 201 {
        ensure!(
            started.elapsed() < Duration::from_secs(10),
            "it is never served"
        );
    }
    Ok(started.elapsed())
}

pub(crate) async fn custom(server: &Server) -> anyhow::Result<()> {
    let mut took: Vec<Duration> = Vec::new();
    for number in 0..DEFINED {
        took.push(define(server, number).await?);
    }
    took.sort();
    let ms = |at: usize| took[at].as_secs_f64() * 1e3;
    println!(
        "from a definition to its first object: middle {:.1} ms, worst {:.1} ms of {DEFINED}",
        ms(DEFINED / 2),
        ms(DEFINED - 1)
    );
    let (cpu, count) = (server.cpu(), 10_000);
    fill_with(&server.client, count, |number| {
        (
            path("things0"),
            instance("Thing0", &format!("list{number}")),
        )
    })
    .await?;
    println!(
        "create of a custom resource, 16 writers: {:.1} us CPU each",
        (server.cpu() - cpu).as_secs_f64() * 1e6 / count as f64
    );
    list_of(server, "custom resources", count, &path("things0")).await
}
