//! Runs the fuzz target `manifest` of the crate `tidings-fuzz`: `cargo +nightly fuzz run manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::manifest(data));
