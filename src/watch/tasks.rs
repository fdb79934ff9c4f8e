//! The watch of tasks, which shows only those of namespaces that the instance has.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use tokio::sync::{mpsc, watch};

use crate::metrics::Metrics;
use crate::names::TaskKind;
use crate::object::{SlimObject, task_resource};
use crate::plan::shards::Owned;

use super::{Arrived, Change, Input, Scope, change, endless_heard, is_forbidden, of_tenants, uid_of};

/// What the engine works on by now; it follows what the instance is told, once nothing of what it lost is in work.
pub type Territory = watch::Receiver<Arc<Owned>>;

/// Why a watch ended.
#[derive(PartialEq)]
enum End {
    /// Nobody listens.
    Closed,
    /// There is something to be shown that was not, or nothing any more.
    Moved,
}

/// Watches the tasks of a scope until the channel closes. A scope of which nothing is the instance's is not looked at.
pub async fn tasks(
    client: Client,
    scope: Scope,
    metrics: Metrics,
    mut territory: Territory,
    out: mpsc::Sender<Arrived>,
) {
    let mut filter = Filter::new(territory.borrow_and_update().clone());
    let mut is_first = true;
    loop {
        let is_own = scope
            .namespace
            .as_deref()
            .is_none_or(|name| filter.owned.owns(name));
        if !is_own {
            // Also where a list was under way: it comes to no end.
            if say_nothing(&scope, &out).await.is_err() {
                return;
            }
        } else if !is_first && out.send(Input::Gaining(scope.clone()).into()).await.is_err() {
            return;
        }
        is_first = false;
        let end = if is_own {
            show(&client, &scope, &metrics, (&mut territory, &mut filter), &out).await
        } else {
            moved(&scope, (&mut territory, &mut filter), &out).await
        };
        if end == End::Closed {
            return;
        }
    }
}

/// Says that nothing is there, so that nobody waits for it.
async fn say_nothing(
    scope: &Scope,
    out: &mpsc::Sender<Arrived>,
) -> Result<(), mpsc::error::SendError<Arrived>> {
    out.send(Input::Task(scope.clone(), Change::Restart).into())
        .await?;
    out.send(Input::Task(scope.clone(), Change::Synced).into()).await
}

/// Waits until something of the scope is the instance's.
async fn moved(
    scope: &Scope,
    (territory, filter): (&mut Territory, &mut Filter),
    out: &mpsc::Sender<Arrived>,
) -> End {
    loop {
        tokio::select! {
            () = out.closed() => return End::Closed,
            Ok(()) = territory.changed() => {
                filter.follow(territory.borrow_and_update().clone());
                if scope.namespace.as_deref().is_none_or(|name| filter.owned.owns(name)) {
                    return End::Moved;
                }
            }
        }
    }
}

/// Shows what is there, until there is something that was held back.
async fn show(
    client: &Client,
    scope: &Scope,
    metrics: &Metrics,
    (territory, filter): (&mut Territory, &mut Filter),
    out: &mpsc::Sender<Arrived>,
) -> End {
    let resource = task_resource(scope.kind);
    let api: Api<SlimObject> = match &scope.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = name_of(scope.kind);
    let (told, refused) = (out.clone(), scope.clone());
    let heard = move |error: &watcher::Error| {
        // What finds no place is said again with the next error.
        if is_forbidden(error) {
            _ = told.try_send(Input::Refused(refused.clone()).into());
        }
    };
    let mut events = pin!(endless_heard(api, of_tenants(), metrics.clone(), name, heard));
    loop {
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return End::Closed };
                if let Some(input) = filter.input(scope, event)
                    && out.send(input.into()).await.is_err()
                {
                    return End::Closed;
                }
            }
            Ok(()) = territory.changed() => {
                let has_gained = filter.follow(territory.borrow_and_update().clone());
                let is_own = scope.namespace.as_deref().is_none_or(|name| filter.owned.owns(name));
                if has_gained || !is_own {
                    return End::Moved;
                }
            }
        }
    }
}

const fn name_of(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::RenderTask => "rendertasks",
        TaskKind::ClusterRenderTask => "clusterrendertasks",
    }
}

/// Which namespaces are shown.
struct Filter {
    owned: Arc<Owned>,
    /// Namespaces of which there was something, and whether it was shown.
    known: HashMap<String, bool>,
}

impl Filter {
    fn new(owned: Arc<Owned>) -> Self {
        Self {
            owned,
            known: HashMap::new(),
        }
    }

    /// Takes in what the engine works on from now on; whether something that was held back is to be shown.
    fn follow(&mut self, owned: Arc<Owned>) -> bool {
        let mut has_gained = false;
        for (namespace, is_shown) in &mut self.known {
            let was_shown = std::mem::replace(is_shown, owned.owns(namespace));
            has_gained |= *is_shown && !was_shown;
        }
        self.owned = owned;
        has_gained
    }

    fn shows(&mut self, namespace: &str) -> bool {
        if *self.owned == Owned::All {
            return true;
        }
        if let Some(is_shown) = self.known.get(namespace) {
            return *is_shown;
        }
        let is_shown = self.owned.owns(namespace);
        self.known.insert(namespace.to_owned(), is_shown);
        is_shown
    }

    fn input(&mut self, scope: &Scope, event: Event<SlimObject>) -> Option<Input> {
        if let Event::Apply(object) | Event::InitApply(object) = &event
            && !self.shows(object.meta().namespace.as_deref().unwrap_or_default())
        {
            return None;
        }
        if matches!(event, Event::Init) {
            // Everything that is there follows.
            self.known.clear();
        }
        let kind = scope.kind;
        let change = change(event, |o: SlimObject| o.into_task(kind).map(Box::new), uid_of)?;
        Some(Input::Task(scope.clone(), change))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::shards::{Shard, View};

    fn part(own: u16, view: &[u16]) -> Arc<Owned> {
        let view: BTreeSet<Shard> = view.iter().copied().map(Shard).collect();
        Arc::new(Owned::Part {
            own: Shard(own),
            view: View(view),
            others: Vec::new(),
        })
    }

    /// Namespaces of which each of two shards has some.
    fn split() -> (String, String) {
        let names = (0..).map(|n| format!("team-{n}"));
        let both = part(0, &[0, 1]);
        let (mut own, mut other) = (None, None);
        for name in names {
            let slot = if both.owns(&name) { &mut own } else { &mut other };
            slot.get_or_insert(name);
            if let (Some(own), Some(other)) = (&own, &other) {
                return (own.clone(), other.clone());
            }
        }
        unreachable!()
    }

    #[test]
    fn only_what_is_owned_is_shown_and_a_list_is_needed_only_for_what_was_held_back() {
        let (own, other) = split();
        let mut filter = Filter::new(part(0, &[0, 1]));
        assert!(filter.shows(&own) && !filter.shows(&other));
        assert!(!filter.follow(part(0, &[0, 1])), "nothing moved");
        assert!(filter.follow(part(0, &[0])), "the other one is gone");
        assert!(filter.shows(&own) && filter.shows(&other));
        assert!(!filter.follow(part(0, &[0, 1])), "what is lost needs no list");
        assert!(!filter.shows(&other));
        assert!(
            filter.follow(part(0, &[0])),
            "what was shown before and then lost was forgotten, and is to be listed again"
        );
    }
}
