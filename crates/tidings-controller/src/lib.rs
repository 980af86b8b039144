#![doc = include_str!("../README.md")]

mod applied;
mod apply;
mod breaker;
mod cluster;
mod conditions;
mod context;
mod controller;
mod definitions;
mod events;
mod failure_log;
mod finalizer;
mod gate;
mod handle;
mod http;
mod managed;
mod manager;
mod metrics;
mod outcome;
mod own_writes;
mod owners;
mod prepared;
mod report;
mod runner;
mod shared;
mod signals;
mod stats;
mod watch_source;
mod watched;

pub use cluster::Cluster;
pub use conditions::{NewCondition, has_condition, set_condition};
pub use context::Context;
pub use controller::Controller;
pub use definitions::{InstallError, install_definitions};
pub use events::{EventOptions, EventRecorder, NewEvent, ObjectReference};
pub use finalizer::Finalizing;
pub use handle::ControllerHandle;
pub use manager::{Manager, ManagerError};
pub use metrics::ControllerMetrics;
pub use outcome::ErrorPolicy;
pub use owners::OwnerKind;
pub use shared::{Cause, CauseKind};
pub use stats::{ControllerStats, EventStats};
pub use watch_source::Watches;

pub use tidings_informer::{Action, Cached, Predicate, RunSummary};
