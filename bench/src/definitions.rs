//! Measures hundreds of definitions: the memory that they take, and the documents that describe them.
//!
//! The definitions are made here, in the shape of those of real projects: about 50 KB each, nested, described at length, with defaults and rules.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tidings_testing::{Connection, Server};

use crate::figures;
use crate::scenario::{Extent, mebibytes};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How many definitions there are.
const SIZES: [usize; 2] = [100, 600];
/// How many values the schema of a definition has.
const VALUES: usize = 270;
/// How long the server has to serve the last definition.
const PATIENCE: Duration = Duration::from_secs(600);

/// Writes the properties of an object of about `values` values, which stands in some objects and lists.
fn properties(
    random: &mut fastrand::Rng,
    schema: &mut String,
    values: usize,
    objects: usize,
    lists: usize,
) {
    let mut left = values;
    let mut separator = "";
    while left > 0 {
        let name = format!("{}{}", WORDS[random.usize(..WORDS.len())], left);
        let described: Vec<&str> = (0..random.usize(6..24))
            .map(|_| WORDS[random.usize(..WORDS.len())])
            .collect();
        let described = described.join(" ");
        // Writing to a String cannot fail.
        let _ = write!(
            schema,
            r#"{separator}"{name}":{{"description":"{described}","#
        );
        separator = ",";
        let nests = objects < 7 && left > 4 && random.u8(..3) == 0;
        if nests {
            let inner = random.usize(2..=left.min(60));
            left -= inner;
            let is_list = random.bool();
            if is_list {
                schema.push_str(r#""type":"array","maxItems":16,"items":{"#);
            }
            schema.push_str(r#""type":"object","#);
            let lists = lists + usize::from(is_list);
            // In more lists a rule could cost more than servers allow.
            let is_ruled = lists <= 2 && random.u8(..3) == 0;
            if is_ruled {
                schema.push_str(
                    r#""x-kubernetes-validations":[{"rule":"self.mode != 'Manual' || has(self.reason)","message":"a reason is needed"}],"#,
                );
            }
            schema.push_str(r#""properties":{"#);
            if is_ruled {
                schema.push_str(r#""mode":{"type":"string","enum":["Auto","Manual"],"default":"Auto"},"reason":{"type":"string","maxLength":64},"#);
            }
            properties(random, schema, inner - 1, objects + 1, lists);
            schema.push_str(if is_list { "}}}" } else { "}}" });
            continue;
        }
        left -= 1;
        schema.push_str(match random.u8(..8) {
            0 => r#""type":"integer","format":"int32","minimum":0}"#,
            1 => r#""type":"boolean","default":false}"#,
            2 => r#""type":"string","enum":["Always","Never","IfNotPresent"],"default":"Always"}"#,
            3 => r#""type":"array","items":{"type":"string"}}"#,
            4 => r#""type":"object","additionalProperties":{"type":"string"}}"#,
            5 => r#""anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}"#,
            6 => r#""type":"string","maxLength":253,"pattern":"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}"#,
            _ => r#""type":"string"}"#,
        });
    }
}

/// The words of names and descriptions.
const WORDS: [&str; 24] = [
    "selector",
    "replicas",
    "volume",
    "the",
    "container",
    "of",
    "policy",
    "template",
    "name",
    "reference",
    "a",
    "secret",
    "timeout",
    "namespace",
    "is",
    "ready",
    "when",
    "condition",
    "endpoint",
    "must",
    "certificate",
    "list",
    "backoff",
    "status",
];

fn definition(number: usize) -> String {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut spec = String::new();
    properties(&mut random, &mut spec, VALUES, 0, 0);
    let group = format!("g{}.bench.tidings.dev", number / 3);
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"shapes{number}.{group}"}},"spec":{{"group":"{group}","names":{{"plural":"shapes{number}","kind":"Shape{number}"}},"scope":"Namespaced","versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{spec}}}}},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}}}}"#
    )
}

/// The time of a GET in milliseconds, and the size of its answer.
async fn get(connection: &mut Connection, path: &str) -> anyhow::Result<(f64, usize)> {
    let begun = Instant::now();
    let (code, size) = connection.measure("GET", path, b"").await?;
    ensure!(code == 200, "GET {path}: {code}");
    Ok((begun.elapsed().as_secs_f64() * 1e3, size))
}

pub(crate) async fn definitions(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    let mut connection = server.client.connect().await?;
    connection.accept_gzip();
    let (before, mut defined) = (server.memory(), 0);
    for count in extent.sizes(&SIZES) {
        for number in defined..count {
            let body = definition(number);
            let answer = connection
                .request("POST", DEFINITIONS, body.as_bytes())
                .await?;
            let text = String::from_utf8_lossy(&answer.body);
            ensure!(answer.code == 201, "define: {} {text}", answer.code);
        }
        defined = count;
        let last = count - 1;
        let path = format!("/apis/g{}.bench.tidings.dev/v1/shapes{last}", last / 3);
        let begun = Instant::now();
        while connection.measure("GET", &path, b"").await?.0 != 200 {
            ensure!(begun.elapsed() < PATIENCE, "it is never served");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        get(&mut connection, "/openapi/v3").await?;
        // A change, after which the index is made again.
        let changed = definition(0).replace(
            r#""kind":"Shape0""#,
            r#""kind":"Shape0","shortNames":["s"]"#,
        );
        let path =
            format!("{DEFINITIONS}/shapes0.g0.bench.tidings.dev?fieldManager=bench&force=true");
        let (code, _) = connection
            .measure("PATCH", &path, changed.as_bytes())
            .await?;
        ensure!(code == 200, "apply: {code}");
        let (index, _) = get(&mut connection, "/openapi/v3").await?;
        let memory = server.memory();
        let (document, packed) = get(&mut connection, "/openapi/v2").await?;
        let packed = packed as f64 / 1e6;
        println!(
            "{count} definitions: {:.1} MiB, {:.1} MiB of them theirs; index of OpenAPI 3 after a change {index:.1} ms; OpenAPI 2 packed \
             {packed:.2} MB in {document:.0} ms",
            mebibytes(memory),
            mebibytes(memory.saturating_sub(before)),
        );
        figures::note(
            "definitions",
            count,
            &[
                ("memory", "MiB", mebibytes(memory)),
                ("index after a change", "ms", index),
                ("OpenAPI 2 packed", "MB", packed),
                ("OpenAPI 2", "ms", document),
            ],
        );
    }
    Ok(())
}
