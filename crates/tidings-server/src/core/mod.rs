//! The API server without HTTP: typed commands on resources that the edge has found.
//!
//! A [`Call`] has a target, a user and a field manager; a [`Command`] says what to do with the target. [`Core::perform`] performs the command
//! and returns an [`Answer`]. All writes go through [`Resource::commit`]; reads come from caches.

mod access;
mod answer;
mod apply;
mod backup;
mod call;
pub(crate) mod clock;
mod command;
mod continue_token;
mod counts;
mod create;
mod delete;
mod edit;
mod failure;
mod get;
mod list;
mod patch;
mod perform;
mod resource;
mod review;
mod served;
mod state;
mod target;
mod update;
mod walk;
mod watch;

pub use access::Authentication;
pub(crate) use access::{RequestAttributes, User, authorize};
pub(crate) use answer::{Answer, ListHead, ObjectOutcome, OpenWatch};
pub(crate) use backup::BackupPages;
pub(crate) use call::Call;
pub(crate) use command::Command;
#[cfg(feature = "fuzzing")]
pub(crate) use continue_token::ContinueToken;
pub(crate) use delete::{DeleteOptions, Preconditions, PropagationPolicy};
pub(crate) use list::{ListCommand, parse_version};
pub(crate) use resource::{Resource, ResourceId};
pub(crate) use served::{CustomResource, ServedSet};
pub(crate) use state::{Core, CoreOptions};
pub(crate) use target::Target;
pub(crate) use walk::{ListItems, SnapshotWalk};
pub(crate) use watch::{WatchCommand, too_old};
