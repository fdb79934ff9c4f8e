//! The renderer: its command line, its charts, and registries that are hostile.

#[path = "renderer/cli.rs"]
mod cli;
#[path = "renderer/helm.rs"]
mod helm;
#[path = "renderer/hostile.rs"]
mod hostile;
#[path = "renderer/registry.rs"]
mod registry;
