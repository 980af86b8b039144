//! What took so long.

use std::time::Duration;

use tokio::time::Instant;

/// Work that takes longer is traced.
const LONG: Duration = Duration::from_secs(10);

/// The steps of one list or first stream, logged when it ends if it took long.
#[derive(Debug)]
pub(super) struct Trace {
    what: &'static str,
    reflector: std::sync::Arc<str>,
    start: Instant,
    last: Instant,
    steps: Vec<(&'static str, Duration, usize)>,
}

impl Trace {
    pub(super) fn new(what: &'static str, reflector: std::sync::Arc<str>) -> Trace {
        let now = Instant::now();
        Trace {
            what,
            reflector,
            start: now,
            last: now,
            steps: Vec::new(),
        }
    }

    /// A step is done; a step of the same name as the last continues it.
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

impl Drop for Trace {
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
