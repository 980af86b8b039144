//! The vocabulary of list and watch.
//!
//! Everything that a server and a client of the Kubernetes API have to agree on before either does any I/O:
//! what a resource is called, how its objects are keyed and ordered, what a `resourceVersion` is, which list options go
//! together, how selectors read, what an error looks like, and how a stream of bytes becomes objects.
//!
//! There is no I/O, no clock and no async code here: every function maps inputs to outputs.
//!
//! ```
//! use tidings_api::{ListSplitter, SplitOptions};
//!
//! let body = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[
//!     {"metadata":{"name":"a","namespace":"default","resourceVersion":"5"}}]}"#;
//! let mut splitter = ListSplitter::new(SplitOptions::default());
//! let mut names = Vec::new();
//! for chunk in body.chunks(10) {
//!     splitter.feed(chunk, |object| names.push(object.name().into_owned()))?;
//! }
//! let list = splitter.finish()?;
//! assert_eq!(names, ["a"]);
//! assert_eq!(list.metadata.resource_version, "7");
//! # Ok::<(), tidings_api::SplitError>(())
//! ```

mod cause;
mod event;
mod event_type;
mod field_error;
mod key;
mod lookup;
mod object;
mod options;
mod resource;
mod revision;
mod scan;
mod selector;
mod spans;
mod splitter;
mod status;
mod unstamped;
pub mod validate;

pub use tidings_go as go;

pub use cause::Cause;
pub use event::{INITIAL_EVENTS_END, WatchEvent};
pub use event_type::EventType;
pub use field_error::{FieldError, FieldErrors};
pub use key::{KeyError, ObjectKey};
pub use object::{Labels, Object};
pub use options::{ListOptions, OptionsError, ResourceVersionMatch};
pub use resource::{GroupResource, GroupVersion, GroupVersionKind};
pub use revision::ResourceVersion;
pub use scan::ScanError;
pub use selector::{FieldSelector, FieldTerm, LabelSelector, SelectorError};
pub use spans::{Span, Spans};
pub use splitter::{
    ListEnvelope, ListMetadata, ListSplitter, SplitError, SplitOptions, WatchSplitter,
};
pub use status::{Reason, Status, StatusDetails};
pub use unstamped::UnstampedObject;
