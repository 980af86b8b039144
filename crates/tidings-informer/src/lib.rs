//! The client half of list and watch.
//!
//! A [`ListerWatcher`] knows how to list the objects of a resource and how to follow their changes. A [`Reflector`] drives one:
//! it lists, watches from there, resumes when a watch ends, lists again when the server has forgotten the version, and keeps a
//! [`ReflectorStore`] up to date with what it sees.

mod reflector;
mod source;

pub use reflector::{Reflector, ReflectorStore};
pub use source::{BoxFuture, EventStream, List, ListerWatcher, SourceError};
