//! See `protobuf` in the crate `tidings-fuzz`. Run it with `cargo +nightly fuzz run protobuf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidings_fuzz::protobuf(data));
