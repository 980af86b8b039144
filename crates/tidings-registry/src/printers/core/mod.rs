//! The core group.

mod config;
mod nodes;
mod pods;
mod replication;
mod services;
mod volumes;

pub(crate) use config::{CONFIG_MAP, NAMESPACE, RESOURCE_QUOTA, SECRET, SERVICE_ACCOUNT};
pub(crate) use nodes::NODE;
pub(crate) use pods::{POD, pod_row_conditions};
pub(crate) use replication::{POD_TEMPLATE, REPLICATION_CONTROLLER};
pub(crate) use services::{ENDPOINTS, SERVICE};
pub(crate) use volumes::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM};
