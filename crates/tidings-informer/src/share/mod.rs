//! One store and one log of events, shared by many handlers.

mod builder;
mod engine;
mod factory;
mod handler;
mod informer;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod lister;
mod log;
mod subscription;
mod watch;

pub use builder::InformerBuilder;
pub use factory::{InformerKey, Laggard, NotAllSynced, SharedInformerFactory};
pub use handler::{Pending, Registration};
pub use informer::{
    Closed, NotReached, NotSynced, SharedIndexInformer, SharedInformer, Stopped, WeakInformer,
};
pub use lister::{GenericLister, GenericNamespaceLister, NotFound};
pub use log::{LogOptions, Overflow};
pub use subscription::{FellBehind, HandlerOptions, Subscription};
pub use watch::{InformerWatch, WatchItem};
