//! Drives a server from outside: starts its process and etcd's, talks HTTP/1.1 over TLS to it, measures it.
//!
//! The client costs as little as it can, so that measurements are of the server, and it reads watches as bytes, so that tests
//! see what is on the wire.

mod client;
mod etcd;
mod process;

pub use client::{Client, Connection, Response};
pub use etcd::{Etcd, EtcdFiles};
pub use process::{Server, Start, cpu, pause, resume};
