//! Which watches an event wakes.
//!
//! A watch waits in a scope: everything, a namespace, a name, one object. An event wakes the watches in the scopes that its object
//! is in, and no others.
//!
//! Many watches are woken in rounds of a few at a time. Requests are served between the rounds, and events that arrive during a
//! round share the writes of the next one, because a woken watch writes everything that is pending for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use slab::Slab;
use tidings_api::ObjectKey;

/// The objects that a watch may have to send, judged by their keys alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum WatchScope {
    /// Every object.
    #[default]
    All,
    /// The objects of one namespace.
    Namespace(Box<str>),
    /// The objects of one name, in every namespace.
    Name(Box<str>),
    /// One object.
    Object(ObjectKey),
}

/// How many watches are woken in one round. Each takes some 10 us to write its events, and other tasks wait for the thread meanwhile.
const WAKE_AT_ONCE: usize = 64;
/// If more keys than this change between two rounds, every watch is woken.
const PENDING_KEYS_MAX: usize = 4096;

/// The wakers of watches, by scope.
#[derive(Debug, Default)]
struct WaitingWatches {
    scopes: HashMap<WatchScope, Slab<Option<Waker>>>,
    /// The keys that changed since the round under way began; `None` if no round is under way.
    pending: Option<Vec<ObjectKey>>,
}

/// The watches of a resource that wait for events.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<WaitingWatches>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, WaitingWatches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a watch.
    pub(crate) fn enter(self: &Arc<Wakers>, scope: WatchScope) -> WakeSlot {
        let index = self
            .lock()
            .scopes
            .entry(scope.clone())
            .or_default()
            .insert(None);
        WakeSlot {
            wakers: self.clone(),
            scope,
            index,
        }
    }

    /// Wakes the watches whose scope has one of the keys, now or in the next round. Must be called within a tokio runtime.
    pub(crate) fn wake(self: &Arc<Wakers>, keys: Vec<ObjectKey>) {
        let mut waiting = self.lock();
        if let Some(pending) = &mut waiting.pending {
            if pending.len() <= PENDING_KEYS_MAX {
                pending.extend(keys);
            }
            return;
        }
        let woken = waiting.take_all(&keys);
        if woken.len() <= WAKE_AT_ONCE {
            drop(waiting);
            woken.into_iter().for_each(Waker::wake);
            return;
        }
        waiting.pending = Some(Vec::new());
        drop(waiting);
        tokio::spawn(wake_in_rounds(Arc::downgrade(self), woken));
    }

    /// Wakes every watch.
    pub(crate) fn wake_all(&self) {
        let mut woken = Vec::new();
        for slots in self.lock().scopes.values_mut() {
            woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// How many watches are registered.
    pub(crate) fn len(&self) -> usize {
        self.lock().scopes.values().map(Slab::len).sum()
    }
}

/// Wakes watches in rounds until no key has changed during a round.
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
        let keys = waiting.pending.take().unwrap_or_default();
        if !keys.is_empty() {
            round = waiting.take_all(&keys);
            waiting.pending = Some(Vec::new()).filter(|_| !round.is_empty());
        }
    }
}

impl WaitingWatches {
    /// Takes the wakers of the watches whose scope has one of the keys.
    fn take_all(&mut self, keys: &[ObjectKey]) -> Vec<Waker> {
        let mut woken = Vec::new();
        if keys.len() > PENDING_KEYS_MAX {
            let everyone = self.scopes.values_mut().flat_map(|slots| slots.iter_mut());
            woken.extend(everyone.filter_map(|(_, waker)| waker.take()));
        } else {
            self.take(&WatchScope::All, &mut woken);
            if self.scopes.len() > usize::from(self.scopes.contains_key(&WatchScope::All)) {
                for key in keys {
                    self.take(&WatchScope::Namespace(key.namespace().into()), &mut woken);
                    self.take(&WatchScope::Name(key.name().into()), &mut woken);
                    self.take(&WatchScope::Object(key.clone()), &mut woken);
                }
            }
        }
        woken
    }

    fn take(&mut self, scope: &WatchScope, woken: &mut Vec<Waker>) {
        if let Some(slots) = self.scopes.get_mut(scope) {
            woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
        }
    }
}

/// The registration of one watch. Dropping it removes the watch.
#[derive(Debug)]
pub(crate) struct WakeSlot {
    wakers: Arc<Wakers>,
    scope: WatchScope,
    index: usize,
}

impl WakeSlot {
    /// Registers a waker for the next event. The caller then reads the log once more: an event may have come before the call.
    pub(crate) fn wait(&self, waker: &Waker) {
        if let Some(slot) = self
            .wakers
            .lock()
            .scopes
            .get_mut(&self.scope)
            .and_then(|slots| slots.get_mut(self.index))
        {
            match slot {
                Some(known) if known.will_wake(waker) => {}
                slot => *slot = Some(waker.clone()),
            }
        }
    }
}

impl Drop for WakeSlot {
    fn drop(&mut self) {
        let mut waiting = self.wakers.lock();
        if let Some(slots) = waiting.scopes.get_mut(&self.scope) {
            slots.try_remove(self.index);
            if slots.is_empty() {
                waiting.scopes.remove(&self.scope);
            }
        }
    }
}
