//! Controllers on a real API server inside the test, which can be made unreachable.

#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod applied;
mod children;
mod events;
mod events_recorded;
mod finalizers;
mod fleet;
mod fleet_changes;
mod labelled;
mod manager;
mod mapping;
mod outages;
mod permissions;
mod retries;
mod running;
mod scopes;
mod server;
mod shards;
