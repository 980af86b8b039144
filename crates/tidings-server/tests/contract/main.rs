//! The wire contract, point by point, asked of the server in-process.

#![allow(clippy::unwrap_used)]

mod errors;
mod lists;
mod robustness;
mod support;
mod watches;
mod writes;
