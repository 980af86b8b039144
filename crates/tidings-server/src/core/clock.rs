//! The time, as the API writes it.

use jiff::Timestamp;
use tidings_go::rfc3339;

/// Now, as a point in time.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp::now()
}

/// Now, as text.
pub(crate) fn now() -> String {
    rfc3339(Timestamp::now())
}

/// Some seconds from now, as text.
pub(crate) fn in_seconds(seconds: i64) -> String {
    let now = Timestamp::now();
    let later = Timestamp::from_second(now.as_second().saturating_add(seconds));
    rfc3339(later.unwrap_or(now))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = Timestamp::now().as_millisecond();
    now.try_into().unwrap_or(0)
}
