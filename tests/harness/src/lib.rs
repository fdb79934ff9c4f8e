//! Real Kubernetes control planes, nodes and registries for tests, from nothing.

pub mod apply;
pub mod audit;
pub mod control_plane;
pub mod diagnose;
pub mod finish;
pub mod helm;
mod http;
pub mod hub;
pub mod identity;
pub mod image;
mod lane;
pub mod net;
pub mod node;
pub mod pki;
pub mod process;
pub mod progress;
pub mod registry;
pub mod rundir;
pub mod tools;
mod wait;

pub use control_plane::{AuditLevel, ControlPlane, Scope};
pub use hub::Hub;
pub use identity::Identity;
pub use node::Node;
pub use registry::{Registry, RegistryOptions};
pub use tools::Tools;
pub use wait::wait_for;
