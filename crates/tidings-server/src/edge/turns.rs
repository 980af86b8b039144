//! Connections take turns. The connections of a user share a lane: together they take a few steps, and then wait until everything else that is
//! ready had its step, and the runtime has looked for what has become ready since. A user with a thousand busy connections, or a stranger that opens
//! ten thousand, then keeps others waiting for a few steps, not for a thousand.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use tidings_access::User;

/// Users without connections that are remembered.
const USERS_KEPT: usize = 256;
/// A user with as many connections never waits: they keep others waiting for a fraction of a millisecond, and turns cost half as much as a small request.
const USER_FREE: usize = 16;
/// How many steps the connections of a user with more take before everybody else had a turn.
const USER_STEPS: usize = 2;
/// How many connections whose user is not known yet never wait.
const STRANGER_FREE: usize = 1;
/// How many steps such connections take before everybody else had a turn: most of them are handshakes, which are long.
const STRANGER_STEPS: usize = 1;

/// The lanes of all users.
pub(super) struct Turns {
    strangers: Arc<Lane>,
    users: Mutex<HashMap<String, Weak<Lane>>>,
}

impl Turns {
    pub(super) fn new() -> Arc<Turns> {
        Arc::new(Turns {
            strangers: Lane::new(STRANGER_FREE, STRANGER_STEPS),
            users: Mutex::default(),
        })
    }

    fn of_user(&self, name: &str) -> Arc<Lane> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = users.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= USERS_KEPT {
            users.retain(|_, known| known.strong_count() > 0);
        }
        let new = Lane::new(USER_FREE, USER_STEPS);
        users.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }
}

/// The connections of one user that want to take a step.
///
/// One of those that wait leads: it yields to the runtime, until everything that was ready had its turn and the sockets were looked at, and then
/// lets the next few take their step.
struct Lane {
    /// Up to as many members do not wait.
    free: usize,
    /// How many steps are taken in a round.
    steps: usize,
    /// How many futures are in the lane, waiting or not.
    members: AtomicUsize,
    round: Mutex<Round>,
}

struct Round {
    /// Steps that may be taken before the next round.
    left: usize,
    /// True if one of those that wait leads.
    has_leader: bool,
    /// The others, in the order in which they came. Those that wait no more leave with the next round. Bound: those that came since the last one.
    waiting: VecDeque<Arc<Ticket>>,
}

/// The place of a future that waits. What it was given changes only under the lock of its lane.
struct Ticket {
    given: AtomicU8,
    waker: Waker,
}

const NOTHING: u8 = 0;
/// It may take a step.
const STEP: u8 = 1;
/// It leads the next round.
const LEAD: u8 = 2;
/// It waits no more.
const GONE: u8 = 3;

impl Lane {
    fn new(free: usize, steps: usize) -> Arc<Lane> {
        Arc::new(Lane {
            free,
            steps,
            members: AtomicUsize::new(0),
            round: Mutex::new(Round {
                left: steps,
                has_leader: false,
                waiting: VecDeque::new(),
            }),
        })
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: a step may be taken now.
    fn arrive(&self, waker: &Waker) -> Option<Arc<Ticket>> {
        if self.members.load(Ordering::Relaxed) <= self.free {
            return None;
        }
        let mut round = self.round();
        if round.left > 0 && !round.has_leader {
            round.left -= 1;
            return None;
        }
        let ticket = Arc::new(Ticket {
            given: AtomicU8::new(NOTHING),
            waker: waker.clone(),
        });
        match round.has_leader {
            true => round.waiting.push_back(ticket.clone()),
            false => {
                round.has_leader = true;
                ticket.given.store(LEAD, Ordering::Release);
            }
        }
        Some(ticket)
    }

    /// Begins a round, in which the leader takes the first step.
    fn begin_round(&self) {
        let mut round = self.round();
        round.left = self.steps - 1;
        while round.left > 0
            && let Some(next) = round.waiting.pop_front()
        {
            if next.give(STEP) {
                round.left -= 1;
            }
        }
        round.appoint();
    }

    /// Forgets a future that waits no more.
    fn leave(&self, ticket: &Ticket) {
        let mut round = self.round();
        if ticket.given.swap(GONE, Ordering::AcqRel) == LEAD {
            round.appoint();
        }
    }
}

impl Round {
    /// Makes the next of those that wait the leader.
    fn appoint(&mut self) {
        self.has_leader = false;
        while !self.has_leader
            && let Some(next) = self.waiting.pop_front()
        {
            self.has_leader = next.give(LEAD);
        }
    }
}

impl Ticket {
    /// False if nobody waits with it any more.
    fn give(&self, what: u8) -> bool {
        if self.given.load(Ordering::Acquire) == GONE {
            return false;
        }
        self.given.store(what, Ordering::Release);
        self.waker.wake_by_ref();
        true
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
    lane: Option<Arc<Lane>>,
}

impl Turn {
    /// The turn of a connection whose user is not known yet.
    pub(super) fn of_stranger(turns: &Arc<Turns>) -> Turn {
        let lane = Some(turns.strangers.clone());
        let current = CurrentTurn { user: None, lane };
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
        current.lane = (!user.is_master()).then(|| self.turns.of_user(&user.name));
        current.user = Some(user.clone());
    }
}

/// A future that is polled when it is its turn.
pub(super) struct InTurn<F> {
    inner: Pin<Box<F>>,
    turn: Turn,
    /// The lane that it is counted in.
    lane: Option<Arc<Lane>>,
    waiting: Option<Waiting>,
}

struct Waiting {
    ticket: Arc<Ticket>,
    /// Of who leads: done when everything else had its turn.
    others: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Waiting {
    /// True if everything else had its turn.
    fn is_last(&mut self, context: &mut Context<'_>) -> bool {
        let new = || Box::pin(tokio::task::yield_now()) as Pin<Box<_>>;
        let others = self.others.get_or_insert_with(new);
        others.as_mut().poll(context).is_ready()
    }
}

impl<F> InTurn<F> {
    pub(super) fn new(inner: F, turn: Turn) -> InTurn<F> {
        InTurn {
            inner: Box::pin(inner),
            turn,
            lane: None,
            waiting: None,
        }
    }

