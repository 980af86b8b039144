//! Who is woken by which event.
//!
//! A watch waits in the scope of what it can see: everything, a namespace, a name, one object. An event wakes the scopes that
//! it belongs to, and nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

#[derive(Debug, Default)]
struct Waiting {
    scopes: HashMap<Scope, Slab<Option<Waker>>>,
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

    /// Wakes everyone who can see one of the objects.
    pub(crate) fn wake<'a>(&self, keys: impl Iterator<Item = &'a ObjectKey>) {
        let mut woken = Vec::new();
        {
            let mut waiting = self.lock();
            take(&mut waiting, &Scope::All, &mut woken);
            if waiting.scopes.len() > usize::from(waiting.scopes.contains_key(&Scope::All)) {
                for key in keys {
                    take(
                        &mut waiting,
                        &Scope::Namespace(key.namespace().into()),
                        &mut woken,
                    );
                    take(&mut waiting, &Scope::Name(key.name().into()), &mut woken);
                    take(&mut waiting, &Scope::Object(key.clone()), &mut woken);
                }
            }
        }
        woken.into_iter().for_each(Waker::wake);
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

fn take(waiting: &mut Waiting, scope: &Scope, woken: &mut Vec<Waker>) {
    if let Some(slots) = waiting.scopes.get_mut(scope) {
        woken.extend(slots.iter_mut().filter_map(|(_, waker)| waker.take()));
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
