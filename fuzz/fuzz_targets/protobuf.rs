//! Runs the fuzz target `protobuf` of the crate `tidings-fuzz`: `cargo +nightly fuzz run protobuf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::protobuf(data));
