#![no_main]

#[path = "../../hostile_remote/targets.rs"]
#[allow(dead_code, reason = "each target uses one")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::task(bytes));
