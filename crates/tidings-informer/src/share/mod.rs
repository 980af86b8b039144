//! One store and one log of events, shared by many handlers.

mod builder;
mod engine;
mod event;
mod factory;
mod handler;
mod informer;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod log;
mod subscription;
mod watch;

pub use builder::InformerBuilder;
pub use event::Event;
pub use factory::{InformerKey, Laggard, NotAllSynced, SharedInformerFactory};
pub use handler::{FilteringResourceEventHandler, Pending, Registration, ResourceEventHandler};
pub use informer::{
    Closed, InformerStats, NotReached, NotSynced, SharedIndexInformer, SharedInformer, Stopped,
    WeakInformer,
};
pub use log::{Lag, LogOptions, Overflow};
pub use subscription::{FellBehind, HandlerOptions, Subscription};
pub use watch::{InformerWatch, WatchItem};
