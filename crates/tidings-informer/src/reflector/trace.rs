//! Traces the steps of lists that take long.

use std::time::Duration;

use tokio::time::Instant;

/// Lists that take longer are logged with their steps.
const LONG: Duration = Duration::from_secs(10);

/// The durations of the steps of one list or of initial events. Logged on drop if they took longer than [`LONG`].
#[derive(Debug)]
pub(super) struct StepTrace {
    what: &'static str,
    reflector: std::sync::Arc<str>,
    start: Instant,
    last: Instant,
    steps: Vec<(&'static str, Duration, usize)>,
}

impl StepTrace {
    pub(super) fn new(what: &'static str, reflector: std::sync::Arc<str>) -> StepTrace {
        let now = Instant::now();
        StepTrace {
            what,
            reflector,
            start: now,
            last: now,
            steps: Vec::new(),
        }
    }

    /// Records a finished step. Steps of one name in a row are added up.
    pub(super) fn step(&mut self, step: &'static str, objects: usize) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        match self.steps.last_mut() {
            Some((last, total, count)) if *last == step => {
                *total += took;
                *count += objects;
            }
            _ => self.steps.push((step, took, objects)),
        }
    }
}

impl Drop for StepTrace {
    fn drop(&mut self) {
        let total = self.start.elapsed();
        if total <= LONG {
            return;
        }
        let steps: Vec<String> = self
            .steps
            .iter()
            .map(|(step, took, objects)| match objects {
                0 => format!("{step} {took:.1?}"),
                _ => format!("{step} {took:.1?} ({objects} objects)"),
            })
            .collect();
        tracing::warn!(
            reflector = &*self.reflector,
            "{} took {total:.1?}: {}",
            self.what,
            steps.join(", ")
        );
    }
}
