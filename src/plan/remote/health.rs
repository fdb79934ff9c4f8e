//! State machines of one connection to a cluster, and of its site watches. They are pure: the caller passes the time.
//!
//! `Connecting → Up → Lost`: a connection that is down has an attempt in flight or scheduled, one that is up has a probe in
//! flight or scheduled. The time of the loss is kept until the connection is up again. Only the hub's clock is used, never
//! that of the cluster.

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
