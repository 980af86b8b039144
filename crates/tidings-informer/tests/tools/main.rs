//! The tools beside informers: watches without a store, waiting, leader election. Points B16, B105 to B108, B121 to B125, B132.
#![cfg(not(feature = "shuttle"))] // shuttle's locks work only inside shuttle's tests
#![allow(clippy::unwrap_used)]

mod leader;
mod leader_end;
mod lease;
mod retry_watcher;
mod script;
mod synced;
mod until;
