//! See `continue_token` in the crate `tidings-fuzz`. Run it with `cargo +nightly fuzz run continue_token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::continue_token(data));
