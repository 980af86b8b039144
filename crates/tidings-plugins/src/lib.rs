#![doc = include_str!("../README.md")]

mod annotated_class;
mod claim_resize;
mod limit_range;
mod node_taint;
mod plugin;
mod pod;
mod pod_security;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod set;
mod tolerations;
mod topology_labels;
mod use_protection;
mod write;

pub use priority::system_classes;
pub use quota::{CountedResource, Quota, QuotaCount, QuotaShare, QuotaWrite, UsedAmounts};
pub use service_account::DEFAULT_ACCOUNT;
pub use set::{PluginError, PluginSet};
pub use topology_labels::topology_labels;
pub use write::{ClusterView, Known, PluginSaid, PluginWrite};
