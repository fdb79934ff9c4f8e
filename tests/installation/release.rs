//! What becomes of a release: an earlier chart, an upgrade, a rollback, its tests, the other mode.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::{ConditionType, Reason};
use renderhub_harness::image::Image;
use renderhub_harness::{apply, commands, helm, process, rundir, wait_for};
use serde_json::{Value, json};

use super::{HUB, LIMIT, RENDERING, TENANT, World, ended, finish, holds, submit};
use support::programs;

/// What the earlier chart's CRD lacks.
const SHORT_NAME: &str = "    shortNames:\n    - rt\n";
/// An account of the tenant's that the hub may become, by the values below.
const BUILDER: &str = "builder";
const CHANGED: [&str; 6] = [
    "replicaCount=2",
    "controller.watchNamespaces={team-a}",
    "controller.maxActiveJobs=40",
    "controller.logLevel=debug",
    "tenancy.serviceAccounts.team-a={builder}",
    "tests.networkPolicy=false",
];
const TEST: [&str; 7] = [
    "test",
    "renderhub",
    "--namespace",
    HUB,
    "--timeout",
    "3m",
    "--logs",
];

impl World {
    /// Installs a chart with a lower version, whose CRDs know less.
    pub async fn install_an_earlier_chart(&self) -> Result<()> {
        let images = rundir::fresh("images")?;
        let hub = Image::hub(programs::hub());
        let renderer = Image::renderer(programs::renderer());
        for image in [hub, renderer] {
            self.node.import_image(&image.write(&images)?.tar)?;
        }
        let earlier = self.earlier_chart().await?;
        self.release("install", &earlier, &[]).await?;
        ensure!(
            !self.knows_short_name().await?,
            "the earlier chart is no earlier one"
        );
        Ok(())
    }

    async fn earlier_chart(&self) -> Result<PathBuf> {
        let dir = rundir::fresh("earlier")?;
        let copy = dir.join("renderhub");
        process::run(
            Command::new("cp")
                .arg("-r")
                .arg(helm::renderhub_chart())
                .arg(&copy),
        )?;
        let crd = copy.join("files/crds/rendertasks.yaml");
        let text = std::fs::read_to_string(&crd)?;
        ensure!(text.contains(SHORT_NAME), "the CRD has another form");
        std::fs::write(&crd, text.replace(SHORT_NAME, ""))?;
        let (copy, into) = (text_of(&copy)?, text_of(&dir)?);
        self.helm
            .run(&["package", &copy, "--version", "0.0.9", "--destination", &into])
            .await?;
        Ok(dir.join("renderhub-0.0.9.tgz"))
    }

