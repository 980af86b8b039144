//! Content negotiation: the format of a request body, and the format and form of the response (W6, W37–W41).

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use tidings_api::{Reason, Status};
use tidings_schema::{Type, protobuf};

use tidings_registry::{Kind, PatchType, yaml};

use super::media_types::{
    APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC_MERGE_PATCH, YAML,
};
use super::request::Query;

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const WATCH_MEDIA_TYPES: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const DESCRIPTION_MEDIA_TYPES: &str = "application/json, application/yaml";

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    Json,
    /// Indented, for people.
    PrettyJson,
    Yaml,
    Protobuf,
}

/// What a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseContent {
    /// Objects or lists of objects.
    Objects,
    /// The events of a watch.
    Events,
    /// A document that describes the API. It has no protobuf form.
    Description,
}

/// Which part of an object is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectForm {
    Whole,
    Metadata,
    /// `PartialObjectMetadataList`, which a client asks for in place of a list of objects.
    MetadataList,
    Table,
}

/// The representation that the client accepts and the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedRepresentation {
    pub(crate) format: DocumentFormat,
    pub(crate) form: ObjectForm,
    /// The version of `meta.k8s.io` for tables and metadata: `v1` or `v1beta1`.
    pub(crate) meta_version: &'static str,
}

/// One clause of an Accept header.
struct AcceptClause<'a> {
    media_type: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> AcceptClause<'a> {
    fn read(text: &'a str) -> AcceptClause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts
            .map(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                (name.trim(), value.trim().trim_matches('"'))
            })
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        AcceptClause {
            media_type,
            quality: quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(1.0)),
            parameters,
        }
    }

    fn format(&self) -> Option<DocumentFormat> {
        match self.media_type {
            JSON | "application/*" | "*/*" => Some(DocumentFormat::Json),
            YAML => Some(DocumentFormat::Yaml),
            PROTOBUF => Some(DocumentFormat::Protobuf),
            _ => None,
        }
    }

    fn parameter(&self, wanted: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| *value)
    }

    /// The representation that the clause asks for, if the server has it. Unknown parameters are ignored (W39).
    fn accepted(&self) -> Option<AcceptedRepresentation> {
        let format = match (self.format()?, self.parameter("pretty")) {
            (DocumentFormat::Json, Some("1")) => DocumentFormat::PrettyJson,
            (format, _) => format,
        };
        if self
            .parameter("stream")
            .is_some_and(|stream| stream != "watch")
        {
            return None;
        }
        let form = match self.parameter("as").filter(|form| !form.is_empty()) {
            None if self.parameter("g").is_some() || self.parameter("v").is_some() => return None,
            None => ObjectForm::Whole,
            // The cells of a table are any JSON, which protobuf cannot express (W126).
            Some("Table") if format == DocumentFormat::Protobuf => return None,
            Some("Table") => ObjectForm::Table,
            Some("PartialObjectMetadata") => ObjectForm::Metadata,
            Some("PartialObjectMetadataList") => ObjectForm::MetadataList,
            Some(_) => return None,
        };
        let meta_version = match (form, self.parameter("g"), self.parameter("v")) {
            (ObjectForm::Whole, _, _) | (_, Some("meta.k8s.io"), Some("v1")) => "v1",
            (_, Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
            _ => return None,
        };
        Some(AcceptedRepresentation {
            format,
            form,
            meta_version,
        })
    }
}

