#![doc = include_str!("../README.md")]

mod classify;
mod level;
mod queues;

pub use classify::{Flow, FlowClassifier};
pub use level::{LevelConfig, QueueConfig};
pub use queues::{Arrival, FairQueues, LevelFigures, Refusal, Ticket};
