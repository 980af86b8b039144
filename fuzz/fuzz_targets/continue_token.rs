//! Runs the fuzz target `continue_token` of the crate `tidings-fuzz`: `cargo +nightly fuzz run continue_token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::continue_token(data));
