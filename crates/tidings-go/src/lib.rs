//! Texts as Go writes and reads them.
//!
//! Clients of Kubernetes know the messages of Go's standard library: `strconv.ParseInt: parsing "x": invalid syntax`, `time: unknown
//! unit "x" in duration "5x"`, `json: cannot unmarshal number into Go struct field ...`. A server that answers otherwise breaks the
//! programs that match on them. This crate reads and writes numbers, durations, times, quantities, quoted text and JSON as Go does,
//! and fails with Go's words. It has no clock and does no I/O.
//!
//! ```
//! assert_eq!(tidings_go::quote("a\"b"), r#""a\"b""#);
//! assert_eq!(tidings_go::canonical_quantity("1024Mi"), "1Gi");
//! let error = tidings_go::parse_int("x").unwrap_err();
//! assert_eq!(error.to_string(), r#"strconv.ParseInt: parsing "x": invalid syntax"#);
//! ```

mod decode;
mod duration;
mod number;
mod quantity;
mod text;
mod time;

pub use decode::{check_base64, json_type, mismatch};
pub use duration::parse_duration;
pub use number::{ParseNumberError, parse_int, parse_uint, print_float, query_bool};
pub use quantity::{canonical_quantity, check_quantity};
pub use text::{json, print, quote, write_json};
pub use time::{parse_micro_time, parse_time, rfc3339};
