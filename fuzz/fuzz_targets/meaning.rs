#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| margay_fuzz_replay::meaning(data));
