//! Which representation a client speaks and wants (W6, W37–W41).

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use tidings_api::{Reason, Status};
use tidings_schema::{Type, protobuf};

use tidings_registry::yaml;

use super::request::Query;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const SPOKEN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const SPOKEN_IN_WATCHES: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const SPOKEN_OF_THE_API: &str = "application/json, application/yaml";

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    Json,
    /// With line breaks, for people.
    PrettyJson,
    Yaml,
    Protobuf,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseContent {
    /// Objects and lists of them.
    Objects,
    /// The events of a watch.
    Events,
    /// What describes the API. There is none of it in protobuf.
    Description,
}

/// What of an object is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectForm {
    Whole,
    Metadata,
    /// As one asks for it in place of a list of objects.
    MetadataList,
    Table,
}

/// What a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedRepresentation {
    pub(crate) format: DocumentFormat,
    pub(crate) form: ObjectForm,
    /// The version of `meta.k8s.io` that tables and metadata are of: `v1` or `v1beta1`.
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
            "application/json" | "application/*" | "*/*" => Some(DocumentFormat::Json),
            "application/yaml" => Some(DocumentFormat::Yaml),
            PROTOBUF => Some(DocumentFormat::Protobuf),
            _ => None,
        }
    }

    fn parameter(&self, wanted: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| *value)
    }

    /// What the clause asks for, if it can be had. Parameters that mean nothing are ignored (W39).
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
            // The cells of a table are any JSON (W126).
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

/// What the client accepts of what it asks for, or 406 (W37–W39).
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
        "*/*" | "application/json" | "application/yaml" => true,
        PROTOBUF => has_protobuf,
        _ => false,
    };
    if !clauses.iter().any(produced) {
        return Err(Status::not_produced(&match offer {
            ResponseContent::Objects => SPOKEN.to_owned(),
            ResponseContent::Events => format!("{SPOKEN}, {SPOKEN_IN_WATCHES}"),
            ResponseContent::Description => SPOKEN_OF_THE_API.to_owned(),
        }));
    }
    let best = clauses
        .iter()
        .filter_map(AcceptClause::accepted)
        .find(|found| {
            // Of a custom resource there are messages of its metadata only (W43).
            let whole = found.form == ObjectForm::Whole;
            found.format != DocumentFormat::Protobuf || (has_protobuf && (has_messages || !whole))
        });
    match best {
        // A watch is a stream of events: YAML has no such form (W91).
        Some(accepted)
            if offer == ResponseContent::Events && accepted.format == DocumentFormat::Yaml =>
        {
            Err(only(SPOKEN_IN_WATCHES))
        }
        Some(accepted) => Ok(AcceptedRepresentation {
            format: pretty(accepted.format, headers, query),
            ..accepted
        }),
        None => Err(not_acceptable()),
    }
}

/// W29: the client takes the aggregated form of discovery, and nothing that it likes better can be had.
pub(crate) fn wants_aggregated(headers: &HeaderMap) -> bool {
    let aggregated = |clause: &AcceptClause<'_>| {
        let named = |name, value| clause.parameter(name) == Some(value);
        clause.media_type == "application/json"
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

/// How a `Status` is written: as the client accepts it if that is possible, else for people (W41).
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

/// What the client accepts cannot be had of what it asks for.
pub(crate) fn not_acceptable() -> Status {
    only(SPOKEN)
}

fn only(spoken: &str) -> Status {
    let message = format!("only the following media types are accepted: {spoken}");
    Status::failure(406, Reason::NotAcceptable, message)
}

/// The clauses of the Accept header, best first. None at all means anything.
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

/// W6: people who look at JSON get it with line breaks.
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

/// W8: the client can unpack what is packed.
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
    let said = headers
        .get(CONTENT_TYPE)
        .map_or("", |value| value.to_str().unwrap_or("?"));
    said.split(';').next().unwrap_or_default().trim()
}

/// How the body of a request is written (W40).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl BodyFormat {
    /// What the header says, or 415.
    pub(crate) fn of(headers: &HeaderMap) -> Result<BodyFormat, Status> {
        match content_type(headers).to_ascii_lowercase().as_str() {
            "" | "application/json" => Ok(BodyFormat::Json),
            "application/yaml" => Ok(BodyFormat::Yaml),
            PROTOBUF => Ok(BodyFormat::Protobuf),
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {SPOKEN}"
                );
                Err(Status::failure(415, Reason::UnsupportedMediaType, message))
            }
        }
    }

    /// The body as JSON; `expected` is what it is if it does not say so.
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
    /// It does not say what it is.
    Unrecognized(String),
    /// It says what it is, and is not.
    Unhandled {
        /// What it says.
        kind: String,
        version: String,
        why: String,
    },
}

/// W42.
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
    Ok(object.to_string().into())
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
    fn w38_what_is_not_spoken_is_refused() {
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
    fn w126_tables_are_of_the_meta_group() {
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
    fn w6_people_get_line_breaks() {
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
    fn w8_gzip_is_a_token() {
        let mut headers = HeaderMap::new();
        assert!(!takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("deflate, gzip"));
        assert!(takes_gzip(&headers));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0.5"));
        assert!(!takes_gzip(&headers));
    }
}
