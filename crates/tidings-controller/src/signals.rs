//! Signals and futures that ask a process or a controller to end.

use std::pin::pin;

/// Waits for SIGINT, and on Unix for SIGTERM. From then on a second signal ends the process at once: whoever asks twice does not want to
/// wait for reconciles that still run.
pub(crate) async fn signalled() {
    let mut signals = EndSignals::new();
    signals.next().await;
    // Lives as long as the process: nothing else hears its signals any more.
    tokio::spawn(async move {
        signals.next().await;
        tracing::error!("a second signal came, the process ends at once");
        std::process::exit(1);
    });
}

/// The signals that ask this process to end. What comes between two waits is not lost.
struct EndSignals {
    #[cfg(unix)]
    listeners: [Option<tokio::signal::unix::Signal>; 2],
}

#[cfg(unix)]
impl EndSignals {
    fn new() -> EndSignals {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        EndSignals {
            listeners: kinds.map(|kind| signal(kind).ok()),
        }
    }

    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.listeners;
        either(heard(interrupt), heard(terminate)).await;
    }
}

#[cfg(unix)]
async fn heard(listener: &mut Option<tokio::signal::unix::Signal>) {
    match listener {
        Some(listener) => drop(listener.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(not(unix))]
impl EndSignals {
    fn new() -> EndSignals {
        EndSignals {}
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Waits for the first of two.
pub(crate) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (one, other) = (pin!(one), pin!(other));
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}