    /// Whether the API server knows `rt` for rendertasks.
    async fn knows_short_name(&self) -> Result<bool> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.plane.admin().client().await?);
        let names = crds.get("rendertasks.renderhub.dev").await?.spec.names;
        Ok(names.short_names.is_some_and(|names| names == ["rt"]))
    }

    /// Runs `helm install` or `upgrade`, and waits until the hub is ready.
    async fn release(&self, verb: &str, chart: &Path, sets: &[&str]) -> Result<()> {
        let chart = text_of(chart)?;
        let words = [
            verb,
            "renderhub",
            &chart,
            "--namespace",
            HUB,
            "--wait",
            "--timeout",
            "2m",
        ];
        let create = (verb == "install").then_some("--create-namespace");
        // Only an upgrade lets tenants name a registry of their own.
        let hosts = format!("tenancy.ownRegistries.hosts={{{}}}", self.way.host());
        let hosts = (verb == "upgrade").then_some(hosts.as_str());
        let sets = sets.iter().copied().chain(hosts).flat_map(|set| ["--set", set]);
        let all: Vec<&str> = words.into_iter().chain(create).chain(sets).collect();
        self.helm.run(&all).await?;
        let hub = self.hub().await?;
        ensure!(
            hub.status.unwrap_or_default().ready_replicas == hub.spec.unwrap_or_default().replicas,
            "helm waited, and the hub is not ready"
        );
        Ok(())
    }

    async fn hub(&self) -> Result<Deployment> {
        let deployments: Api<Deployment> = Api::namespaced(self.plane.admin().client().await?, HUB);
        Ok(deployments.get("renderhub").await?)
    }

    async fn runs_with(&self, flag: &str) -> Result<bool> {
        let pod = self
            .hub()
            .await?
            .spec
            .and_then(|spec| spec.template.spec)
            .context("no pod")?;
        Ok(pod.containers[0].args.iter().flatten().any(|arg| arg == flag))
    }

    /// What helm renders, the API server would take: `helm template | kubectl apply --dry-run=server`.
    pub async fn the_api_server_takes_every_mode(&self) -> Result<()> {
        let file = rundir::fresh("rendered")?.join("all.yaml");
        let chart = text_of(&helm::renderhub_chart())?;
        for sets in [
            "rbac.clusterAdmin=false",
            "rbac.clusterAdmin=true",
            "controller.watchNamespaces={team-a},tenancy.defaultServiceAccount=builder,tenancy.identity=impersonate",
            "controller.noCrossNamespaceRefs=false,networkPolicy.blockedCIDRs={10.0.0.0/8},podDisruptionBudget.maxUnavailable=0",
        ] {
            let rendered = self
                .helm
                .run(&["template", "renderhub", &chart, "--namespace", HUB, "--set", sets])
                .await?;
            std::fs::write(&file, rendered)?;
            let mut kubectl = commands::kubectl(self.plane.admin())?;
            process::run(
                kubectl
                    .args(["apply", "--dry-run=server", "--filename"])
                    .arg(&file),
            )
            .context(sets)?;
        }
        Ok(())
    }

    /// A task that runs while the hub is replaced gets its end from the new one, and its pod is never another.
    pub async fn upgrading_loses_nothing(&self, tenant: &Client) -> Result<()> {
        let before = ended(tenant, "web").await?;
        let running = self.start_a_task_that_runs_on(tenant, "moving").await?;
        self.release("upgrade", &helm::renderhub_chart(), &CHANGED)
            .await?;
        self.one_is_active_and_one_is_a_standby().await?;
        self.no_update_starts_another_hub_beside_this_one().await?;
        ensure!(self.running_pods().await? == running, "the task's pod is another");
        self.way.release();
        ensure!(self.knows_short_name().await?, "helm did not upgrade the CRD");
        ensure!(
            self.runs_with("--max-active-jobs=40").await?,
            "the changed value is not there"
        );
        ensure!(
            holds(&ended(tenant, "moving").await?, ConditionType::JobSucceeded),
            "moving did not succeed"
        );
        let after = ended(tenant, "web").await?;
        ensure!(
            before.resource_version() == after.resource_version(),
            "the new hub wrote to a finished task"
        );
        Ok(())
    }

    pub async fn rolling_back_works(&self, tenant: &Client) -> Result<()> {
        self.helm
            .run(&[
                "rollback",
                "renderhub",
                "1",
                "--namespace",
                HUB,
                "--wait",
                "--timeout",
                "2m",
            ])
            .await?;
        ensure!(!self.knows_short_name().await?, "helm did not roll the CRD back");
        ensure!(
            self.runs_with("--max-active-jobs=256").await?,
            "the default is not back"
        );
        let task = finish(tenant, "rolled-back", "rolled-back", json!({})).await?;
        ensure!(
            holds(&task, ConditionType::JobSucceeded),
            "no task succeeds after a rollback"
        );
        Ok(())
    }

    /// This node's network enforces no `NetworkPolicy`, and helm's test says so where it is looked for; without that one the others
    /// pass.
    pub async fn helm_test_sees_an_open_network(&self) -> Result<()> {
        let (passes, said) = self.helm.try_run(&TEST).await?;
        ensure!(passes && said.contains("says that the hub is ready"), "{said}");
        self.release("upgrade", &helm::renderhub_chart(), &CHANGED[..5])
            .await?;
        let (passes, said) = self.helm.try_run(&TEST).await?;
        ensure!(!passes, "helm test does not see an open network: {said}");
        for part in [
            "says that the hub is ready",
            "was reached: the cluster's network does not enforce NetworkPolicy",
        ] {
            ensure!(said.contains(part), "{part} is not in what helm says: {said}");
        }
        ensure!(!said.contains("unable to get"), "helm misses a pod: {said}");
        self.nothing_is_left_of_the_test().await
    }

    /// From here on the chart's policies are enforced on every new pod but those of the hub's namespace.
    pub async fn close_the_network(&self) -> Result<()> {
        let labels = [("app.kubernetes.io/managed-by", "renderhub")];
        self.node.enforce_policies(&self.plane, RENDERING, &labels).await
    }

    /// With the chart's policies enforced the same test passes, and says why.
    pub async fn helm_test_sees_a_closed_network(&self) -> Result<()> {
        let (passes, said) = self.helm.try_run(&TEST).await?;
        ensure!(passes, "{said}");
        let part = format!("cannot be reached from pods of {RENDERING}: ");
        ensure!(said.contains(&part), "{part} is not in what helm says: {said}");
        self.nothing_is_left_of_the_test().await
    }

    /// No Job of the test, and no pod of that.
    async fn nothing_is_left_of_the_test(&self) -> Result<()> {
        let admin = self.plane.admin().client().await?;
        let of_tests = ListParams::default().labels("app.kubernetes.io/component=test");
        let jobs: Api<Job> = Api::namespaced(admin.clone(), RENDERING);
        let pods: Api<Pod> = Api::namespaced(admin, RENDERING);
        wait_for("the test's Job and its pod to be gone", LIMIT, async || {
            let jobs = jobs.list_metadata(&of_tests).await?;
            let pods = pods.list_metadata(&of_tests).await?;
            Ok((jobs.items.is_empty() && pods.items.is_empty()).then_some(()))
        })
        .await
    }

    /// Helm takes the hub's rights away; the hub ended before that, and its Leases have no holder.
    pub async fn its_leases_are_released(&self, prefix: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.plane.admin().client().await?, RENDERING);
        let mut leases = leases.list(&ListParams::default()).await?.items;
        leases.retain(|lease| lease.name_any().starts_with(prefix));
        let holders: Vec<_> = leases.iter().map(holder).collect();
        ensure!(
            !holders.is_empty() && holders.iter().all(Option::is_none),
            "{prefix}: {holders:?}"
        );
        Ok(())
    }

    pub async fn nothing_is_left_of_the_uninstall(&self) -> Result<()> {
        let admin = self.plane.admin().client().await?;
        let of_it = ListParams::default().labels("app.kubernetes.io/component=stop");
        let jobs: Api<Job> = Api::namespaced(admin.clone(), HUB);
        let roles: Api<Role> = Api::namespaced(admin.clone(), HUB);
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), HUB);
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, HUB);
        wait_for("what the uninstall made to be gone", LIMIT, async || {
            let is_gone = jobs.list_metadata(&of_it).await?.items.is_empty()
                && roles.list_metadata(&of_it).await?.items.is_empty()
                && bindings.list_metadata(&of_it).await?.items.is_empty()
                && accounts.list_metadata(&of_it).await?.items.is_empty();
            Ok(is_gone.then_some(()))
        })
        .await
    }

    /// The hub's Role names the account, and the account's own rights do the rest.
    pub async fn a_task_with_a_service_account_pushes_to_its_own_registry(
        &self,
        tenant: &Client,
    ) -> Result<()> {
        let rbac = "rbac.authorization.k8s.io";
        let named = |kind: &str| {
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": { "name": BUILDER, "namespace": TENANT },
            })
        };
        let mut account = named("ServiceAccount");
        account["apiVersion"] = json!("v1");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "own-push", "namespace": TENANT },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": self.registry.docker_config_json_for(&self.way.host()) },
        });
        let mut role = named("Role");
        role["rules"] = json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own-push"], "verbs": ["get"] }]);
        let mut binding = named("RoleBinding");
        binding["roleRef"] = json!({ "apiGroup": rbac, "kind": "Role", "name": BUILDER });
        binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": BUILDER, "namespace": TENANT }]);
        for object in [account, secret, role, binding] {
            apply::object(tenant, object).await?;
        }
        let task = finish(tenant, "own", "own", self.own_registry(&json!(BUILDER))).await?;
        ensure!(holds(&task, ConditionType::JobSucceeded), "{:?}", task.status);
        Ok(())
    }

    /// A spec that describes the tenant's own registry.
    fn own_registry(&self, account: &Value) -> Value {
        json!({
            "registryRef": null, "baseURL": self.way.host(), "plainHTTP": true,
            "pushSecretRef": { "name": "own-push" }, "serviceAccountName": account,
        })
    }

    /// The mode for one team, into what the last release left.
    pub async fn one_team_needs_no_service_account(&self, tenant: &Client) -> Result<()> {
        self.release("install", &helm::renderhub_chart(), &["rbac.clusterAdmin=true"])
            .await?;
        let task = finish(tenant, "one-team", "one-team", self.own_registry(&Value::Null)).await?;
        ensure!(holds(&task, ConditionType::JobSucceeded), "{:?}", task.status);
        // A task that names an account has that account's rights and no more, in this mode too.
        submit(tenant, "narrow", "narrow", self.own_registry(&json!("default"))).await?;
        let tasks: Api<RenderTask> = Api::namespaced(tenant.clone(), TENANT);
        wait_for(
            "the task with the narrow account to be refused",
            LIMIT,
            async || {
                let status = tasks.get("narrow").await?.status.unwrap_or_default();
                let is_refused = status
                    .conditions
                    .iter()
                    .any(|c| c.reason == Reason::RBACDenied.as_str());
                Ok(is_refused.then_some(()))
            },
        )
        .await?;
        tasks.delete("narrow", &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The instance that holds it; none where it was released.
pub fn holder(lease: &Lease) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.clone();
    holder.filter(|holder| !holder.is_empty())
}

fn text_of(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path that is no text")?.to_owned())
}