/// Chooses the representation of the response from the Accept header, or 406 (W37–W39). `has_messages` is true if the kind has a protobuf
/// form.
pub(crate) fn accepted(
    headers: &HeaderMap,
    query: &Query,
    offer: ResponseContent,
    has_messages: bool,
) -> Result<AcceptedRepresentation, Status> {
    tracing::trace!(target: "tidings::walk", "chooses the format of the answer");
    let clauses = clauses(headers);
    let has_protobuf = offer != ResponseContent::Description;
    let produced = |clause: &AcceptClause<'_>| match clause.media_type {
        "*/*" | JSON | YAML => true,
        PROTOBUF => has_protobuf,
        _ => false,
    };
    if !clauses.iter().any(produced) {
        return Err(Status::not_produced(&match offer {
            ResponseContent::Objects => MEDIA_TYPES.to_owned(),
            ResponseContent::Events => format!("{MEDIA_TYPES}, {WATCH_MEDIA_TYPES}"),
            ResponseContent::Description => DESCRIPTION_MEDIA_TYPES.to_owned(),
        }));
    }
    let mut possible = clauses
        .iter()
        .filter(|clause| clause.quality > 0.0 || !prefers_stored(headers))
        .filter_map(AcceptClause::accepted)
        .filter(|found| {
            // Of a custom resource only the metadata has a protobuf form (W43).
            let whole = found.form == ObjectForm::Whole;
            found.format != DocumentFormat::Protobuf || (has_protobuf && (has_messages || !whole))
        });
    let mut best = possible.next();
    if let Some(first) = best
        && first.format == DocumentFormat::Protobuf
        && prefers_stored(headers)
    {
        let mut same_content = possible
            .filter(|other| (other.form, other.meta_version) == (first.form, first.meta_version));
        best = same_content
            .find(|other| other.format == DocumentFormat::Json)
            .or(best);
    }
    match best {
        // There is no stream of events in YAML (W91).
        Some(accepted)
            if offer == ResponseContent::Events && accepted.format == DocumentFormat::Yaml =>
        {
            Err(only_accepts(WATCH_MEDIA_TYPES))
        }
        Some(accepted) => Ok(AcceptedRepresentation {
            format: pretty(accepted.format, headers, query),
            ..accepted
        }),
        None => Err(not_acceptable()),
    }
}

/// True if the client prefers aggregated discovery to the other forms that the server has (W29).
pub(crate) fn wants_aggregated(headers: &HeaderMap) -> bool {
    let aggregated = |clause: &AcceptClause<'_>| {
        let named = |name, value| clause.parameter(name) == Some(value);
        clause.media_type == JSON
            && named("as", "APIGroupDiscoveryList")
            && named("g", "apidiscovery.k8s.io")
            && named("v", "v2")
    };
    let clauses = clauses(headers);
    let best = clauses.iter().find(|clause| {
        aggregated(clause)
            || clause.accepted().is_some_and(|found| {
                found.form == ObjectForm::Whole && found.format != DocumentFormat::Protobuf
            })
    });
    best.is_some_and(aggregated)
}

/// The format of a `Status`: one that the client accepts, or indented JSON if there is none (W41).
pub(crate) fn status_format(headers: &HeaderMap, query: &Query) -> DocumentFormat {
    let plain = |clause: &AcceptClause<'_>| {
        clause
            .accepted()
            .filter(|found| found.form == ObjectForm::Whole)
    };
    match clauses(headers).iter().find_map(plain) {
        Some(accepted) => pretty(accepted.format, headers, query),
        None => DocumentFormat::PrettyJson,
    }
}

/// 406 for a client that accepts none of the representations that the server has.
pub(crate) fn not_acceptable() -> Status {
    only_accepts(MEDIA_TYPES)
}

fn only_accepts(media_types: &str) -> Status {
    let message = format!("only the following media types are accepted: {media_types}");
    Status::failure(406, Reason::NotAcceptable, message)
}

/// True if the client prefers, of the formats that it accepts, the one in which objects are kept (RFC 7240): JSON.
fn prefers_stored(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|preference| preference.trim() == "format=stored")
}

/// The clauses of the Accept header, best first. Without the header everything is accepted.
fn clauses(headers: &HeaderMap) -> Vec<AcceptClause<'_>> {
    let accept = headers
        .get(ACCEPT)
        .map_or("", |value| value.to_str().unwrap_or("?"));
    let accept = if accept.trim().is_empty() {
        "*/*"
    } else {
        accept
    };
    let mut clauses: Vec<AcceptClause<'_>> = accept.split(',').map(AcceptClause::read).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// Indents JSON if the query asks for it, or if the client is a browser or a command-line tool (W6).
fn pretty(format: DocumentFormat, headers: &HeaderMap, query: &Query) -> DocumentFormat {
    if format != DocumentFormat::Json {
        return format;
    }
    let wanted = match query.get("pretty").filter(|text| !text.is_empty()) {
        Some(text) => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = headers
                .get(USER_AGENT)
                .and_then(|value| value.to_str().ok());
            let people = ["curl", "Wget", "Mozilla/5.0"];
            agent.is_some_and(|agent| people.iter().any(|name| agent.starts_with(name)))
        }
    };
    if wanted {
        DocumentFormat::PrettyJson
    } else {
        format
    }
}

