#![doc = include_str!("../README.md")]

mod event;
mod policy;

pub use event::{AuditEvent, AuditStatus, event_list, shortened_agent, without_managed_fields};
pub use policy::{AuditDecision, AuditPolicy, Level, Stage, Stages};
