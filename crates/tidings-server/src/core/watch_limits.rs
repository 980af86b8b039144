//! How many watches may be open, in all and of one user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_access::User;

/// How many watches may be open if nobody sets another number.
const WATCHES_MAX: usize = 200_000;
/// How many watches one user may have open if nobody sets another number.
const WATCHES_OF_USER_MAX: usize = 100_000;

/// How many watches may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchLimits {
    /// In all.
    pub all: usize,
    /// Of one user. Administrators may have as many as there may be.
    pub user: usize,
}

impl Default for WatchLimits {
    fn default() -> Self {
        WatchLimits {
            all: WATCHES_MAX,
            user: WATCHES_OF_USER_MAX,
        }
    }
}

/// Counts open watches.
pub(crate) struct OpenWatches {
    limits: WatchLimits,
    counts: Arc<Mutex<WatchesByUser>>,
}

#[derive(Debug, Default)]
struct WatchesByUser {
    all: usize,
    /// Users with open watches.
    users: HashMap<String, usize>,
    refused: u64,
}

/// The right to watch. Dropping it lets somebody else watch.
#[derive(Debug)]
pub(crate) struct WatchPermit {
    counts: Arc<Mutex<WatchesByUser>>,
    user: String,
}

fn locked(counts: &Mutex<WatchesByUser>) -> MutexGuard<'_, WatchesByUser> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        let mut counts = locked(&self.counts);
        counts.all -= 1;
        if let Some(own) = counts.users.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                counts.users.remove(&self.user);
            }
        }
    }
}

impl OpenWatches {
    pub(super) fn new(limits: WatchLimits) -> OpenWatches {
        OpenWatches {
            limits,
            counts: Arc::default(),
        }
    }

    /// A permit for a watch of a user, or why there is none.
    pub(crate) fn open(&self, user: &User) -> Result<WatchPermit, String> {
        let mut counts = locked(&self.counts);
        let own = counts.users.get(&user.name).copied().unwrap_or_default();
        let WatchLimits { all, user: most } = self.limits;
        if counts.all >= all {
            counts.refused += 1;
            return Err(format!(
                "too many watches are open: {all}, as many as the server lets"
            ));
        }
        if own >= most && !user.is_master() {
            counts.refused += 1;
            return Err(format!(
                "too many watches of this user are open: {most}, as many as the server lets"
            ));
        }
        counts.all += 1;
        *counts.users.entry(user.name.clone()).or_default() += 1;
        Ok(WatchPermit {
            counts: self.counts.clone(),
            user: user.name.clone(),
        })
    }

    /// How many watches were refused.
    pub(crate) fn refused(&self) -> u64 {
        locked(&self.counts).refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_watches_than_they_may() {
        let open = OpenWatches::new(WatchLimits { all: 4, user: 2 });
        let (ann, bob) = (User::new("ann", &[]), User::new("bob", &[]));
        let root = User::new("root", &["system:masters"]);
        let first = open.open(&ann).ok();
        let _second = open.open(&ann).ok();
        let why = open.open(&ann).err();
        assert_eq!(
            why.as_deref(),
            Some("too many watches of this user are open: 2, as many as the server lets")
        );
        drop(first);
        let third = open.open(&ann).ok();
        assert!(third.is_some());
        let others: Vec<_> = [&root, &root, &root]
            .into_iter()
            .map(|user| open.open(user))
            .collect();
        assert_eq!(others.iter().filter(|permit| permit.is_ok()).count(), 2);
        assert!(open.open(&bob).is_err(), "as many as there may be");
        assert_eq!(open.refused(), 3);
        drop((third, others));
        assert_eq!(locked(&open.counts).users.len(), 1);
        assert!(open.open(&bob).is_ok());
    }
}
