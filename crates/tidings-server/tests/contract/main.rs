//! The wire contract, point by point, asked of the server in-process.

mod errors;
mod lists;
mod robustness;
mod support;
mod watches;
mod writes;
