//! The HTTP edge: turns requests into commands of the core, and answers of the core into responses.

mod access_log;
mod api;
mod audit;
mod authenticate;
mod body;
mod command;
mod discovery;
mod dispatch;
mod health;
mod in_flight;
mod listen;
mod media_types;
mod metrics;
mod negotiate;
mod openapi;
mod openid;
mod options;
mod request;
mod request_info;
mod respond;
mod tagged;
mod turns;

pub use api::{Api, ApiOptions, StartError};
pub use audit::{AuditDelivery, AuditFileOptions, AuditLog, AuditMode, AuditWebhookOptions};
pub use listen::Listener;
pub use respond::ResponseBody;
