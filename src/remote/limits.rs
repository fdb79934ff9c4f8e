//! Every bound in time, bytes and number on what a remote API server can make the hub do.

use std::time::Duration;

/// Bounds of one remote client. A hub takes those of its probe interval, the default is for the interval that is the default; a test
/// shortens the times that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteClientLimits {
    /// Longest that a call takes, with its wait for a slot, its connection and its retries.
    pub total: Duration,
    /// Longest pause between two parts of a body.
    pub idle: Duration,
    /// Longest that a connection takes, from its name to the end of the TLS handshake.
    pub connect: Duration,
    /// Longest that a name takes to resolve.
    pub resolve: Duration,
    /// Longest that a probe takes; shorter than the interval between two, so that one without an answer delays no other.
    pub probe: Duration,
    /// Bytes of a single response at most. An object that the hub makes on a cluster has a few KiB.
    pub answer: usize,
    /// Bytes of a page of a list at most: 500 objects of 16 KiB by their metadata.
    pub page: usize,
    /// Longest that the initial list of a watch takes, with all its pages.
    pub list: Duration,
    /// Bytes of one line of a watch at most.
    pub line: usize,
    /// Times that a GET is sent at most.
    pub attempts: u32,
    /// Pause before the second attempt, doubled for each further one.
    pub retry_pause: Duration,
    /// Longest pause that a server can ask for.
    pub retry_after: Duration,
    /// Calls at a time.
    pub in_flight: usize,
    /// Calls in a second.
    pub qps: u32,
    /// Calls at once after a pause.
    pub burst: u32,
    /// Silence over HTTP/2 after which a ping is sent; longer than the interval between two probes, which have the same effect.
    pub ping: Duration,
    /// Longest that the answer to a ping takes.
    pub ping_timeout: Duration,
    /// Life of one watch over HTTP/1.1, which has no pings.
    pub http1_watch: Duration,
    /// Time by which a watch over HTTP/1.1 may exceed its requested timeout.
    pub http1_grace: Duration,
    /// Pause after which the first TCP keepalive is sent, and between two; after three without an answer the connection is
    /// dead.
    pub keepalive: Duration,
    /// Longest that sent bytes stay without an acknowledgement.
    pub user_timeout: Duration,
    /// Bytes that are read from a connection in a second.
    pub read_rate: u32,
    /// Bytes that are read from a connection at once after a pause.
    pub read_burst: u32,
    /// Jobs that a watch remembers at most.
    pub jobs: usize,
    /// Units of events in a second, a unit being an event or 4 KiB of one.
    pub event_rate: u32,
    /// Units of events at once after a pause.
    pub event_burst: u32,
    /// A watch that lives shorter than this counts as broken.
    pub watch_life: Duration,
    /// Pause after the first broken watch, doubled for each further one.
    pub watch_pause: Duration,
    /// Broken watches in a row after which no other is opened.
    pub watch_attempts: u32,
}

impl RemoteClientLimits {
    /// The bounds of a production hub that probes each cluster once in this time; the others do not depend on it.
    #[must_use]
    pub fn for_probe_interval(probe_every: Duration) -> Self {
        Self {
            probe: probe_every / 2,
            ping: probe_every * 11 / 10,
            // With the silence before it less than two intervals, so that a quiet watch notices a dead network.
            ping_timeout: probe_every * 7 / 10,
            ..Self::default()
        }
    }
}

impl Default for RemoteClientLimits {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            idle: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            resolve: Duration::from_secs(2),
            probe: Duration::from_secs(5),
            answer: 256 << 10,
            page: 8 << 20,
            list: Duration::from_secs(60),
            line: 1 << 20,
            attempts: 3,
            retry_pause: Duration::from_millis(200),
            retry_after: Duration::from_secs(60),
            in_flight: 32,
            qps: 20,
            burst: 30,
            ping: Duration::from_secs(11),
            ping_timeout: Duration::from_secs(7),
            http1_watch: Duration::from_secs(45),
            http1_grace: Duration::from_secs(5),
            keepalive: Duration::from_secs(5),
            user_timeout: Duration::from_secs(15),
            // Three of the largest pages at once; as empty frames it takes a sixth of a core.
            read_rate: 4 << 20,
            read_burst: 24 << 20,
            jobs: 20_000,
            // An API server under full load sends 1 % of this for one namespace; reading it takes the hub 2 % of a core.
            event_rate: 2_000,
            event_burst: 10_000,
            watch_life: Duration::from_secs(10),
            watch_pause: Duration::from_secs(1),
            watch_attempts: 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::plan::remote::health::ConnectionTiming;

    #[test]
    fn a_probe_ends_before_the_next_and_a_ping_is_sent_only_where_no_probe_was() {
        for seconds in [1, 2, 5, 10, 30, 60] {
            let probe_every = Duration::from_secs(seconds);
            let limits = RemoteClientLimits::for_probe_interval(probe_every);
            assert!(
                limits.probe < probe_every && probe_every < limits.ping,
                "{limits:?}"
            );
            assert!(limits.ping + limits.ping_timeout < 2 * probe_every, "{limits:?}");
        }
    }

    #[test]
    fn the_default_is_for_the_interval_of_a_production_hub() {
        let probe_every = ConnectionTiming::since(Instant::now()).probe_every;
        assert_eq!(
            RemoteClientLimits::for_probe_interval(probe_every),
            RemoteClientLimits::default()
        );
    }
}
