#![doc = include_str!("../README.md")]

mod decode;
mod duration;
mod number;
mod quantity;
mod quote;
mod text;
mod time;
mod url;

pub use decode::{decode_base64, json_type, mismatch, mismatch_value};
pub use duration::parse_duration;
pub use number::{
    GoNumber, ParseNumberError, json_float, parse_int, parse_uint, print_float, query_bool,
    whole_number, whole_numbers,
};
pub use quantity::{Quantity, canonical_quantity, check_quantity};
pub use quote::{is_print, quote, unprintable};
pub use text::{json, json_text, print, print_syntax, write_json};
pub use time::{parse_micro_time, parse_time, rfc3339};
pub use url::Url;
