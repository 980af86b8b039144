//! Runs the fuzz target `frames` of the crate `tidings-fuzz`: `cargo +nightly fuzz run frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::frames(data));
