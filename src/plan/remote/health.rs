//! The life of one connection to a cluster, and of the watches on it, as pure state machines: time is passed in.
//!
//! `Connecting → Up → Lost`: a connection that is down has a next attempt or one under way, one that is up has a next
//! probe or one under way. When it was lost is kept until it stands again, whatever is tried meanwhile. Only the hub's
//! own clock counts, never that of the cluster.

mod condition;
mod connection;
mod event;
mod fault;
mod site_watch;
mod timing;
mod version;

pub use condition::{ConnectionHealth, ConnectionPhase};
pub use connection::ConnectionStateMachine;
pub use event::{ConnectionAction, ConnectionEvent};
pub use fault::ConnectionFault;
pub use site_watch::SiteWatchStateMachine;
pub use timing::{ClockReading, ConnectionTiming};
pub use version::{KubernetesVersion, OLDEST};

#[cfg(test)]
mod tests;
