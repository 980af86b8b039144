//! Events about objects (`events.k8s.io/v1`): what a program records, what of it is written, and the task that writes it.
//!
//! `correlator` decides and does nothing else: it takes events, answers and the time, and says what to write. `recorder` does it.

mod correlator;
mod event;
mod limiter;
mod lru;
mod options;
mod recorder;

pub use event::{NewEvent, ObjectReference};
pub use options::EventOptions;
pub use recorder::EventRecorder;
