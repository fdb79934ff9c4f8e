//! Hubs that are started, ended, killed and given other lists.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use renderhub::api::labels::HUB_ID;
use renderhub_harness::{Hub, Identity, Rights, wait_for};

use crate::fleet::Fleet;
use support::LIMIT;
use support::away::LOOPBACK;
use support::programs;

/// From when to when a hub served which namespaces.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub namespaces: BTreeSet<String>,
    pub from: Timestamp,
    pub until: Option<Timestamp>,
}

/// One of the hubs.
pub struct Shard {
    pub name: String,
    pub user: Identity,
    pub tenures: Vec<Tenure>,
    hub: Option<Hub>,
    /// Instances of it so far.
    instances: usize,
}

/// All of them.
pub struct Hubs {
    pub shards: Vec<Shard>,
    fleet: Arc<Fleet>,
    /// The logs of those that ran, to be read after a failure.
    logs: Vec<PathBuf>,
}

impl Hubs {
    /// None yet.
    pub fn new(fleet: &Arc<Fleet>) -> Self {
        Self {
            shards: Vec::new(),
            fleet: Arc::clone(fleet),
            logs: Vec::new(),
        }
    }

    /// Starts a new hub for these namespaces, and waits until it is ready.
    pub async fn add(&mut self, name: &str, namespaces: &[String]) -> Result<()> {
        let rights = self.rights(namespaces).await?;
        let user = self.fleet.sites[0].plane.user_with_rights(name, &rights).await?;
        self.shards.push(Shard {
            name: name.to_owned(),
            user,
            tenures: Vec::new(),
            hub: None,
            instances: 0,
        });
        let last = self.shards.len() - 1;
        self.start(last, namespaces)?;
        self.hub(last)?.wait_ready().await
    }

    /// What the chart gives a release with this list.
    async fn rights(&self, namespaces: &[String]) -> Result<Rights> {
        Rights::of_chart(&[
            format!("renderingNamespace.name={}", self.fleet.rendering),
            format!("clusters.namespace={}", self.fleet.rendering),
            format!("renderer.pullSecretNamespace={}", self.fleet.rendering),
            format!("controller.watchNamespaces={{{}}}", namespaces.join(",")),
        ])
        .await
    }

    /// Starts an instance of a hub under a name that no instance of it had.
    fn start(&mut self, shard: usize, namespaces: &[String]) -> Result<()> {
        let rendering = format!("--rendering-namespace={}", self.fleet.rendering);
        let shard = &mut self.shards[shard];
        shard.instances += 1;
        let flags = [
            rendering,
            format!("--shard-name={}", shard.name),
            format!("--instance-name={}-{}", shard.name, shard.instances),
            format!("--watch-namespaces={}", namespaces.join(",")),
            LOOPBACK.to_owned(),
        ];
        shard.tenures.push(Tenure {
            namespaces: namespaces.iter().cloned().collect(),
            from: Timestamp::now(),
            until: None,
        });
        let hub = Hub::spawn(programs::hub(), &shard.user.kubeconfig()?, &flags)?;
        self.logs.push(hub.log_path().to_owned());
        shard.hub = Some(hub);
        Ok(())
    }

    pub fn hub(&self, shard: usize) -> Result<&Hub> {
        self.shards[shard].hub.as_ref().context("the hub does not run")
    }

    /// Kills a hub as a crash would, and starts another instance of it, which must wait until the first counts as gone.
    pub fn kill_and_replace(&mut self, shard: usize) -> Result<()> {
        let served = self.ended(shard, Hub::kill9)?;
        self.start(shard, &served)
    }

    /// Ends a hub as a node does.
    pub async fn stop(&mut self, shard: usize) -> Result<()> {
        let status = self.hub(shard)?.sigterm(LIMIT).await?;
        ensure!(status.success(), "the hub ended with {status}");
        self.ended(shard, |_| ()).map(drop)
    }

    /// Records the end of a hub; returns the namespaces that it served.
    fn ended(&mut self, shard: usize, end: impl Fn(&Hub)) -> Result<Vec<String>> {
        let shard = &mut self.shards[shard];
        end(&shard.hub.take().context("the hub does not run")?);
        let tenure = shard.tenures.last_mut().context("it served something")?;
        tenure.until = Some(Timestamp::now());
        Ok(tenure.namespaces.iter().cloned().collect())
    }

    /// Starts a hub that was stopped with another list, as an upgrade of its release does.
    pub async fn restart_for(&mut self, shard: usize, namespaces: &[String]) -> Result<()> {
        let rights = self.rights(namespaces).await?;
        let user = self.shards[shard].user.clone();
        self.fleet.sites[0].plane.set_rights(&user, &rights).await?;
        for namespace in &self.fleet.namespaces {
            if !namespaces.contains(namespace) {
                self.withdraw(&user, namespace).await?;
            }
        }
        self.start(shard, namespaces)?;
        self.hub(shard)?.wait_ready().await
    }

    /// Takes from a user what it may do in a namespace, as helm does with a binding that is no longer rendered.
    async fn withdraw(&self, user: &Identity, namespace: &str) -> Result<()> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.fleet.admin.clone(), namespace);
        for binding in bindings.list(&ListParams::default()).await? {
            let mut subjects = binding.subjects.iter().flatten();
            if subjects.any(|subject| subject.name == user.name()) {
                bindings
                    .delete(&binding.name_any(), &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }

    /// Waits until nothing of any task is left on any cluster.
    pub async fn until_cleared(&self) -> Result<()> {
        let of_hubs = ListParams::default().labels(HUB_ID).limit(1);
        wait_for("the hubs to clear up", LIMIT, async || {
            for site in &self.fleet.sites {
                let jobs: Api<Job> = Api::namespaced(site.admin.clone(), &site.namespace);
                let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), &site.namespace);
                let left = jobs.list_metadata(&of_hubs).await?.items.len()
                    + secrets.list_metadata(&of_hubs).await?.items.len();
                if left > 0 {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
        .with_context(|| self.described())
    }

    /// Fails if a hub that should run has ended.
    pub fn all_run(&self) -> Result<()> {
        for shard in &self.shards {
            if let Some((hub, status)) = shard.hub.as_ref().and_then(|hub| Some((hub, hub.exit_status()?))) {
                bail!("the hub {} ended ({status}):\n{}", shard.name, hub.log());
            }
        }
        Ok(())
    }

    /// The ends of the logs of all hubs that ran.
    pub fn described(&self) -> String {
        let tail = |path: &PathBuf| {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            lines[lines.len().saturating_sub(8)..].join("\n")
        };
        self.logs.iter().map(tail).collect::<Vec<_>>().join("\n---\n")
    }
}
