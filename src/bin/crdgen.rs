//! CRDs.
fn main() {}
