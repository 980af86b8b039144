//! The current time, in the formats of the API.

use jiff::Timestamp;
use tidings_go::rfc3339;

/// The current time.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp::now()
}

/// The current time, in RFC 3339.
pub(crate) fn now() -> String {
    rfc3339(Timestamp::now())
}

/// The time some seconds from now, in RFC 3339.
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
