//! Tells the leader's work that the lead is over.

use std::future::Future;

use tokio::sync::watch;

/// Says that the lead is over, or about to be: the candidate was asked to stop, or has lost the lead. Clones share it. It stays
/// said, and is also said when the future of the election is dropped.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// True when the work is to end.
    pub fn is_raised(&self) -> bool {
        // Nobody is left who could say it later.
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the work is to end: what [`run_controller`](crate::run_controller) takes as its stop.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut raised = self.0.clone();
        async move {
            // An error says that the other side is gone, which means the same.
            let _ = raised.wait_for(|raised| *raised).await;
        }
    }
}

/// The side that says it.
#[derive(Debug)]
pub(super) struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(super) fn new() -> (Stopper, StopSignal) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), StopSignal(receiver))
    }

    pub(super) fn raise(&self) {
        self.0.send_replace(true);
    }
}
