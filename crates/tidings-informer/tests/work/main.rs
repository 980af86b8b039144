//! Work queues, limiters and the controller loop: points B111 to B120.
#![cfg(not(feature = "shuttle"))] // shuttle's locks work only inside shuttle's tests

mod limits;
mod model;
mod order;
mod queue;
mod run;
mod wakeups;
