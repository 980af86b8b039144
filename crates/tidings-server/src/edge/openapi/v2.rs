//! The OpenAPI 2 document, for all kinds. It is encoded kind by kind: as a tree, that of hundreds of definitions would take hundreds of
//! megabytes.

use std::collections::BTreeMap;

use tidings_json::{Map, Value, json};
use tidings_registry::Catalog;
use tidings_schema::Descriptions;

use super::schemas::Schemas;
use super::{OpenApiVersion, custom, info, paths, protobuf, put_schemas, security};

/// The formats of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum V2Format {
    Json,
    /// The message types of gnostic, for kubectl (W34).
    Protobuf,
}

/// Members of an object by name, encoded.
type EncodedMembers = BTreeMap<String, Vec<u8>>;

/// Encodes the document and gives it to `write`, piece by piece.
pub(super) fn document(kinds: &Catalog, format: V2Format, mut write: impl FnMut(&[u8])) {
    let (paths, definitions) = (all_paths(kinds, format), definitions(kinds, format));
    let rest = json!({
        "swagger": "2.0",
        "info": info(),
        "parameters": paths::shared_parameters(),
        "securityDefinitions": security(),
        "security": [{"BearerToken": []}],
    });
    if format == V2Format::Protobuf {
        protobuf::document(&rest, paths.values(), definitions.values(), write);
        return;
    }
    let mut first = b"{\"paths\":{".as_slice();
    for members in [paths, definitions] {
        write(first);
        for (at, member) in members.values().enumerate() {
            if at > 0 {
                write(b",");
            }
            write(member);
        }
        first = b"},\"definitions\":{";
    }
    write(b"}");
    for name in [
        "swagger",
        "info",
        "parameters",
        "securityDefinitions",
        "security",
    ] {
        write(format!(",\"{name}\":{}", rest[name]).as_bytes());
    }
    write(b"}\n");
}

fn all_paths(kinds: &Catalog, format: V2Format) -> EncodedMembers {
    let mut all = EncodedMembers::new();
    for kind in kinds.iter() {
        let mut paths = Map::new();
        paths::put_paths(&mut paths, kind, OpenApiVersion::V2);
        all.extend(paths.into_iter().map(|(name, path)| {
            let encoded = match format {
                V2Format::Json => member(&name, &path),
                V2Format::Protobuf => protobuf::path(&name, &path),
            };
            (name, encoded)
        }));
    }
    all
}

fn definitions(kinds: &Catalog, format: V2Format) -> EncodedMembers {
    let descriptions = Descriptions::unpack();
    let mut schemas = Schemas::new(OpenApiVersion::V2, &descriptions);
    let mut all = EncodedMembers::new();
    let encode = |name: String, schema: &Value| {
        let encoded = match format {
            V2Format::Json => member(&name, schema),
            V2Format::Protobuf => protobuf::definition(&name, schema),
        };
        (name, encoded)
    };
    for kind in kinds.iter() {
        put_schemas(&mut schemas, kind);
        let Some(defined) = kind.custom.as_deref() else {
            continue; // other kinds have the same types
        };
        for name in [custom::name(kind), custom::list_name(kind, defined)] {
            let schema = schemas.take(&name);
            all.extend(schema.map(|schema| encode(name, &schema)));
        }
    }
    schemas.put_patch();
    let shared = schemas.finish().into_iter();
    all.extend(shared.map(|(name, schema)| encode(name, &schema)));
    all
}

/// A member of a JSON object.
fn member(name: &str, value: &Value) -> Vec<u8> {
    format!("{}:{value}", Value::from(name)).into_bytes()
}
