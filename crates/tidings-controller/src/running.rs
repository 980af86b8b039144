//! The reconciles that run now, for whoever looks at a controller that seems to hang.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tidings_api::ObjectKey;
use tokio::time::Instant;

/// How many reconciles are shown: those that have run longest.
const SHOWN_MAX: usize = 50;

/// The reconciles that run now. Bound: the concurrency of the controller.
#[derive(Debug, Default)]
pub(crate) struct RunningReconciles(Mutex<HashMap<ObjectKey, RunningReconcile>>);

#[derive(Debug)]
struct RunningReconcile {
    since: Instant,
    attempt: u32,
    cause: String,
}

impl RunningReconciles {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, RunningReconcile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reconcile until what this returns is dropped.
    pub(crate) fn begin(&self, key: &ObjectKey, attempt: u32, cause: String) -> RunningGuard<'_> {
        let running = RunningReconcile {
            since: Instant::now(),
            attempt,
            cause,
        };
        self.lock().insert(key.clone(), running);
        RunningGuard {
            running: self,
            key: key.clone(),
        }
    }

    /// What runs now, longest first, as JSON.
    pub(crate) fn figures(&self) -> Vec<Value> {
        let running = self.lock();
        let mut running: Vec<_> = running.iter().collect();
        running.sort_by_key(|(_, reconcile)| reconcile.since);
        let shown = running.into_iter().take(SHOWN_MAX);
        let figures = shown.map(|(key, reconcile)| {
            json!({
                "object": key.as_str(),
                "attempt": reconcile.attempt,
                "cause": reconcile.cause,
                "seconds": reconcile.since.elapsed().as_secs_f64(),
            })
        });
        figures.collect()
    }
}

/// Notes the end of a reconcile when it is dropped, also by an abort or a panic.
#[derive(Debug)]
pub(crate) struct RunningGuard<'a> {
    running: &'a RunningReconciles,
    key: ObjectKey,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_runs_is_shown_longest_first_until_it_ends() {
        let running = RunningReconciles::default();
        let key = |name| ObjectKey::new("default", name);
        let _a = running.begin(&key("a"), 1, "added".to_owned());
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let b = running.begin(&key("b"), 3, "again".to_owned());
        let shown = running.figures();
        let expected =
            json!({"object": "default/a", "attempt": 1, "cause": "added", "seconds": 2.0});
        assert_eq!(shown[0], expected);
        assert_eq!(shown[1]["attempt"], 3);
        drop(b);
        assert_eq!(running.figures().len(), 1);
    }
}