    /// True if a step may be taken now. Otherwise the task is woken when that may have changed.
    fn is_turn(&mut self, context: &mut Context<'_>) -> bool {
        if self.waiting.is_none() {
            self.change_lane();
            let ticket = self.lane.as_ref();
            let ticket = ticket.and_then(|lane| lane.arrive(context.waker()));
            let others = None;
            self.waiting = ticket.map(|ticket| Waiting { ticket, others });
        }
        let (Some(waiting), Some(lane)) = (&mut self.waiting, &self.lane) else {
            return true;
        };
        match waiting.ticket.given.load(Ordering::Acquire) {
            STEP => {}
            LEAD if waiting.is_last(context) => lane.begin_round(),
            _ => return false,
        }
        self.waiting = None;
        true
    }

    /// Goes to the lane of the user that the connection has now.
    fn change_lane(&mut self) {
        let current = self.turn.current();
        let is_same = match (&self.lane, &current.lane) {
            (Some(ours), Some(lane)) => Arc::ptr_eq(ours, lane),
            (ours, lane) => ours.is_none() && lane.is_none(),
        };
        if is_same {
            return;
        }
        if let Some(lane) = std::mem::replace(&mut self.lane, current.lane.clone()) {
            lane.members.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(lane) = &self.lane {
            lane.members.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.is_turn(context) {
            true => self.inner.as_mut().poll(context),
            false => Poll::Pending,
        }
    }
}

impl<F> Drop for InTurn<F> {
    fn drop(&mut self) {
        let Some(lane) = &self.lane else { return };
        lane.members.fetch_sub(1, Ordering::Relaxed);
        if let Some(waiting) = &self.waiting {
            lane.leave(&waiting.ticket);
        }
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
    use tokio::task::JoinSet;

    use super::*;

    type Order = Arc<Mutex<Vec<&'static str>>>;

    /// Takes a few steps and notes each.
    async fn work(order: Order, name: &'static str) {
        for _ in 0..3 {
            order.lock().unwrap().push(name);
            tokio::task::yield_now().await;
        }
    }

    fn spawn(tasks: &mut JoinSet<()>, turns: &Arc<Turns>, order: &Order, name: &'static str) {
        let turn = Turn::of_stranger(turns);
        turn.take_as(&Arc::new(User::new(name, &[])));
        tasks.spawn(InTurn::new(work(order.clone(), name), turn));
    }

    #[tokio::test]
    async fn a_user_with_many_connections_does_not_keep_another_waiting() {
        let (turns, order) = (Turns::new(), Order::default());
        let mut tasks = JoinSet::new();
        // All members are known before the first of them takes a step that counts.
        (0..300).for_each(|_| spawn(&mut tasks, &turns, &order, "many"));
        spawn(&mut tasks, &turns, &order, "one");
        while tasks.join_next().await.is_some() {}
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 903, "everybody takes all steps");
        let before = |step: usize| {
            let mut ones = order.iter().enumerate().filter(|(_, name)| **name == "one");
            ones.nth(step).map(|(at, _)| at).unwrap()
        };
        assert!(before(0) <= USER_FREE + 3 * USER_STEPS, "{}", before(0));
        assert!(before(2) <= USER_FREE + 8 * USER_STEPS, "{}", before(2));
    }

    /// Whoever leads and goes hands the lead on; whoever was given a step and goes holds up nobody.
    #[tokio::test]
    async fn connections_that_end_while_they_wait_hold_up_nobody() {
        for ended in 0..40 {
            let (turns, order) = (Turns::new(), Order::default());
            let mut tasks = JoinSet::new();
            let mut handles = Vec::new();
            for _ in 0..40 {
                let turn = Turn::of_stranger(&turns);
                turn.take_as(&Arc::new(User::new("many", &[])));
                let work = work(order.clone(), "many");
                handles.push(tasks.spawn(InTurn::new(work, turn)));
            }
            tokio::task::yield_now().await;
            handles[ended].abort();
            tokio::task::yield_now().await;
            handles[(ended + 9) % 40].abort();
            while tasks.join_next().await.is_some() {}
            assert!(order.lock().unwrap().len() >= 38 * 3);
            let lane = turns.of_user("many");
            assert_eq!(lane.members.load(Ordering::Relaxed), 0);
        }
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
        assert!(turn.current().lane.is_none(), "administrators do not wait");
    }
}
