//! How a client sees objects: whole, their metadata, or rows of a table (W126–W131).

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use tidings_api::{EventType, Object, Reason, ResourceVersion, Status, go};
use tidings_json::Value;
use tidings_schema::Type;

use super::list::ListHead;
use crate::clock;
use crate::custom;
use crate::negotiate::{self, Accepted, Form, Format};
use crate::printers::core::pod_row_conditions;
use crate::printers::{self, Column};
use crate::registry::{Kind, Special};
use crate::request::Query;

/// How much of an object stands beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

/// A view of the objects of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) kind: &'static Kind,
    pub(crate) format: Format,
    pub(super) form: Form,
    pub(super) meta_version: &'static str,
    include: Include,
    /// What objects are encoded by, if they are: the kind, or its metadata.
    pub(super) schema: Option<&'static Type>,
}

impl View {
    pub(crate) fn new(
        kind: &'static Kind,
        accepted: Accepted,
        query: &Query,
    ) -> Result<View, Status> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => Include::Metadata,
            "Object" => Include::Object,
            "None" => Include::None,
            other if accepted.form == Form::Table => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                     'Object', 'None', or empty",
                    go::quote(other)
                )));
            }
            _ => Include::Metadata,
        };
        let schema = match (accepted.format, accepted.form) {
            (Format::Protobuf, Form::Whole) => {
                Some(kind.schema().ok_or_else(negotiate::not_acceptable)?)
            }
            (Format::Protobuf, _) => tidings_schema::find_type("meta/v1", "ObjectMeta"),
            _ => None,
        };
        Ok(View {
            kind,
            format: accepted.format,
            form: accepted.form,
            meta_version: accepted.meta_version,
            include,
            schema,
        })
    }

    /// True if an object is seen as it is stored, so that its bytes can be sent from where they stand.
    pub(crate) fn is_plain(&self, object: &Object) -> bool {
        let stored = match self.kind.custom {
            Some(custom) => custom.is_version_of(object),
            None => self.kind.stored_as.is_none(),
        };
        self.form == Form::Whole && stored && !self.is_protobuf()
    }

    pub(crate) fn is_protobuf(&self) -> bool {
        self.format == Format::Protobuf
    }

    /// W131: a list can be seen as a list of metadata only, an object as metadata only.
    pub(crate) fn check(&self, list: bool) -> Result<(), Status> {
        let go_type = || format!("*{}.{}", self.kind.go_package, self.kind.kind);
        let message = match (self.form, list) {
            (Form::Metadata, true) => format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
                go_type()
            ),
            (Form::MetadataList, false) => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type()
            ),
            _ => return Ok(()),
        };
        Err(Status::failure(406, Reason::NotAcceptable, message))
    }

    /// An object as a document of its own. Of several tables in one stream only the first names the columns (W130).
    pub(crate) fn put_object(&self, object: &Object, with_columns: bool, out: &mut BytesMut) {
        match self.form {
            Form::Whole => out.put_slice(&self.whole(object)),
            Form::Metadata | Form::MetadataList => self.put_metadata(object, out),
            Form::Table => {
                let version = go::quote(&object.resource_version());
                out.put_slice(
                    self.table_head(&format!("\"resourceVersion\":{version}"), with_columns)
                        .as_bytes(),
                );
                self.put_row(object, out);
                out.put_slice(b"]}");
            }
        }
    }

    /// An object as an item of a list: a built-in leaves its kind out there (W70).
    pub(crate) fn put_item(&self, object: &Object, out: &mut BytesMut) {
        match self.form {
            // A custom resource says in a list too what it is.
            Form::Whole if self.kind.custom.is_some() => out.put_slice(&self.whole(object)),
            Form::Whole => {
                out.put_u8(b'{');
                out.put_slice(&self.whole(object)[self.kind.object_head_len()..]);
            }
            Form::Metadata | Form::MetadataList => self.put_metadata(object, out),
            Form::Table => self.put_row(object, out),
        }
    }

    /// What stands before the items of a list.
    pub(crate) fn list_head(&self, head: &ListHead) -> String {
        let meta = head.json();
        match self.form {
            Form::Table => self.table_head(&meta, true),
            Form::Whole if self.kind.custom.is_some() => {
                format!(
                    "{{\"apiVersion\":\"{}\",\"items\":[",
                    self.kind.group_version()
                )
            }
            Form::Whole => format!(
                "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{{meta}}},\"items\":[",
                self.kind.kind,
                self.kind.group_version()
            ),
            Form::Metadata | Form::MetadataList => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{}\",\"metadata\":{{{meta}}},\"items\":[",
                self.meta_version
            ),
        }
    }

    /// What stands behind the items of a list. Members of custom resources are in the order of their names.
    pub(crate) fn list_tail(&self, head: &ListHead) -> String {
        match (self.form, self.kind.custom) {
            (Form::Whole, Some(custom)) => format!(
                "],\"kind\":{},\"metadata\":{{{}}}}}\n",
                go::quote(&custom.list_kind),
                head.sorted_json()
            ),
            _ => "]}\n".to_owned(),
        }
    }

    /// A watch event.
    pub(crate) fn event(&self, event: EventType, object: &Object, with_columns: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(object.as_bytes().len());
        out.put_slice(event.json_prefix());
        self.put_object(object, with_columns, &mut out);
        out.put_slice(b"}\n");
        out.freeze()
    }

    /// The object of a bookmark, as this kind shows it (W109).
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
        if self.kind.custom.is_some() {
            let first = annotations.strip_prefix(',').map(|text| format!("{text},"));
            return format!(
                "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{{{}\"resourceVersion\":\"{revision}\"}}}}",
                self.kind.group_version(),
                self.kind.kind,
                first.unwrap_or_default()
            );
        }
        format!(
            "{}\"metadata\":{{\"resourceVersion\":\"{revision}\"{annotations}}}{}}}",
            self.kind.object_head(),
            self.kind.bookmark
        )
    }

    /// `{"type":"BOOKMARK",…}`.
    pub(crate) fn bookmark(
        &self,
        revision: ResourceVersion,
        initial_events_end: bool,
        with_columns: bool,
    ) -> Bytes {
        let object = self.bookmark_object(revision, initial_events_end);
        // It stands in the form that the client sees, not in the one that is stored.
        let whole = |out: &mut BytesMut| out.put_slice(object.as_bytes());
        let mut out = BytesMut::new();
        out.put_slice(EventType::Bookmark.json_prefix());
        match (self.form, Object::parse(Bytes::from(object.clone()))) {
            (Form::Whole, _) | (_, Err(_)) => whole(&mut out),
            (_, Ok(object)) => self.put_object(&object, with_columns, &mut out),
        }
        out.put_slice(b"}\n");
        out.freeze()
    }

    /// The JSON of an object, as this kind shows it.
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
            let columns = match self.kind.live() {
                None => self.kind.printer.columns.iter().map(column).collect(),
                Some(live) => {
                    let own = custom::column_definitions(&live).into_iter();
                    let own = own.map(|definition| definition.to_string());
                    let name = std::iter::once(column(&printers::NAME));
                    name.chain(own).collect::<Vec<String>>()
                }
            };
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
        let cells = match self.kind.live() {
            None => (self.kind.printer.cells)(&value, clock::timestamp()),
            Some(live) => custom::cells(&live, &value, clock::timestamp()),
        };
        out.put_slice(b"{\"cells\":");
        out.put_slice(&go::json(&cells).unwrap_or_else(|_| b"[]".to_vec()));
        if self.kind.special == Special::Pod {
            let conditions = pod_row_conditions(&value);
            if !conditions.is_empty() {
                out.put_slice(b",\"conditions\":");
                out.put_slice(&go::json(&conditions).unwrap_or_else(|_| b"[]".to_vec()));
            }
        }
        out.put_slice(b",\"object\":");
        match self.include {
            Include::None => out.put_slice(b"null"),
            Include::Metadata => self.put_metadata(object, out),
            Include::Object => out.put_slice(&self.whole(object)),
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

fn column(column: &Column) -> String {
    format!(
        "{{\"name\":{},\"type\":\"{}\",\"format\":\"{}\",\"description\":{},\"priority\":{}}}",
        go::quote(column.name),
        column.kind,
        column.format,
        go::quote(column.description),
        column.wide
    )
}
