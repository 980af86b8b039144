//! Tests of the wire contract, point by point, against a server in this process.

#![allow(clippy::unwrap_used)]

mod access;
mod access_webhook;
mod admission;
mod apply;
mod audit;
mod bodies;
mod certificates;
mod conversion;
mod creates;
mod custom;
mod deletes;
mod discovery;
mod errors;
mod fields;
mod flows;
mod garbage;
mod kinds;
mod late;
mod lists;
mod managed;
mod mutations;
mod namespaces;
mod patches;
mod plugins;
mod protobuf;
mod quotas;
mod representations;
mod reviews;
mod robustness;
mod selected;
mod store;
mod support;
mod tokens;
mod updates;
mod watches;
