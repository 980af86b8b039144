//! Times as the API writes them.

use jiff::Timestamp;

/// RFC 3339 in UTC with whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, as a point in time.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp::now()
}

/// Now, as text.
pub(crate) fn now() -> String {
    rfc3339(Timestamp::now())
}

/// Some seconds from now.
pub(crate) fn in_seconds(seconds: i64) -> String {
    let now = Timestamp::now();
    let later = Timestamp::from_second(now.as_second().saturating_add(seconds));
    rfc3339(later.unwrap_or(now))
}

/// Now, as HTTP headers write it.
pub(crate) fn http_date() -> String {
    Timestamp::now()
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string()
}
