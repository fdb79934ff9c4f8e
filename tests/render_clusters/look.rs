//! What a test sees of its world: conditions of sites, metrics, requests.

use std::sync::Arc;

use anyhow::{Context, Result};
use prometheus_client::encoding::text::encode;
use renderhub::base::metrics::CallLabels;
use renderhub::base::metrics::clusters::label;
use renderhub::plan::platform::catalog::CatalogCluster;
use renderhub::plan::remote::site::{ClusterName, Site, SiteState};
use renderhub::remote::SiteRequest;
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::wait_for;
use serde_json::json;

use super::world::{LIMIT, World};

impl World {
    /// Lets the loop handle every event so far.
    pub async fn barrier(&self) -> Result<()> {
        let name = self.name(&format!(
            "barrier-{}",
            k8s_openapi::jiff::Timestamp::now().as_millisecond()
        ));
        self.put_cluster(&name, &name, json!({})).await?;
        self.until_connected_is(&name, "False", "KubeconfigNotFound")
            .await?;
        self.delete_cluster(&name).await
    }

    /// Lines of the metrics that name a cluster.
    pub fn shown(&self, name: &str) -> String {
        let mut text = String::new();
        encode(&mut text, &self.running.shown).expect("metrics can be shown");
        let lines = text.lines().filter(|line| line.contains(&format!("\"{name}\"")));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Attempts to connect, and connections in the place of others.
    pub fn connections_of(&self, name: &str) -> (u64, u64) {
        let clusters = &self.running.metrics.clusters;
        let attempts = clusters.attempts.get_or_create(&label(name)).get();
        (attempts, clusters.reconnects.get_or_create(&label(name)).get())
    }

    /// How often the hub read any Secret with its values.
    pub fn reads(&self) -> u64 {
        let labels = CallLabels {
            verb: "get",
            resource: "secrets",
            code: 200,
        };
        self.running.metrics.api_calls.get_or_create(&labels).get()
    }

    /// How often the hub read one Secret with its values.
    pub async fn reads_of(&self, secret: &str) -> Result<usize> {
        let events = self.hub.audit()?.since(Mark::START).await?;
        let is_read = |event: &&Event| {
            event.user == self.hub_user.name() && event.action() == "get secrets" && event.name == secret
        };
        Ok(events.iter().filter(is_read).count())
    }

    /// The names of the clusters whose status was written since, once for each write.
    pub async fn written(&self, since: Mark) -> Result<Vec<String>> {
        let mut events = self.hub.audit()?.since(since).await?;
        events.retain(|event| {
            event.is_write() && event.resource == "renderclusters" && event.user == self.hub_user.name()
        });
        Ok(events.into_iter().map(|event| event.name).collect())
    }

    /// Waits until the status of a cluster has not changed for longer than any write may wait.
    pub async fn settled(&self, name: &str) -> Result<()> {
        let begin = self.status(name).await?.last_probe_time;
        self.set_active(name, 1);
        wait_for("its Jobs to be told", LIMIT, async || {
            Ok((self.status(name).await?.active_jobs == Some(1)).then_some(()))
        })
        .await?;
        self.set_active(name, 0);
        wait_for("its Jobs to be gone", LIMIT, async || {
            Ok((self.status(name).await?.active_jobs == Some(0)).then_some(()))
        })
        .await?;
        assert!(begin.is_some());
        Ok(())
    }

    pub fn set_active(&self, name: &str, jobs: usize) {
        self.running
            .active
            .send_replace(Arc::new([(name.to_owned(), jobs)].into()));
    }

    /// Where Jobs of a platform's cluster run.
    pub fn site(&self, name: &str) -> Site {
        Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: self.jobs.clone(),
        }
    }

    /// Waits until the connection of a platform's cluster is up.
    pub async fn is_up(&self, name: &str) -> Result<()> {
        let site = self.site(name);
        self.state(&site, "it to be up", |state| *state == SiteState::Up)
            .await
            .map(drop)
    }

    pub fn want(&self, want: SiteRequest) -> Result<()> {
        self.running.wants.send(want).context("the loop runs")
    }

    /// Waits until a site is in this state.
    pub async fn state(
        &self,
        site: &Site,
        what: &str,
        is_so: impl Fn(&SiteState) -> bool,
    ) -> Result<SiteState> {
        wait_for(what, LIMIT, async || {
            let state = self
                .running
                .states
                .lock()
                .expect("no test panics with it")
                .get(site)
                .cloned();
            let state = state.context("nothing was said of it")?;
            anyhow::ensure!(is_so(&state), "{state:?}");
            Ok(Some(state))
        })
        .await
    }

    /// Waits until a cluster is offered so.
    pub async fn offered(
        &self,
        name: &str,
        is_so: impl Fn(&CatalogCluster) -> bool,
    ) -> Result<CatalogCluster> {
        wait_for("the cluster to be offered", LIMIT, async || {
            let catalog = self.running.catalog.borrow().clone().context("no catalog yet")?;
            Ok(catalog
                .clusters
                .get(name)
                .filter(|cluster| is_so(cluster))
                .cloned())
        })
        .await
    }

    /// Waits until a cluster is offered no more.
    pub async fn withdrawn(&self, name: &str) -> Result<()> {
        wait_for("the cluster to be withdrawn", LIMIT, async || {
            let catalog = self.running.catalog.borrow().clone().context("no catalog yet")?;
            Ok((!catalog.clusters.contains_key(name)).then_some(()))
        })
        .await
    }
}
