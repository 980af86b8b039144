//! Wakes the watches in scopes that have new events.
//!
//! Many watches are woken in rounds of a few at a time. Requests are served between the rounds, and events that arrive during a
//! round share the writes of the next one, because a woken watch writes everything that is pending for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use slab::Slab;

use crate::scopes::ScopeId;

/// How many watches are woken in one round. Each takes some 10 us to write its events, and other tasks wait for the thread meanwhile.
const WAKE_AT_ONCE: usize = 64;

/// The wakers of watches.
#[derive(Debug, Default)]
struct WaitingWatches {
    /// Those in the scope of all objects, which every event wakes.
    all: Slab<Option<Waker>>,
    scopes: HashMap<ScopeId, Slab<Option<Waker>>>,
    /// The scopes with events since the round under way began; `None` if no round is under way.
    ///
    /// Bound: the scopes.
    pending: Option<PendingScopes>,
}

/// Scopes whose watches the next round wakes.
#[derive(Debug, Default)]
struct PendingScopes {
    is_any: bool,
    scopes: HashSet<ScopeId>,
}

/// The watches of a resource that wait for events.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<WaitingWatches>);

/// The place of one watch among the wakers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WakeSlot {
    /// `None` for all objects.
    pub(crate) scope: Option<ScopeId>,
    index: usize,
}

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, WaitingWatches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a watch in a scope; `None` is the scope of all objects.
    pub(crate) fn enter(&self, scope: Option<ScopeId>) -> WakeSlot {
        let mut waiting = self.lock();
        let index = waiting.slots(scope).insert(None);
        WakeSlot { scope, index }
    }

    /// Removes a watch.
    pub(crate) fn leave(&self, slot: WakeSlot) {
        let mut waiting = self.lock();
        let slots = waiting.slots(slot.scope);
        slots.try_remove(slot.index);
        if let (true, Some(scope)) = (slots.is_empty(), slot.scope) {
            waiting.scopes.remove(&scope);
        }
    }

    /// Registers a waker for the next event. The caller then reads the log once more: an event may have come before the call.
    pub(crate) fn wait(&self, slot: WakeSlot, waker: &Waker) {
        let mut waiting = self.lock();
        match waiting.slots(slot.scope).get_mut(slot.index) {
            Some(Some(known)) if known.will_wake(waker) => {}
            Some(place) => *place = Some(waker.clone()),
            None => {}
        }
    }

    /// Wakes the watches in these scopes and in the scope of all objects, now or in the next round. Must be called within a tokio runtime.
    pub(crate) fn wake(self: &Arc<Wakers>, scopes: Vec<ScopeId>) {
        let mut waiting = self.lock();
        if let Some(pending) = &mut waiting.pending {
            pending.is_any = true;
            pending.scopes.extend(scopes);
            return;
        }
        let woken = waiting.take(scopes);
        if woken.len() <= WAKE_AT_ONCE {
            drop(waiting);
            woken.into_iter().for_each(Waker::wake);
            return;
        }
        waiting.pending = Some(PendingScopes::default());
        drop(waiting);
        tokio::spawn(wake_in_rounds(Arc::downgrade(self), woken));
    }

    /// Wakes every watch.
    pub(crate) fn wake_all(&self) {
        let mut waiting = self.lock();
        let scopes: Vec<ScopeId> = waiting.scopes.keys().copied().collect();
        let woken = waiting.take(scopes);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    /// How many watches are registered.
    pub(crate) fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.all.len() + waiting.scopes.values().map(Slab::len).sum::<usize>()
    }
}

/// Wakes watches in rounds until no event has come during a round.
async fn wake_in_rounds(wakers: Weak<Wakers>, mut round: Vec<Waker>) {
    while !round.is_empty() {
        while !round.is_empty() {
            let rest = round.split_off(round.len().min(WAKE_AT_ONCE));
            std::mem::replace(&mut round, rest)
                .into_iter()
                .for_each(Waker::wake);
            tokio::task::yield_now().await;
        }
        let Some(wakers) = wakers.upgrade() else {
            return;
        };
        let mut waiting = wakers.lock();
        let pending = waiting.pending.take().unwrap_or_default();
        if pending.is_any {
            round = waiting.take(pending.scopes);
            waiting.pending = (!round.is_empty()).then(PendingScopes::default);
        }
    }
}

impl WaitingWatches {
    fn slots(&mut self, scope: Option<ScopeId>) -> &mut Slab<Option<Waker>> {
        match scope {
            Some(scope) => self.scopes.entry(scope).or_default(),
            None => &mut self.all,
        }
    }

    /// Takes the wakers of the watches in these scopes and in that of all objects.
    fn take(&mut self, scopes: impl IntoIterator<Item = ScopeId>) -> Vec<Waker> {
        let mut woken = Vec::new();
        let mut take = |slots: &mut Slab<Option<Waker>>| {
            woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
        };
        take(&mut self.all);
        for scope in scopes {
            self.scopes.get_mut(&scope).map(&mut take);
        }
        woken
    }
}
