//! Lists and watches against a scripted server: without sockets (except for one test), and with paused time.
//!
//! Tests are named after the points of the informer contract (`b126`) and of the list of what kube-runtime lacks (`k15`).

#![allow(clippy::unwrap_used)] // clippy does not see test helpers as tests

mod answers;
mod bodies;
mod informers;
mod leases;
mod observed;
mod protobuf;
mod requests;
mod retries;
mod script;
mod sockets;
