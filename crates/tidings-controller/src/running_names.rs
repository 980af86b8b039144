//! The names of the controllers that run in a cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many controllers of each name run. Clones share it. Bound: the controllers that run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningNames(Arc<Mutex<HashMap<Arc<str>, usize>>>);

impl RunningNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a controller until a clone of the claim is dropped.
    pub(crate) fn claim(&self, name: &Arc<str>) -> NameClaim {
        let mut names = self.lock();
        let running = names.entry(Arc::clone(name)).or_default();
        *running += 1;
        NameClaim(Arc::new(ClaimedName {
            names: self.clone(),
            name: Arc::clone(name),
            is_contested: *running > 1,
            is_released: AtomicBool::new(false),
        }))
    }
}

/// That a controller of a name runs. The first clone that is dropped says that it has ended.
#[derive(Debug, Clone)]
pub(crate) struct NameClaim(Arc<ClaimedName>);

#[derive(Debug)]
struct ClaimedName {
    names: RunningNames,
    name: Arc<str>,
    is_contested: bool,
    is_released: AtomicBool,
}

impl NameClaim {
    /// True if another controller of the name ran when this one started.
    pub(crate) fn is_contested(&self) -> bool {
        self.0.is_contested
    }
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        let claimed = &self.0;
        if claimed.is_released.swap(true, SeqCst) {
            return;
        }
        let mut names = claimed.names.lock();
        match names.get_mut(&claimed.name) {
            Some(running) if *running > 1 => *running -= 1,
            _ => drop(names.remove(&claimed.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_contested_while_another_of_it_runs() {
        let (names, name) = (RunningNames::default(), Arc::from("a"));
        let first = names.claim(&name);
        let handle = first.clone();
        let second = names.claim(&name);
        assert!(!first.is_contested() && second.is_contested());
        assert!(!names.claim(&Arc::from("b")).is_contested());
        drop((handle, second));
        assert!(!names.claim(&name).is_contested(), "one clone is enough");
        drop(first);
        assert!(names.lock().is_empty());
    }
}
