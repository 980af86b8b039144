//! OpenAPI documents (W32–W34): for kubectl, which validates and explains objects by them, and for generators of clients.
//!
//! A document is made at its first request and kept compressed. The descriptions of types and fields are decompressed only while it is made.
//! The index names the documents of OpenAPI 3 by tags, which are known without the documents.

mod custom;
mod paths;
mod protobuf;
mod schemas;
mod v2;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tidings_api::Status;
use tidings_json::{Map, Value, json};
use tidings_schema::Descriptions;

use tidings_registry::{Catalog, Kind};

use crate::core::ServedSet;
use crate::edge::discovery::subresources;
use crate::edge::negotiate;
use crate::edge::request::{OpenApiDocument, Query};
use crate::edge::respond::{self, ResponseBody, pack};
use crate::edge::tagged::{answer_tagged, hash};

use schemas::Schemas;
use v2::V2Format;

/// The versions of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

impl OpenApiVersion {
    /// The `$ref` of a schema.
    fn reference(self, name: &str) -> String {
        match self {
            OpenApiVersion::V2 => format!("#/definitions/{name}"),
            OpenApiVersion::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The OpenAPI documents of a served set, each made at its first request.
#[derive(Debug, Default)]
pub(crate) struct OpenApiPages {
    v2: OnceLock<CompressedDocument>,
    v2_protobuf: OnceLock<CompressedDocument>,
    /// The documents of OpenAPI 3 that were asked for, by path. They are shared by all served sets: a document is of use as long as its tag is.
    ///
    /// Bound: the groups and versions that are served.
    v3: Arc<Mutex<BTreeMap<String, CompressedDocument>>>,
    /// Held while a document is made: clients that ask for it at once wait for one.
    making: Arc<Mutex<()>>,
}

/// A document, compressed with gzip. Clones share it.
#[derive(Debug, Clone)]
struct CompressedDocument {
    bytes: Bytes,
    /// Differs from that of every other document at the same path.
    tag: String,
}

impl CompressedDocument {
    /// Compresses a document that `make` writes piece by piece.
    fn new(tag: String, make: impl FnOnce(&mut dyn FnMut(&[u8]))) -> CompressedDocument {
        let mut packer = pack::GzipEncoder::small();
        let mut packed = Vec::new();
        make(&mut |piece| packed.extend_from_slice(&packer.push(piece)));
        packed.extend_from_slice(&packer.finish());
        packed.shrink_to_fit();
        CompressedDocument {
            bytes: packed.into(),
            tag,
        }
    }

    /// The document, or 304 if the client has it already.
    fn answer(&self, headers: &HeaderMap) -> Response<ResponseBody> {
        let takes_gzip = negotiate::takes_gzip(headers);
        let mut response = answer_tagged(&self.tag, headers, || {
            if takes_gzip {
                return self.bytes.clone();
            }
            let mut bytes = Vec::new();
            // Cannot fail: the bytes were compressed here.
            let _ = GzDecoder::new(&*self.bytes).read_to_end(&mut bytes);
            bytes.into()
        });
        if takes_gzip && response.status() == StatusCode::OK {
            pack::mark(&mut response);
            let accept = HeaderValue::from_static("Accept");
            response.headers_mut().append(VARY, accept);
        }
        response
    }
}

impl OpenApiPages {
    fn v2(&self, kinds: &Catalog, format: V2Format) -> &CompressedDocument {
        let made = match format {
            V2Format::Json => &self.v2,
            V2Format::Protobuf => &self.v2_protobuf,
        };
        made.get_or_init(|| {
            let tag = tag(&format!("{format:?}"), kinds.iter());
            CompressedDocument::new(tag, |write| v2::document(kinds, format, write))
        })
    }

    /// The documents for a served set with other custom resources.
    pub(crate) fn with_other_customs(&self) -> OpenApiPages {
        OpenApiPages {
            v3: self.v3.clone(),
            making: self.making.clone(),
            ..OpenApiPages::default()
        }
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<String, CompressedDocument>> {
        self.v3.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The OpenAPI 3 document of a group and version.
    fn v3(&self, kinds: &Catalog, path: &str) -> Option<CompressedDocument> {
        let mut served = by_version(kinds);
        let kinds = served.remove(path)?;
        let tag = tag("", kinds.iter().copied());
        let _one_at_a_time = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.made().get(path).cloned();
        if let Some(made) = made.filter(|made| made.tag == tag) {
            return Some(made);
        }
        let document = v3(&kinds, &Descriptions::unpack());
        let document = CompressedDocument::new(tag, |write| {
            write(document.to_string().as_bytes());
            write(b"\n");
        });
        let mut made = self.made();
        made.retain(|known, _| served.contains_key(known));
        made.insert(path.to_owned(), document.clone());
        Some(document)
    }
}

/// The kinds of each group and version, by the path of their OpenAPI 3 document.
fn by_version(kinds: &Catalog) -> BTreeMap<String, Vec<&Arc<Kind>>> {
    let mut all: BTreeMap<String, Vec<&Arc<Kind>>> = BTreeMap::new();
    for kind in kinds.iter() {
        all.entry(base(kind)).or_default().push(kind);
    }
    all
}

/// The tag of the document of kinds in a format: it changes with the server and with the definitions of custom resources.
fn tag<'k>(format: &str, kinds: impl Iterator<Item = &'k Arc<Kind>>) -> String {
    let mut text = format!(
        "{format} {} {:x}",
        env!("CARGO_PKG_VERSION"),
        tidings_schema::fingerprint()
    );
    for kind in kinds {
        let hash = kind.custom.as_ref().map_or(0, |custom| custom.spec_hash);
        let names = [&kind.plural, &kind.kind, &kind.singular, &kind.list_kind];
        text.push_str(&format!(" {names:?} {hash:x}"));
    }
    hash(text.as_bytes())
}

/// The OpenAPI 3 document for the kinds of one group and version.
fn v3(kinds: &[&Arc<Kind>], descriptions: &Descriptions) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths(kinds, OpenApiVersion::V3),
        "components": {
            "schemas": schemas(kinds, OpenApiVersion::V3, descriptions),
            "securitySchemes": security(),
        },
    })
}

/// The media type that kubectl asks for, and the one in the response, which differ in kube-apiserver too.
const PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_SENT: HeaderValue =
    HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");

/// Answers a request for a document. Makes it on a blocking thread, because that takes long.
pub(crate) async fn answer(
    document: &OpenApiDocument,
    served: Arc<ServedSet>,
    pages: Arc<OpenApiPages>,
    parts: &Parts,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    let (document, headers) = (document.clone(), parts.headers.clone());
    let known_hash = query.get("hash").map(ToOwned::to_owned);
    let made = tokio::task::spawn_blocking(move || {
        make_answer(
            &document,
            &served.catalog,
            &pages,
            &headers,
            known_hash.as_deref(),
        )
    });
    made.await
        .map_err(|_| Status::internal("cannot make the OpenAPI document"))
}

fn make_answer(
    document: &OpenApiDocument,
    kinds: &Catalog,
    openapi: &OpenApiPages,
    headers: &HeaderMap,
    known_hash: Option<&str>,
) -> Response<ResponseBody> {
    match document {
        OpenApiDocument::V2 => {
            let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
            let asked = accept.unwrap_or_default().split(',').next();
            if asked.is_some_and(|asked| asked.trim().starts_with(PROTOBUF_ASKED)) {
                let mut response = openapi.v2(kinds, V2Format::Protobuf).answer(headers);
                response.headers_mut().insert(CONTENT_TYPE, PROTOBUF_SENT);
                return response;
            }
            openapi.v2(kinds, V2Format::Json).answer(headers)
        }
        OpenApiDocument::V3Index => {
            let entry = |(path, kinds): (String, Vec<&Arc<Kind>>)| {
                let url = format!("/openapi/v3/{path}?hash={}", tag("", kinds.into_iter()));
                (path, json!({"serverRelativeURL": url}))
            };
            let paths: Map = by_version(kinds).into_iter().map(entry).collect();
            let text = json!({ "paths": paths }).to_string();
            let mut response = respond::text(StatusCode::OK, text);
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            response.headers_mut().remove(respond::NOSNIFF);
            response
        }
        OpenApiDocument::V3(path) => {
            let Some(document) = openapi.v3(kinds, path) else {
                return respond::page_not_found();
            };
            let mut response = document.answer(headers);
            if known_hash == Some(&document.tag) {
                let forever = HeaderValue::from_static("public, immutable");
                response.headers_mut().insert(CACHE_CONTROL, forever);
            }
            response
        }
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

fn security() -> Value {
    json!({"BearerToken": {
        "description": "A token in the header Authorization.",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }})
}

/// `api/v1` or `apis/{group}/{version}`.
fn base(kind: &Kind) -> String {
    match &*kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn group_version_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "kind": kind, "version": version})
}

/// The schemas of kinds and lists, and of the other bodies of requests and responses.
fn schemas(kinds: &[&Arc<Kind>], version: OpenApiVersion, descriptions: &Descriptions) -> Map {
    let mut schemas = Schemas::new(version, descriptions);
    for kind in kinds {
        put_schemas(&mut schemas, kind);
    }
    schemas.put_patch();
    schemas.finish()
}

/// The schemas of one kind.
fn put_schemas(schemas: &mut Schemas<'_>, kind: &Kind) {
    let custom = kind.custom.as_deref();
    if let Some(custom) = custom {
        custom::put_schemas(schemas, kind, custom);
    }
    // Custom resources have no types of their own in the table, only the common ones of `v1`.
    let find = |name: &str| match custom {
        Some(_) => tidings_schema::find("", "v1", name),
        None => tidings_schema::find(&kind.group, &kind.version, name),
    };
    if let Some(of) = kind.schema {
        schemas.put(of);
    }
    if kind.review.is_some() {
        return;
    }
    if let Some(of) = find(&format!("{}List", kind.kind)).filter(|_| custom.is_none()) {
        schemas.put(of);
    }
    if let Some(of) = find("DeleteOptions") {
        let (group, version) = (&kind.group, &kind.version);
        schemas.put_shared_kind(of, group_version_kind(group, version, of.name));
    }
    if let Some(of) = find("Status") {
        schemas.put_shared_kind(of, group_version_kind("", "v1", of.name));
    }
    let parts = subresources(kind).into_iter();
    for other in parts.filter_map(|part| part.other_kind) {
        if let Some(of) = tidings_schema::find(other.group, other.version, other.kind) {
            schemas.put(of);
        }
    }
}

fn paths(kinds: &[&Arc<Kind>], version: OpenApiVersion) -> Map {
    let mut all = Map::new();
    for kind in kinds {
        paths::put_paths(&mut all, kind, version);
    }
    all.sort_keys();
    all
}
