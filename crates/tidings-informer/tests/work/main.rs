//! Work queues, limiters and the controller loop: points B111 to B120.
#![cfg(not(feature = "shuttle"))] // its locks work inside its own tests only

mod limits;
mod model;
mod order;
mod queue;
mod run;
mod wakeups;
