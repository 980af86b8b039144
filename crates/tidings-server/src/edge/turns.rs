//! Connections take turns: of one user, no more are worked on at a time than there are processors, and of those that nobody has a name for yet, half as
//! many. A user with a thousand busy connections, or a stranger that opens ten thousand, then keeps others waiting for one step, not for a thousand.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use hyper::rt::Executor;
use tidings_access::User;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Connections of users that are forgotten when they have none.
const USERS_KEPT: usize = 256;

/// Who may be worked on.
pub(super) struct Turns {
    /// For connections whose user is not known yet: most of their work is the handshake.
    strangers: Arc<Semaphore>,
    users: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// How many connections of a user are worked on at a time.
    at_once: usize,
}

impl Turns {
    pub(super) fn new() -> Arc<Turns> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Turns {
            strangers: Arc::new(Semaphore::new(processors.div_ceil(2))),
            users: Mutex::default(),
            at_once: processors,
        })
    }

    fn of_user(&self, name: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = users.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= USERS_KEPT {
            users.retain(|_, known| known.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(self.at_once));
        users.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }
}

/// Whose turn a connection takes.
#[derive(Clone)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    current: Arc<Mutex<CurrentTurn>>,
}

struct CurrentTurn {
    user: Option<Arc<User>>,
    /// `None`: it does not wait.
    gate: Option<Arc<Semaphore>>,
}

impl Turn {
    /// The turn of a connection whose user is not known yet.
    pub(super) fn of_stranger(turns: &Arc<Turns>) -> Turn {
        let gate = Some(turns.strangers.clone());
        let current = CurrentTurn { user: None, gate };
        Turn {
            turns: turns.clone(),
            current: Arc::new(Mutex::new(current)),
        }
    }

    fn current(&self) -> MutexGuard<'_, CurrentTurn> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the connection takes the turns of a user. Administrators do not wait.
    pub(crate) fn take_as(&self, user: &Arc<User>) {
        let mut current = self.current();
        if let Some(known) = &current.user
            && (Arc::ptr_eq(known, user) || known.name == user.name)
        {
            return;
        }
        current.gate = (!user.is_master()).then(|| self.turns.of_user(&user.name));
        current.user = Some(user.clone());
    }
}

/// A permit that is waited for.
type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// A future that is polled when it is its turn.
pub(super) struct InTurn<F> {
    inner: Pin<Box<F>>,
    turn: Turn,
    waiting: Option<Waiting>,
}

impl<F> InTurn<F> {
    pub(super) fn new(inner: F, turn: Turn) -> InTurn<F> {
        InTurn {
            inner: Box::pin(inner),
            turn,
            waiting: None,
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let gate = this.turn.current().gate.clone();
        let Some(gate) = gate else {
            this.waiting = None;
            return this.inner.as_mut().poll(context);
        };
        // Held while the future is polled, and not while it waits for something.
        let _permit = match &mut this.waiting {
            Some(waiting) => {
                let permit = ready!(waiting.as_mut().poll(context));
                this.waiting = None;
                permit.ok()
            }
            None => match gate.clone().try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    let mut waiting: Waiting = Box::pin(gate.acquire_owned());
                    match waiting.as_mut().poll(context) {
                        Poll::Ready(permit) => permit.ok(),
                        Poll::Pending => {
                            this.waiting = Some(waiting);
                            return Poll::Pending;
                        }
                    }
                }
            },
        };
        this.inner.as_mut().poll(context)
    }
}

/// Runs the streams of a connection of HTTP/2, each in the turns of the connection.
#[derive(Clone)]
pub(super) struct TurnExecutor(pub(super) Turn);

impl<F> Executor<F> for TurnExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(InTurn::new(future, self.0.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Yields a few times; counts how many of its kind are inside of a poll, and how often they were.
    async fn work(
        polls: Arc<AtomicUsize>,
        order: Arc<Mutex<Vec<&'static str>>>,
        name: &'static str,
    ) {
        for _ in 0..3 {
            polls.fetch_add(1, Ordering::Relaxed);
            order.lock().unwrap().push(name);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_user_with_many_connections_does_not_keep_another_waiting() {
        let turns = Arc::new(Turns {
            strangers: Arc::new(Semaphore::new(1)),
            users: Mutex::default(),
            at_once: 1,
        });
        let order: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let polls: Arc<AtomicUsize> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        let mut spawn = |name: &'static str| {
            let turn = Turn::of_stranger(&turns);
            turn.take_as(&Arc::new(User::new(name, &[])));
            tasks.spawn(InTurn::new(work(polls.clone(), order.clone(), name), turn));
        };
        // The gate of one of them is taken: the others of the user wait.
        let held = turns.of_user("many").try_acquire_owned().unwrap();
        (0..100).for_each(|_| spawn("many"));
        spawn("one");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(*order.lock().unwrap(), ["one"; 3]);
        drop(held);
        while tasks.join_next().await.is_some() {}
        assert_eq!(polls.load(Ordering::Relaxed), 303);
    }

    #[tokio::test]
    async fn users_without_connections_are_forgotten() {
        let turns = Turns::new();
        for at in 0..10 * USERS_KEPT {
            turns.of_user(&format!("user-{at}"));
        }
        assert!(turns.users.lock().unwrap().len() <= USERS_KEPT);
        let turn = Turn::of_stranger(&turns);
        turn.take_as(&Arc::new(User::new("root", &["system:masters"])));
        assert!(turn.current().gate.is_none(), "administrators do not wait");
    }
}
