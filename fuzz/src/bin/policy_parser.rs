//! libFuzzer's entry to [`weir_fuzz::policy_parser`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::policy_parser(data));
