//! Options of a group, and which of them are refused.

use std::time::Duration;

use super::machine::ShardTimes;
use super::permit_state::HandOverTimes;

/// The longest name of a group: it is the value of a label.
const NAME_MAX: usize = 63;
/// The longest lease: `leaseDurationSeconds` has 32 bits.
const LEASE_MAX: Duration = Duration::from_secs(2_147_483_647);

/// Options of a group.
///
/// ```
/// use std::time::Duration;
///
/// use tidings_controller::ShardOptions;
///
/// // Twice as patient as the default: a server that is away for half a minute moves no keys.
/// let [lease, deadline, every] = [30, 20, 4].map(Duration::from_secs);
/// let options = ShardOptions::default().times(lease, deadline, every).identity("web-0");
/// assert_eq!(options.lease_duration, lease);
/// ```
///
/// They are given to [`ShardGroup::join_with`](crate::ShardGroup::join_with).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardOptions {
    /// How long others wait for a renewal before they take the keys of a member. In whole seconds.
    pub lease_duration: Duration,
    /// A member that could not renew for this long stops to act. Counts from the start of its last renewal that was answered.
    pub renew_deadline: Duration,
    /// How often a member renews its Lease.
    pub renew_every: Duration,
    /// A reconcile of an object that belongs to another replica now is dropped if it does not end within this time. Until then the group
    /// waits: nobody takes over what a member that crashes meanwhile had.
    pub hand_over_grace: Duration,
    /// The name of this member, which must be unique; a random number is appended. The name of the Pod or host by default.
    pub identity: Option<String>,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(2),
            hand_over_grace: Duration::from_secs(30),
            identity: None,
        }
    }
}

impl ShardOptions {
    /// Sets the three durations of a membership.
    #[must_use]
    pub fn times(
        mut self,
        lease_duration: Duration,
        renew_deadline: Duration,
        renew_every: Duration,
    ) -> ShardOptions {
        self.lease_duration = lease_duration;
        self.renew_deadline = renew_deadline;
        self.renew_every = renew_every;
        self
    }

    /// Sets how long a reconcile may go on after its object came to another replica.
    #[must_use]
    pub fn hand_over_grace(mut self, grace: Duration) -> ShardOptions {
        self.hand_over_grace = grace;
        self
    }

    /// Sets the name of this member.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> ShardOptions {
        self.identity = Some(identity.into());
        self
    }

    /// How long keys are handed over. What is dropped has as long for its last request as what lapses has.
    pub(super) fn hand_over(&self) -> HandOverTimes {
        HandOverTimes {
            grace: self.hand_over_grace.min(LEASE_MAX),
            linger: self.lease_duration.saturating_sub(self.renew_deadline),
        }
    }

    pub(super) fn check(&self, name: &str) -> Result<ShardTimes, BadShards> {
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = name.bytes().all(|byte| letters(byte) || byte == b'-')
            && name.bytes().next().is_some_and(letters)
            && name.bytes().next_back().is_some_and(letters);
        if !is_name || name.len() > NAME_MAX {
            return Err(BadShards::Name(name.to_owned()));
        }
        let (lease, deadline) = (self.lease_duration, self.renew_deadline);
        if lease.subsec_nanos() != 0 || lease <= deadline || lease > LEASE_MAX {
            return Err(BadShards::Lease { lease, deadline });
        }
        // A renewal that fails is tried again after half of the period: there must be time for some.
        if self.renew_every.is_zero() || self.renew_every.saturating_mul(2) > deadline {
            let every = self.renew_every;
            return Err(BadShards::Renewals { every, deadline });
        }
        Ok(ShardTimes {
            lease,
            renew_deadline: deadline,
            renew_every: self.renew_every,
        })
    }
}

/// Why a group cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadShards {
    /// The name cannot be that of a Lease and the value of a label.
    #[error(
        "{0:?} cannot be the name of a group: use at most {NAME_MAX} lower-case letters, digits and dashes, with a letter or digit at both ends"
    )]
    Name(String),
    /// The lease is too short or too long.
    #[error(
        "lease_duration ({lease:?}) must be whole seconds, longer than renew_deadline ({deadline:?}) and at most {LEASE_MAX:?}"
    )]
    Lease {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        deadline: Duration,
    },
    /// There would be too few renewals.
    #[error(
        "renew_every ({every:?}) must be more than zero and at most half of renew_deadline ({deadline:?})"
    )]
    Renewals {
        /// How often a member renews.
        every: Duration,
        /// The renew deadline.
        deadline: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_at_most_as_long_as_the_value_of_a_label() {
        let options = ShardOptions::default();
        assert!(options.check(&"a".repeat(63)).is_ok());
        let error = options.check(&"a".repeat(64)).unwrap_err();
        assert!(error.to_string().contains("at most 63"), "{error}");
        for name in ["", "-a", "a-", "a.b", "A"] {
            assert_eq!(options.check(name), Err(BadShards::Name(name.to_owned())));
        }
    }

    #[test]
    fn durations_that_would_overflow_are_refused() {
        let second = Duration::from_secs(1);
        let with = |lease, deadline, every| {
            let options = ShardOptions::default().times(lease, deadline, every);
            options.check("g")
        };
        let renewals = with(second * 3, second * 2, Duration::MAX);
        assert!(matches!(renewals, Err(BadShards::Renewals { .. })));
        let lease = with(Duration::from_secs(u64::MAX), second * 2, second);
        assert!(matches!(lease, Err(BadShards::Lease { .. })));
        assert!(with(LEASE_MAX, second * 2, second).is_ok());
    }
}
