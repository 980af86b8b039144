//! The signal that tells the leader's work to end.

use std::future::Future;

use tokio::sync::watch;

/// Raised when the candidate was asked to stop, has lost the lead, or when the future of the election is dropped. Stays raised.
/// Clones share it.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// A signal and what raises it: for tests, and for work that several parts of a program may end. Dropping the [`Stopper`]
    /// raises the signal.
    pub fn new() -> (Stopper, StopSignal) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), StopSignal(receiver))
    }

    /// True when the work must end.
    pub fn is_raised(&self) -> bool {
        // Without a sender nothing could raise it later.
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the work must end. [`run_controller`](crate::run_controller) takes this as its `stop`.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut raised = self.0.clone();
        async move {
            // An error means that the sender was dropped, which also ends the work.
            let _ = raised.wait_for(|raised| *raised).await;
        }
    }
}

/// Raises a [`StopSignal`].
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Raises the signal. It stays raised.
    pub fn raise(&self) {
        self.0.send_replace(true);
    }
}
