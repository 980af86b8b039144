//! How a response shows objects: whole, only their metadata, or as rows of a table (W126-W131).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{EventType, Object, Reason, ResourceVersion, ServedObject, Status, event_prefix};
use tidings_go::{json_text, quote};
use tidings_json::Value;
use tidings_registry::Kind;
use tidings_schema::Type;

use super::list_meta::{metadata_members, sorted_metadata_members};
use crate::core::{ListHead, clock};
use crate::edge::negotiate::{self, AcceptedRepresentation, DocumentFormat, ObjectForm};
use crate::edge::request::Query;

/// How much of an object a table row contains besides the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableInclude {
    None,
    Metadata,
    Object,
}

/// How a response shows the objects of one kind.
#[derive(Debug, Clone)]
pub(crate) struct ObjectView {
    pub(crate) kind: Arc<Kind>,
    pub(crate) format: DocumentFormat,
    pub(super) form: ObjectForm,
    pub(super) meta_version: &'static str,
    include: TableInclude,
    /// The type for encoding protobuf: that of the kind, or of metadata.
    pub(super) schema: Option<&'static Type>,
}

impl ObjectView {
    pub(crate) fn new(
        kind: Arc<Kind>,
        accepted: AcceptedRepresentation,
        query: &Query,
    ) -> Result<ObjectView, Status> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => TableInclude::Metadata,
            "Object" => TableInclude::Object,
            "None" => TableInclude::None,
            other if accepted.form == ObjectForm::Table => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                     'Object', 'None', or empty",
                    quote(other)
                )));
            }
            _ => TableInclude::Metadata,
        };
        let schema = match (accepted.format, accepted.form) {
            (DocumentFormat::Protobuf, ObjectForm::Whole) => {
                Some(kind.schema.ok_or_else(negotiate::not_acceptable)?)
            }
            (DocumentFormat::Protobuf, _) => tidings_schema::find_type("meta/v1", "ObjectMeta"),
            _ => None,
        };
        Ok(ObjectView {
            kind,
            format: accepted.format,
            form: accepted.form,
            meta_version: accepted.meta_version,
            include,
            schema,
        })
    }

    /// True if the stored bytes of an object can be sent as they are, without a copy.
    pub(crate) fn is_plain(&self, object: &Object) -> bool {
        self.form == ObjectForm::Whole && !self.is_protobuf() && self.kind.shows_as_stored(object)
    }

    /// The same view in plain JSON.
    pub(crate) fn in_json(&self) -> ObjectView {
        ObjectView {
            format: DocumentFormat::Json,
            schema: None,
            ..self.clone()
        }
    }

    pub(crate) fn is_protobuf(&self) -> bool {
        self.format == DocumentFormat::Protobuf
    }

    /// Refuses a list if the client asked for the metadata of one object, and an object if it asked for a list of metadata (W131).
    pub(crate) fn check(&self, list: bool) -> Result<(), Status> {
        let go_type = || format!("*{}.{}", self.kind.go_package, self.kind.kind);
        let message = match (self.form, list) {
            (ObjectForm::Metadata, true) => format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
                go_type()
            ),
            (ObjectForm::MetadataList, false) => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type()
            ),
            _ => return Ok(()),
        };
        Err(Status::failure(406, Reason::NotAcceptable, message))
    }

    /// Writes an object as a document. In a watch of tables only the first one has column definitions (W130).
    pub(crate) fn put_object(&self, object: &Object, with_columns: bool, out: &mut BytesMut) {
        match self.form {
            ObjectForm::Whole => out.put_slice(&self.whole(object)),
            ObjectForm::Metadata | ObjectForm::MetadataList => self.put_metadata(object, out),
            ObjectForm::Table => {
                let version = json_text(&object.resource_version());
                out.put_slice(
                    self.table_head(&format!("\"resourceVersion\":{version}"), with_columns)
                        .as_bytes(),
                );
                self.put_row(object, out);
                out.put_slice(b"]}");
            }
        }
    }

    /// Writes an object as an item of a list, mostly without `kind` and `apiVersion` (W70).
    pub(crate) fn put_item(&self, object: &Object, out: &mut BytesMut) {
        match self.form {
            ObjectForm::Whole if self.kind.sorted_members => out.put_slice(&self.whole(object)),
            ObjectForm::Whole => {
                let whole = self.whole(object);
                match self.kind.strip_head(&whole) {
                    Some(rest) => {
                        out.put_u8(b'{');
                        out.put_slice(rest);
                    }
                    // Another program wrote the object to the store in another form.
                    None => out.put_slice(&whole),
                }
            }
            ObjectForm::Metadata | ObjectForm::MetadataList => self.put_metadata(object, out),
            ObjectForm::Table => self.put_row(object, out),
        }
    }

    /// The text before the items of a list.
    pub(crate) fn list_head(&self, head: &ListHead) -> String {
        let meta = metadata_members(head);
        match self.form {
            ObjectForm::Table => self.table_head(&meta, true),
            ObjectForm::Whole if self.kind.sorted_members => {
                format!(
                    "{{\"apiVersion\":\"{}\",\"items\":[",
                    self.kind.group_version()
                )
            }
            ObjectForm::Whole => format!(
                "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{{meta}}},\"items\":[",
                self.kind.kind,
                self.kind.group_version()
            ),
            ObjectForm::Metadata | ObjectForm::MetadataList => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{}\",\"metadata\":{{{meta}}},\"items\":[",
                self.meta_version
            ),
        }
    }

    /// The text after the items of a list.
    pub(crate) fn list_tail(&self, head: &ListHead) -> String {
        match self.form {
            ObjectForm::Whole if self.kind.sorted_members => format!(
                "],\"kind\":{},\"metadata\":{{{}}}}}\n",
                json_text(&self.kind.list_kind()),
                sorted_metadata_members(head)
            ),
            _ => "]}\n".to_owned(),
        }
    }

    /// A watch event in JSON.
    pub(crate) fn event(&self, event: EventType, object: &Object, with_columns: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(object.as_bytes().len());
        out.put_slice(event_prefix(event));
        self.put_object(object, with_columns, &mut out);
        out.put_slice(b"}\n");
        out.freeze()
    }

    /// The JSON of the object in a bookmark (W109).
    pub(super) fn bookmark_object(
        &self,
        revision: ResourceVersion,
        initial_events_end: bool,
    ) -> String {
        let annotations = if initial_events_end {
            format!(
                ",\"annotations\":{{\"{}\":\"true\"}}",
                tidings_api::INITIAL_EVENTS_END
            )
        } else {
            String::new()
        };
        if self.kind.sorted_members {
            let first = annotations.strip_prefix(',').map(|text| format!("{text},"));
            return format!(
                "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{{{}\"resourceVersion\":\"{revision}\"}}}}",
                self.kind.group_version(),
                self.kind.kind,
                first.unwrap_or_default()
            );
        }
        let unset = Value::Object(self.kind.unset_members()).to_string();
        let members = match unset.strip_prefix('{') {
            Some("}") | None => "}".to_owned(),
            Some(members) => format!(",{members}"),
        };
        format!(
            "{}\"metadata\":{{\"resourceVersion\":\"{revision}\"{annotations}}}{members}",
            self.kind.object_head()
        )
    }

    /// A bookmark in JSON: `{"type":"BOOKMARK",…}`.
    pub(crate) fn bookmark(
        &self,
        revision: ResourceVersion,
        initial_events_end: bool,
        with_columns: bool,
    ) -> Bytes {
        let object = self.bookmark_object(revision, initial_events_end);
        // The bookmark's JSON already has the client's version, so it is not converted from the stored one.
        let whole = |out: &mut BytesMut| out.put_slice(object.as_bytes());
        let mut out = BytesMut::new();
        out.put_slice(event_prefix(EventType::Bookmark));
        match (self.form, Object::parse(object.clone())) {
            (ObjectForm::Whole, _) | (_, Err(_)) => whole(&mut out),
            (_, Ok(object)) => self.put_object(&object, with_columns, &mut out),
        }
        out.put_slice(b"}\n");
        out.freeze()
    }

    /// The JSON of an object, in the version of this kind.
    pub(super) fn whole<'a>(&self, object: &'a Object) -> Cow<'a, [u8]> {
        self.kind.shown(object)
    }

    fn put_metadata(&self, object: &Object, out: &mut BytesMut) {
        out.put_slice(
            format!(
                "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{}\",\"metadata\":",
                self.meta_version
            )
            .as_bytes(),
        );
        out.put_slice(metadata(object));
        out.put_u8(b'}');
    }

    fn table_head(&self, meta: &str, with_columns: bool) -> String {
        let columns = if with_columns {
            let columns = self.kind.strategy.columns(&self.kind);
            format!("[{}]", columns.join(","))
        } else {
            "null".to_owned()
        };
        format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{}\",\"metadata\":{{{meta}}},\
             \"columnDefinitions\":{columns},\"rows\":[",
            self.meta_version
        )
    }

    fn put_row(&self, object: &Object, out: &mut BytesMut) {
        let value: Value = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        let strategy = &self.kind.strategy;
        let cells = strategy.cells(&self.kind, &value, clock::timestamp());
        out.put_slice(b"{\"cells\":");
        out.put_slice(&tidings_go::json(&cells).unwrap_or_else(|_| b"[]".to_vec()));
        let conditions = strategy.row_conditions(&value);
        if !conditions.is_empty() {
            out.put_slice(b",\"conditions\":");
            out.put_slice(&tidings_go::json(&conditions).unwrap_or_else(|_| b"[]".to_vec()));
        }
        out.put_slice(b",\"object\":");
        match self.include {
            TableInclude::None => out.put_slice(b"null"),
            TableInclude::Metadata => self.put_metadata(object, out),
            TableInclude::Object => out.put_slice(&self.whole(object)),
        }
        out.put_u8(b'}');
    }
}

/// The JSON of the metadata of an object.
pub(super) fn metadata(object: &Object) -> &[u8] {
    match object.spans().metadata.of(object.as_bytes()) {
        b"" => b"{}",
        metadata => metadata,
    }
}
