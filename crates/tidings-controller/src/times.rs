//! A time that is as good as never.

use std::time::Duration;

/// Longer waits would overflow an `Instant`: a year.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);
