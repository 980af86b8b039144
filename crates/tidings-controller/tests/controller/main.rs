//! Controllers on a real API server inside the test, which can be made unreachable.

#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod applied;
mod children;
mod events;
mod events_recorded;
mod finalizers;
mod fleet;
mod fleet_changes;
mod health;
mod labelled;
mod leadership;
mod log;
mod manager;
mod manager_work;
mod mapping;
mod outages;
mod permissions;
mod port;
mod refusals;
mod retries;
mod running;
mod scopes;
mod server;
mod shards;
mod signals;
