//! The watch of `RenderClusters`, which two controllers read.

use futures::stream::{BoxStream, poll_fn};
use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;

use crate::api::RenderCluster;
use crate::base::metrics::Metrics;

use super::endless::dynamic;

/// Events of `RenderClusters` that wait for the catalog controller, each up to an object with all namespaces that it may list; a full
/// channel only makes the watch wait.
const CATALOG_BACKLOG: usize = 8;

/// The events of the watch of `RenderClusters`.
pub type ClusterEvents = BoxStream<'static, Event<DynamicObject>>;

/// Watches `RenderClusters` for the cluster controller and for the catalog controller, in this order. The watch goes on as the first
/// reads it: its loop never waits, while the catalog controller waits for its own writes.
#[must_use]
pub fn render_clusters(client: &Client, metrics: &Metrics) -> (ClusterEvents, ClusterEvents) {
    for_two(dynamic::<RenderCluster>(client, metrics, "renderclusters"))
}

/// The same events for two readers. The second gets each before the first does, unless it has ended.
fn for_two<E: Clone + Send + 'static>(
    events: impl Stream<Item = E> + Send + 'static,
) -> (BoxStream<'static, E>, BoxStream<'static, E>) {
    let (out, mut received) = mpsc::channel(CATALOG_BACKLOG);
    let first = events.then(move |event| {
        let out = out.clone();
        async move {
            _ = out.send(event.clone()).await;
            event
        }
    });
    let second = poll_fn(move |context| received.poll_recv(context));
    (first.boxed(), second.boxed())
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};

    use super::*;

    #[tokio::test]
    async fn both_readers_get_every_event_and_only_a_full_backlog_makes_the_first_wait() {
        let (mut first, mut second) = for_two(stream::iter(0..CATALOG_BACKLOG + 2));
        for number in 0..CATALOG_BACKLOG {
            assert_eq!(first.next().await, Some(number));
        }
        assert_eq!(first.next().now_or_never(), None, "it waits for the second");
        assert_eq!(second.next().await, Some(0));
        assert_eq!(first.next().now_or_never(), Some(Some(CATALOG_BACKLOG)));
        assert_eq!(first.next().now_or_never(), None, "it waits again");
        let (rest, others) = tokio::join!(first.count(), second.collect::<Vec<_>>());
        assert_eq!(rest, 1);
        assert_eq!(others, Vec::from_iter(1..CATALOG_BACKLOG + 2));
    }

    #[tokio::test]
    async fn the_first_reader_goes_on_without_the_second() {
        let (first, second) = for_two(stream::iter(0..3 * CATALOG_BACKLOG));
        drop(second);
        assert_eq!(first.count().await, 3 * CATALOG_BACKLOG);
    }
}
