//! The wire contract, point by point, asked of the server in-process.

#![allow(clippy::unwrap_used)]

mod creates;
mod deletes;
mod errors;
mod lists;
mod robustness;
mod support;
mod updates;
mod watches;
