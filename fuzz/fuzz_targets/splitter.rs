//! Runs the fuzz target `splitter` of the crate `tidings-fuzz`: `cargo +nightly fuzz run splitter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::splitter(data));
