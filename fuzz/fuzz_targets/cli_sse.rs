#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| alluvium_fuzz::sse::events(input));
