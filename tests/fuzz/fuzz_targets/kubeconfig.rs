#![no_main]

#[path = "../../kubeconfig/differential.rs"]
mod differential;
#[path = "../../kubeconfig/targets.rs"]
#[allow(dead_code, reason = "each target uses one")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::kubeconfig(bytes));
