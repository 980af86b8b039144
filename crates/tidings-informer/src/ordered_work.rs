//! Batches that several tasks work on at once and that come back in order.
//!
//! Bound: as many batches wait as there are helpers. One more, and the caller works on one itself. Batches that are done wait for those before them,
//! which somebody is working on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
// Of the standard library, not of shuttle: its tests have no runtime, and without one there are no helpers.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Works on batches in the order that they were pushed in, with the help of other threads of the runtime.
pub(crate) struct OrderedWork<T> {
    shared: Arc<SharedWork<T>>,
}

struct SharedWork<T> {
    work: Box<dyn Fn(&mut T) + Send + Sync>,
    state: Mutex<WorkState<T>>,
    done: Condvar,
    helpers_max: usize,
}

struct WorkState<T> {
    batches: VecDeque<WorkBatch<T>>,
    /// The number of the first batch, counted from the beginning.
    first: usize,
    waiting: usize,
    helpers: usize,
}

enum WorkBatch<T> {
    Waiting(T),
    Running,
    Done(T),
}

impl<T: Send + 'static> OrderedWork<T> {
    /// Work that up to `helpers_max` tasks help with.
    pub(crate) fn new(
        helpers_max: usize,
        work: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> OrderedWork<T> {
        OrderedWork {
            shared: Arc::new(SharedWork {
                work: Box::new(work),
                state: Mutex::new(WorkState {
                    batches: VecDeque::new(),
                    first: 0,
                    waiting: 0,
                    helpers: 0,
                }),
                done: Condvar::new(),
                helpers_max,
            }),
        }
    }

    /// How many helpers can help here: none without other threads.
    pub(crate) fn helpers() -> usize {
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                handle.metrics().num_workers().saturating_sub(1)
            }
            _ => 0,
        }
    }

    /// Adds a batch. Works on one if too many wait.
    pub(crate) fn push(&mut self, batch: T) {
        let mut state = self.shared.lock();
        state.batches.push_back(WorkBatch::Waiting(batch));
        state.waiting += 1;
        let wants_helper = state.helpers < self.shared.helpers_max;
        let too_many = state.waiting > self.shared.helpers_max;
        state.helpers += usize::from(wants_helper);
        drop(state);
        if wants_helper {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                while shared.help() {
                    tokio::task::yield_now().await;
                }
            });
        }
        if too_many {
            self.shared.work_on_next();
        }
    }

    /// The next batch in order, if it is done.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.shared.lock().pop()
    }

    /// Works on all that wait and returns the next batch in order. Waits for helpers, which are in the middle of a batch. `None` if there is no
    /// more.
    pub(crate) fn finish_one(&mut self) -> Option<T> {
        while self.shared.work_on_next() {}
        let mut state = self.shared.lock();
        loop {
            if state.batches.is_empty() {
                return None;
            }
            if let Some(batch) = state.pop() {
                return Some(batch);
            }
            let waited = self.shared.done.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> WorkState<T> {
    fn pop(&mut self) -> Option<T> {
        match self.batches.pop_front() {
            Some(WorkBatch::Done(batch)) => {
                self.first += 1;
                Some(batch)
            }
            Some(other) => {
                self.batches.push_front(other);
                None
            }
            None => None,
        }
    }

    /// Takes the first batch that waits, and its number.
    fn take(&mut self) -> Option<(usize, T)> {
        let is_waiting = |batch: &WorkBatch<T>| matches!(batch, WorkBatch::Waiting(_));
        let at = self.batches.iter().position(is_waiting)?;
        match std::mem::replace(&mut self.batches[at], WorkBatch::Running) {
            WorkBatch::Waiting(batch) => {
                self.waiting -= 1;
                Some((self.first + at, batch))
            }
            _ => None,
        }
    }
}

impl<T> SharedWork<T> {
    fn lock(&self) -> MutexGuard<'_, WorkState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the first batch that waits. False if none does.
    fn work_on_next(&self) -> bool {
        let taken = self.lock().take();
        taken.is_some_and(|taken| self.run(taken))
    }

    /// Works on the first batch that waits, as a helper. False if none does: the helper counts as ended then.
    fn help(&self) -> bool {
        let mut state = self.lock();
        let taken = state.take();
        if taken.is_none() {
            // Under the same lock: who pushes a batch after this starts another helper.
            state.helpers -= 1;
        }
        drop(state);
        taken.is_some_and(|taken| self.run(taken))
    }

    fn run(&self, (number, mut batch): (usize, T)) -> bool {
        // A batch whose work has panicked comes back as far as it came: nobody waits for it for ever.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut batch)));
        let mut state = self.lock();
        let at = number - state.first;
        state.batches[at] = WorkBatch::Done(batch);
        drop(state);
        self.done.notify_all();
        true
    }
}

impl<T> Drop for OrderedWork<T> {
    fn drop(&mut self) {
        // Helpers end after the batch that they are at.
        let mut state = self.shared.lock();
        for batch in &mut state.batches {
            if matches!(batch, WorkBatch::Waiting(_)) {
                *batch = WorkBatch::Running;
            }
        }
        state.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Pushes numbers and takes them back, some on the way and the rest at the end.
    fn tens(helpers: usize, count: u32) -> (Vec<u32>, usize) {
        let most = Arc::new(AtomicUsize::new(0));
        let running = Arc::new(AtomicUsize::new(0));
        let (most_seen, now) = (Arc::clone(&most), Arc::clone(&running));
        let mut work = OrderedWork::new(helpers, move |number: &mut u32| {
            let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
            most_seen.fetch_max(at_once, Ordering::SeqCst);
            let spins = (*number * 7919) % 5000;
            (0..spins).for_each(|spin| {
                std::hint::black_box(spin);
            });
            *number *= 10;
            now.fetch_sub(1, Ordering::SeqCst);
        });
        let mut found = Vec::new();
        for number in 0..count {
            work.push(number);
            let waiting = work.shared.lock().waiting;
            assert!(waiting <= helpers, "{waiting} wait for {helpers} helpers");
            found.extend(work.pop());
        }
        found.extend(std::iter::from_fn(|| work.finish_one()));
        assert_eq!(running.load(Ordering::SeqCst), 0);
        (found, most.load(Ordering::SeqCst))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn batches_come_back_in_order_and_are_worked_on_by_several() {
        assert_eq!(OrderedWork::<u32>::helpers(), 2);
        let expected: Vec<u32> = (0..5000).map(|number| number * 10).collect();
        let mut most = 0;
        // On a busy machine a helper may not get its turn in one round.
        while most < 2 {
            let (found, at_once) = tokio::spawn(async { tens(2, 5000) }).await.unwrap();
            assert_eq!(found, expected);
            assert!(at_once <= 3);
            most = at_once;
        }
    }

    #[tokio::test]
    async fn one_thread_does_it_alone() {
        assert_eq!(OrderedWork::<u32>::helpers(), 0);
        let (found, at_once) = tens(0, 100);
        assert_eq!(
            found,
            (0..100).map(|number| number * 10).collect::<Vec<_>>()
        );
        assert_eq!(at_once, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_does_not_stop_the_rest() {
        let mut work = OrderedWork::new(1, |number: &mut u32| {
            assert!(*number != 3, "on purpose");
            *number *= 10;
        });
        (0..6).for_each(|number| work.push(number));
        let found: Vec<u32> = std::iter::from_fn(|| work.finish_one()).collect();
        assert_eq!(found, [0, 10, 20, 3, 40, 50]);
    }
}
