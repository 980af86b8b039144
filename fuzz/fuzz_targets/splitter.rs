//! See `splitter` in the crate `tidings-fuzz`. Run it with `cargo +nightly fuzz run splitter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::splitter(data));
