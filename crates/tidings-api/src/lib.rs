#![doc = include_str!("../README.md")]

mod cause;
mod event;
mod event_type;
mod facet;
mod field_error;
mod field_paths;
mod key;
mod labels;
mod last_manager;
mod object;
mod options;
mod resource;
mod revision;
mod selector;
mod served_object;
mod spans;
mod splitter;
mod status;
mod unstamped;
pub mod validate;

pub use cause::Cause;
pub use event::{INITIAL_EVENTS_END, WatchEvent};
pub use event_type::EventType;
pub use facet::{Facet, FieldFacet};
pub use field_error::{FieldError, FieldErrors};
pub use field_paths::FieldPaths;
pub use key::{KeyError, ObjectKey};
pub use labels::Labels;
pub use object::Object;
pub use options::{ListOptions, OptionsError, ResourceVersionMatch};
pub use resource::{GroupResource, GroupVersion, GroupVersionKind};
pub use revision::ResourceVersion;
pub use selector::{
    FieldSelector, FieldTerm, LabelSelector, SelectorError, ShardField, ShardSelector, fnv1a,
};
pub use served_object::{ServedObject, event_prefix};
pub use spans::Spans;
pub use splitter::{
    ListEnvelope, ListMetadata, ListSplitter, SplitError, SplitOptions, WatchSplitter,
};
pub use status::{Reason, Status, StatusDetails};
pub use tidings_json::{ScanError, Span};
pub use unstamped::UnstampedObject;