/// True if the client accepts gzip (W8).
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|encoding| encoding.trim() == "gzip")
}

/// The media type of the body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .map_or("", |value| value.to_str().unwrap_or("?"));
    value.split(';').next().unwrap_or_default().trim()
}

/// The format of the body of a request (W40).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl BodyFormat {
    /// The format that Content-Type names, or 415.
    pub(crate) fn of(headers: &HeaderMap) -> Result<BodyFormat, Status> {
        match content_type(headers).to_ascii_lowercase().as_str() {
            "" | JSON => Ok(BodyFormat::Json),
            YAML => Ok(BodyFormat::Yaml),
            PROTOBUF => Ok(BodyFormat::Protobuf),
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {MEDIA_TYPES}"
                );
                Err(Status::failure(415, Reason::UnsupportedMediaType, message))
            }
        }
    }

    /// The body as JSON. `expected` is its type if the body does not name one.
    pub(crate) fn to_json(
        self,
        body: &Bytes,
        expected: Option<&'static Type>,
    ) -> Result<Bytes, UnreadableBody> {
        match self {
            BodyFormat::Json => Ok(body.clone()),
            BodyFormat::Yaml => yaml::to_json(body).map_err(UnreadableBody::Unrecognized),
            BodyFormat::Protobuf => from_protobuf(body, expected),
        }
    }
}

/// Why a body cannot be read.
#[derive(Debug)]
pub(crate) enum UnreadableBody {
    /// It does not name its kind.
    Unrecognized(String),
    /// It names its kind, but cannot be decoded as that kind.
    Unhandled {
        /// The kind that it names.
        kind: String,
        version: String,
        why: String,
    },
}

/// Decodes a protobuf body with its envelope (W42).
fn from_protobuf(body: &[u8], expected: Option<&'static Type>) -> Result<Bytes, UnreadableBody> {
    let start = || -> String {
        let start = body.iter().take(30);
        start.map(|byte| format!("{byte:02x}")).collect()
    };
    if body.is_empty() {
        return Err(UnreadableBody::Unrecognized("empty data (<empty>)".into()));
    }
    if !protobuf::is_protobuf(body) {
        return Err(UnreadableBody::Unrecognized(format!(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})",
            start()
        )));
    }
    let envelope = protobuf::decode_envelope(body)
        .map_err(|error| UnreadableBody::Unrecognized(format!("{error} ({})", start())))?;
    let object =
        protobuf::decode_object(body, expected).map_err(|error| match envelope.kind.as_str() {
            "" => UnreadableBody::Unrecognized(error.to_string()),
            kind => UnreadableBody::Unhandled {
                kind: kind.to_owned(),
                version: envelope.group_version().1.to_owned(),
                why: error.to_string(),
            },
        })?;
    Ok(object.into())
}

/// What the body of a PATCH is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchFormat {
    /// A configuration for server-side apply.
    Apply,
    Patch(PatchType),
}

