//! Lists and watches against a server that is a script: no sockets (but for one test), and time that
//! stands still until somebody waits.
//!
//! Tests are named after the points of the informer contract (`b126`) and of the list of what kube-runtime lacks (`k15`).

#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod answers;
mod bodies;
mod informers;
mod requests;
mod retries;
mod script;
mod sockets;
