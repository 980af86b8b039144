//! Starts servers and etcd as processes, sends them requests over HTTP/1.1 and TLS, and measures them.
//!
//! The client uses little CPU, so that measurements show the server, and it reads watches as bytes, so that tests see the exact
//! bytes on the wire.

mod client;
mod etcd;
mod process;
mod walks;

pub use client::{Client, Connection, Response};
pub use etcd::{Etcd, EtcdFiles};
pub use process::{Server, StartOptions, cpu, pause, resident, resume};
pub use walks::{WalkRecorder, check_walk};
