//! Who is woken by which event.
//!
//! A watch waits in the scope of what it can see: everything, a namespace, a name, one object. An event wakes the scopes that
//! it belongs to, and nobody else.
//!
//! Many watches are woken in rounds, a few at a time: requests are served between them, and the events that come during a
//! round share the writes of the next one, because a watch that is woken writes all that it has pending.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use slab::Slab;
use tidings_api::ObjectKey;

/// What a watch can see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) enum Scope {
    #[default]
    All,
    Namespace(Box<str>),
    /// One name in whatever namespace.
    Name(Box<str>),
    Object(ObjectKey),
}

/// How many watches are woken at once. A write to one costs some 10 us: others wait that long for the thread.
const WAKE_AT_ONCE: usize = 64;
/// More changed keys than this between two rounds, and everyone is woken.
const PENDING_KEYS_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Waiting {
    scopes: HashMap<Scope, Slab<Option<Waker>>>,
    /// The keys that the next round is about, while one is under way.
    pending: Option<Vec<ObjectKey>>,
}

/// The watches of a resource that wait.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Waiting>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a watch.
    pub(crate) fn enter(self: &Arc<Wakers>, scope: Scope) -> Place {
        let index = self
            .lock()
            .scopes
            .entry(scope.clone())
            .or_default()
            .insert(None);
        Place {
            wakers: self.clone(),
            scope,
            index,
        }
    }

    /// Wakes everyone who can see one of the objects, now or with the next round. Must be called within a tokio runtime.
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
        tokio::spawn(rounds(Arc::downgrade(self), woken));
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&self) {
        let mut woken = Vec::new();
        for slots in self.lock().scopes.values_mut() {
            woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// How many watches there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().scopes.values().map(Slab::len).sum()
    }
}

/// Wakes a round, and those that become due meanwhile.
async fn rounds(wakers: Weak<Wakers>, mut round: Vec<Waker>) {
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

impl Waiting {
    /// Takes everyone who can see one of the keys.
    fn take_all(&mut self, keys: &[ObjectKey]) -> Vec<Waker> {
        let mut woken = Vec::new();
        if keys.len() > PENDING_KEYS_MAX {
            let everyone = self.scopes.values_mut().flat_map(|slots| slots.iter_mut());
            woken.extend(everyone.filter_map(|(_, waker)| waker.take()));
        } else {
            self.take(&Scope::All, &mut woken);
            if self.scopes.len() > usize::from(self.scopes.contains_key(&Scope::All)) {
                for key in keys {
                    self.take(&Scope::Namespace(key.namespace().into()), &mut woken);
                    self.take(&Scope::Name(key.name().into()), &mut woken);
                    self.take(&Scope::Object(key.clone()), &mut woken);
                }
            }
        }
        woken
    }

    fn take(&mut self, scope: &Scope, woken: &mut Vec<Waker>) {
        if let Some(slots) = self.scopes.get_mut(scope) {
            woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
        }
    }
}

/// The place of one watch. Dropping it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Place {
    wakers: Arc<Wakers>,
    scope: Scope,
    index: usize,
}

impl Place {
    /// Asks to be woken. The caller looks at the log once more afterwards: an event may have come between.
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

impl Drop for Place {
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
