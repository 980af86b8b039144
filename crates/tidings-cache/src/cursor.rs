//! Cursors: how a watch reads the log, all of it or the events of its scope.

use std::sync::Arc;

use tidings_api::ResourceVersion;

use crate::cache::{Cache, Snapshot, Unavailable, snapshot};
use crate::log::{FellBehind, LogSegment, LoggedEvent};
use crate::scopes::{Narrowing, NextEvent, WatchScope};
use crate::wake::WakeSlot;

/// The position of a watch in the log, and its registration for wake-ups. Dropping it removes the watch.
#[derive(Debug)]
pub struct Cursor {
    pub(crate) position: u64,
    slot: WakeSlot,
    cache: Arc<Cache>,
}

impl Cursor {
    fn moved_to(mut self, position: u64) -> Cursor {
        self.position = position;
        self
    }

    /// Moves past the event at a position.
    pub fn pass(&mut self, position: u64) {
        self.position = position + 1;
    }

    /// Moves past all events of a read. Returns the revision up to which the watch has everything, if these were the last events.
    pub fn pass_all(&mut self, read: &LogRead) -> Option<ResourceVersion> {
        self.position = read.next.unwrap_or(self.position);
        (self.position >= read.end).then_some(read.revision)
    }

    /// Registers a waker for the next event in the scope. The caller then reads the log once more: an event may have come before the
    /// call.
    pub fn wait(&self, waker: &std::task::Waker) {
        self.cache.wakers.wait(self.slot, waker);
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let Some(scope) = self.slot.scope else {
            self.cache.wakers.leave(self.slot);
            return;
        };
        let mut state = self.cache.state_mut();
        state.scopes.leave(scope);
        // Under the lock: nobody else has the number of the scope yet.
        self.cache.wakers.leave(self.slot);
    }
}

/// Events of one segment of the log that a watch has to examine.
#[derive(Debug)]
pub struct LogRead {
    segment: Arc<LogSegment>,
    events: ReadEvents,
    /// Where the watch goes on after these events. `None`: right after the last one that it has passed.
    next: Option<u64>,
    pub(crate) end: u64,
    pub(crate) revision: ResourceVersion,
}

#[derive(Debug)]
enum ReadEvents {
    /// Those from a position on.
    From(u64),
    /// Those at these positions.
    At(Vec<u64>),
}

impl LogRead {
    /// The segment with the events.
    pub fn segment(&self) -> &Arc<LogSegment> {
        &self.segment
    }

    /// The events and their positions.
    pub fn events(&self) -> impl Iterator<Item = (u64, &LoggedEvent)> {
        let (from, at) = match &self.events {
            ReadEvents::From(position) => {
                (Some((*position..).zip(self.segment.from(*position))), None)
            }
            ReadEvents::At(positions) => {
                let event = |position: &u64| Some((*position, self.segment.at(*position)?));
                (None, Some(positions.iter().filter_map(event)))
            }
        };
        from.into_iter().flatten().chain(at.into_iter().flatten())
    }
}

impl Cache {
    /// The current objects, and a cursor that starts right after them.
    pub fn follow(self: &Arc<Cache>, scope: WatchScope) -> (Snapshot, Cursor) {
        let cursor = self.enter(scope, 0);
        let state = self.state();
        let cursor = cursor.moved_to(state.log.end());
        (snapshot(&state), cursor)
    }

    /// A cursor that starts after a revision. The cache need not have reached that revision yet.
    ///
    /// # Errors
    /// If the revision is older than the history, or lost.
    pub fn follow_after(
        self: &Arc<Cache>,
        revision: ResourceVersion,
        scope: WatchScope,
    ) -> Result<Cursor, Unavailable> {
        let cursor = self.enter(scope, 0);
        let position = {
            let state = self.state();
            // The store uses a lost revision again for another event; a watch that starts after it would miss that event (W94).
            if revision < state.oldest || state.is_lost(revision) {
                return Err(Unavailable::TooOld(state.oldest));
            }
            let position = state.log.position_after(revision);
            position.ok_or(Unavailable::TooOld(state.log.oldest()))?
        };
        Ok(cursor.moved_to(position))
    }

    /// Registers a watch.
    fn enter(self: &Arc<Cache>, scope: WatchScope, position: u64) -> Cursor {
        let is_all = scope.namespace.is_none() && scope.narrowed == Narrowing::None;
        let slot = if is_all {
            self.wakers.enter(None)
        } else {
            let mut state = self.state_mut();
            let end = state.log.end();
            let scope = state.scopes.enter(scope, end);
            // Under the lock: the scope keeps its number.
            self.wakers.enter(Some(scope))
        };
        Cursor {
            position,
            slot,
            cache: self.clone(),
        }
    }

    /// The events at the cursor that are in one segment of the log, and the revision up to which the log is complete.
    ///
    /// # Errors
    /// If the log was trimmed past the cursor.
    pub fn read(&self, cursor: &Cursor) -> Result<LogRead, FellBehind> {
        let (state, position) = (self.state(), cursor.position);
        let fell_behind = || FellBehind {
            oldest: state.log.oldest(),
        };
        let (end, revision) = (state.log.end(), state.revision);
        let scope = match cursor.slot.scope {
            Some(scope) => state.scopes.next(scope, position),
            None => NextEvent::Unlisted,
        };
        match scope {
            NextEvent::Unlisted => {
                let segment = state.log.segment(position)?;
                let events = ReadEvents::From(position);
                Ok(LogRead {
                    segment,
                    events,
                    next: None,
                    end,
                    revision,
                })
            }
            NextEvent::Dropped => Err(fell_behind()),
            NextEvent::None => Ok(LogRead {
                segment: state.log.segment(end)?,
                events: ReadEvents::At(Vec::new()),
                next: Some(end),
                end,
                revision,
            }),
            NextEvent::At(first) => {
                let segment = state.log.segment(first)?;
                let scope = cursor.slot.scope.unwrap_or_default();
                let (positions, next) = state.scopes.read(scope, first, segment.end());
                Ok(LogRead {
                    segment,
                    events: ReadEvents::At(positions),
                    next: Some(next.unwrap_or(end)),
                    end,
                    revision,
                })
            }
        }
    }
}