/// What the body of a PATCH is, by its media type.
///
/// # Errors
/// With 415, if the kind does not support the media type (W149).
pub(crate) fn patch_format(headers: &HeaderMap, kind: &Kind) -> Result<PatchFormat, Status> {
    let unsupported = |message| Status::failure(415, Reason::UnsupportedMediaType, message);
    match &*content_type(headers).to_ascii_lowercase() {
        APPLY_PATCH => Ok(PatchFormat::Apply),
        JSON_PATCH => Ok(PatchFormat::Patch(PatchType::Json)),
        MERGE_PATCH => Ok(PatchFormat::Patch(PatchType::Merge)),
        STRATEGIC_MERGE_PATCH if kind.schema.is_some() => {
            Ok(PatchFormat::Patch(PatchType::Strategic))
        }
        _ if kind.schema.is_none() => Err(unsupported(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
             application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(unsupported("415: Unsupported Media Type").with_empty_details()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn ask(accept: &'static str) -> Result<AcceptedRepresentation, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        accepted(&headers, &Query::default(), ResponseContent::Objects, true)
    }

    fn format(accept: &'static str) -> Option<DocumentFormat> {
        ask(accept).ok().map(|accepted| accepted.format)
    }

    #[test]
    fn w37_the_best_clause_wins() {
        assert_eq!(format("*/*"), Some(DocumentFormat::Json));
        assert_eq!(format(""), Some(DocumentFormat::Json));
        assert_eq!(format("application/yaml"), Some(DocumentFormat::Yaml));
        assert_eq!(
            format("application/json;q=0.5, application/yaml"),
            Some(DocumentFormat::Yaml)
        );
        assert_eq!(
            format("application/vnd.kubernetes.protobuf,application/json"),
            Some(DocumentFormat::Protobuf)
        );
    }

    #[test]
    fn a_client_may_prefer_the_format_in_which_objects_are_kept() {
        let ask = |accept, prefer| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            headers.insert("prefer", HeaderValue::from_static(prefer));
            accepted(&headers, &Query::default(), ResponseContent::Objects, true).unwrap()
        };
        let either = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(ask(either, "format=stored").format, DocumentFormat::Json);
        assert_eq!(
            ask(either, "wait=1, format=stored").format,
            DocumentFormat::Json
        );
        assert_eq!(ask(either, "wait=1").format, DocumentFormat::Protobuf);
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(
            ask(protobuf, "format=stored").format,
            DocumentFormat::Protobuf
        );
        // The content is still that of the first clause.
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json,\
            application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let found = ask(metadata, "format=stored");
        assert_eq!(
            (found.format, found.form),
            (DocumentFormat::Json, ObjectForm::Metadata)
        );
    }

    #[test]
    fn w38_media_types_that_the_server_does_not_produce_are_refused() {
        let router = ask("text/html").unwrap_err();
        assert!(
            router
                .message
                .starts_with("406: Not Acceptable\n\nAvailable")
        );
        assert_eq!(ask("application/cbor").unwrap_err().code, 406);
        assert_eq!(ask("application/*").unwrap_err().message, router.message);
        let transform = ask("application/json;as=Foo;g=meta.k8s.io;v=v1").unwrap_err();
        assert!(
            transform
                .message
                .starts_with("only the following media types")
        );
    }

    #[test]
    fn w39_unknown_parameters_are_ignored_but_not_other_streams() {
        assert_eq!(
            format("application/json;foo=bar"),
            Some(DocumentFormat::Json)
        );
        assert_eq!(
            format("application/json;stream=watch"),
            Some(DocumentFormat::Json)
        );
        assert_eq!(format("application/json;stream=other"), None);
    }

    #[test]
    fn w126_a_table_needs_group_and_version_of_the_meta_group() {
        let table = ask("application/json;as=Table;v=v1beta1;g=meta.k8s.io").unwrap();
        assert_eq!(
            (table.form, table.meta_version),
            (ObjectForm::Table, "v1beta1")
        );
        assert!(ask("application/json;as=Table;v=v1").is_err());
        let fallback = ask("application/json;as=Table;v=v9;g=meta.k8s.io,application/json");
        assert_eq!(fallback.unwrap().form, ObjectForm::Whole);
    }

    #[test]
    fn w6_curl_gets_indented_json() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("curl/8.0"));
        let format = |query: &str| {
            accepted(
                &headers,
                &Query::parse(query),
                ResponseContent::Objects,
                true,
            )
            .unwrap()
            .format
        };
        assert_eq!(format(""), DocumentFormat::PrettyJson);
        assert_eq!(format("pretty=false"), DocumentFormat::Json);
        assert_eq!(format("pretty=0"), DocumentFormat::Json);
        let none = HeaderMap::new();
        let asked = accepted(
            &none,
            &Query::parse("pretty=true"),
            ResponseContent::Objects,
            true,
        )
        .unwrap();
        assert_eq!(asked.format, DocumentFormat::PrettyJson);
    }

    #[test]
    fn w8_gzip_is_accepted_only_as_a_plain_token() {
        let mut headers = HeaderMap::new();
        assert!(!takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("deflate, gzip"));
        assert!(takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0.5"));
        assert!(!takes_gzip(&headers));
    }
}
