//! The renderer.
fn main() {}
