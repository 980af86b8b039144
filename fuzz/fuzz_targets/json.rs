//! Runs the fuzz target `json` of the crate `tidings-fuzz`: `cargo +nightly fuzz run json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::json(data));
