//! Before the loops: the identity of the hub, the strictness of its settings, and the preflight.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::config::AuthInfo;
use kube::core::PartialObjectMeta;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::lease_keeper::LeaseKeeperTask;
use crate::api::names::HubId;
use crate::app::config::{OutputFormat, Settings};
use crate::app::probe;
use crate::app::probe::{ProbeArgs, ProbeError, ProbeTimeouts};
use crate::app::stop;
use crate::app::stop::{HubDeployment, StopOutcome};
use crate::base::metrics::{Metrics, ModeLabels, SettingLabel};
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::lease::{LeaseClient, LeaseHolder};
use crate::kubernetes::preflight::FactCollector;
use crate::kubernetes::seal_key;
use crate::kubernetes::write_fence;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::lease::{HolderIdentity, InstanceState, LeaseExit, NamespaceScope, finding};
use crate::plan::platform::unserved_namespaces;
use crate::plan::preflight::{CheckResult, PreflightCheck, PreflightFinding, RUNBOOK, judge, table};
use crate::plan::task::status_seal::SealKey;

/// The namespace whose UID identifies the cluster.
const KUBE_SYSTEM: &str = "kube-system";
/// Pause before the API server is asked again for the namespace whose UID the hub id contains.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Longest wait for the UID that the hub id contains.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest that a person waits for findings; a Lease record that has to be watched takes a quarter of it.
const FINDINGS_LIMIT: Duration = Duration::from_secs(60);

/// A hub that may start.
pub(super) struct StartedHub {
    /// The hub's own calls, through the fence.
    pub hub_client: HubClient,
    /// The key of its statuses' seals.
    pub key: SealKey,
    /// The task that renews its Lease.
    pub lease: LeaseKeeperTask,
    /// UIDs of the namespaces that the start read.
    pub namespaces: BTreeMap<String, String>,
}

/// Everything before the loops, in order; `None` when a signal stops the hub meanwhile.
pub(super) async fn start_up(
    clients: &HubClients,
    settings: &Settings,
    metrics: &Metrics,
    stop: &CancellationToken,
    state: watch::Sender<InstanceState>,
) -> Result<Option<StartedHub>, AppError> {
    let identified = tokio::select! {
        identified = identify(clients, settings, metrics) => identified?,
        () = stop.cancelled() => return Ok(None),
    };
    let (hub_client, key, namespaces) = identified;
    let leases = LeaseClient::new(
        clients.unfenced.clone(),
        &settings.start.lease_namespace,
        metrics.clone(),
    );
    let standby_log = tokio::spawn(log_standby(state.subscribe()));
    let taken = leases
        .take(holder(settings, hub_client.hub_id()), stop, state)
        .await;
    standby_log.abort();
    let lease = match taken {
        Ok(lease) => lease,
        Err(LeaseExit::Conflict(alive)) => {
            report(&[finding(&alive)], metrics)?;
            return Ok(None);
        }
        Err(LeaseExit::Stopped) => return Ok(None),
        Err(error) => return Err(AppError::Lease(error)),
    };
    report(&[finding(&[])], metrics)?;
    clients.fence.open(lease.validity());
    tracing::info!("this instance works");
    let kept = key_after_wait(&hub_client, key, lease, stop).await?;
    Ok(kept.map(|(key, lease)| StartedHub {
        hub_client,
        key,
        lease,
        namespaces,
    }))
}

/// Keeps the Lease from now on, and reads the key once more where this instance stood by: it may have been made anew meanwhile.
async fn key_after_wait(
    hub_client: &HubClient,
    key: SealKey,
    lease: LeaseHolder,
    stop: &CancellationToken,
) -> Result<Option<(SealKey, LeaseKeeperTask)>, AppError> {
    let has_stood_by = lease.has_stood_by();
    let lease = LeaseKeeperTask::start(lease);
    if !has_stood_by {
        return Ok(Some((key, lease)));
    }
    lease.during(seal_key::load(hub_client), stop).await
}

/// Reads the identity of this hub and runs the preflight, all but the check for other hubs; returns its calls, the key of its
/// seals, and the UIDs of the namespaces that it read.
async fn identify(
    clients: &HubClients,
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(HubClient, SealKey, BTreeMap<String, String>), AppError> {
    let client = &clients.unfenced;
    let mut namespaces = BTreeMap::from([(KUBE_SYSTEM.to_owned(), cluster_uid(client).await?)]);
    let hub_id = HubId::new(&settings.shard_name, &namespaces[KUBE_SYSTEM])?;
    announce(settings, &hub_id, metrics);
    let facts = fact_collector(client, settings, metrics).facts().await;
    report(&judge(&facts, &settings.start.skipped), metrics)?;
    let rendering = &settings.rendering_namespace;
    let calls =
        |client: &Client| HubClient::new(client.clone(), metrics.clone(), rendering.clone(), hub_id.clone());
    // After the checks, because the key is written to the rendering namespace.
    let key = seal_key::load(&calls(client)).await?;
    if let Some(uid) = uid_of(client, rendering).await {
        namespaces.insert(rendering.clone(), uid);
    }
    Ok((calls(&clients.hub), key, namespaces))
}

/// The findings of the preflight of a hub with these settings, as text, and whether the hub could start.
///
/// # Errors
/// The API server cannot be asked.
pub async fn preflight(settings: Settings, output: OutputFormat) -> Result<(String, bool), AppError> {
    let client = clients(WriteFence::default()).await?.unfenced;
    let findings = findings_in_time(&client, &settings).await?;
    let text = match output {
        OutputFormat::Table => table::render(&findings),
        OutputFormat::Json => serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n",
    };
    Ok((text, findings.iter().all(|f| f.result != CheckResult::Refused)))
}

/// Probes the network; returns a sentence for each check.
///
/// # Errors
/// The probe is to run in a Job, and there is no cluster to make it in.
pub async fn probe_network(args: &ProbeArgs) -> Result<Vec<Result<String, ProbeError>>, AppError> {
    let client = match &args.from_job {
        Some(_) => Some(clients(WriteFence::default()).await?.unfenced),
        None => None,
    };
    Ok(probe::run(args, ProbeTimeouts::default(), client.as_ref()).await)
}

/// Stops a hub that is about to be uninstalled; returns the outcome within the limit.
///
/// # Errors
/// There is no cluster to find it in.
pub async fn stop_hub(hub: &HubDeployment, limit: Duration) -> Result<StopOutcome, AppError> {
    let client = clients(WriteFence::default()).await?.unfenced;
    Ok(stop::run(&client, hub, limit).await)
}

/// The findings, within the time that a person waits for them.
async fn findings_in_time(client: &Client, settings: &Settings) -> Result<Vec<PreflightFinding>, AppError> {
    let found = tokio::time::timeout(FINDINGS_LIMIT, findings(client, settings)).await;
    found.unwrap_or(Err(AppError::NoAnswer))
}

async fn findings(client: &Client, settings: &Settings) -> Result<Vec<PreflightFinding>, AppError> {
    let (metrics, _) = Metrics::new();
    let hub_id = HubId::new(&settings.shard_name, &cluster_uid(client).await?)?;
    let collector = fact_collector(client, settings, &metrics);
    let facts = collector.facts().await;
    let mut findings = judge(&facts, &settings.start.skipped);
    let leases = LeaseClient::new(client.clone(), &settings.start.lease_namespace, metrics);
    let peers = match leases.peers(&holder(settings, &hub_id)).await {
        // The operator of a running hub asks about the other hubs.
        Ok(peers) if peers.conflicts.is_empty() && peers.is_running => PreflightFinding::warning(
            PreflightCheck::Peers,
            "this hub runs already; another instance of it would stand by",
            "",
        ),
        Ok(peers) => finding(&peers.conflicts),
        Err(error) => PreflightFinding::refused(
            PreflightCheck::Peers,
            error.to_string(),
            "grant it, as the chart does",
        ),
    };
    findings.push(peers);
    findings.push(unserved_finding(&collector, settings, &leases).await);
    Ok(findings)
}

/// The finding on namespaces that no hub serves, other than this hub's own.
async fn unserved_finding(
    collector: &FactCollector,
    settings: &Settings,
    leases: &LeaseClient,
) -> PreflightFinding {
    let check = PreflightCheck::UnownedNamespaces;
    if settings.start.skipped.contains(&check) {
        return PreflightFinding::skipped(check);
    }
    let named = collector.task_namespaces().await;
    let own = NamespaceScope::new(&settings.watch_namespaces);
    match leases.records().await {
        Ok(records) => unserved_namespaces::finding(&unserved_namespaces::unserved_now(
            &records,
            &named,
            &own,
            Timestamp::now(),
        )),
        Err(error) => PreflightFinding::warning(check, error.to_string(), "grant it, as the chart does"),
    }
}

/// Logs when the instance is a standby.
async fn log_standby(mut state: watch::Receiver<InstanceState>) {
    while state
        .wait_for(|state| *state == InstanceState::Standby)
        .await
        .is_ok()
    {
        tracing::info!("standing by: another instance of this hub works");
        if state
            .wait_for(|state| *state != InstanceState::Standby)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Logs how strict the hub is, and publishes it as a metric.
fn announce(settings: &Settings, hub_id: &HubId, metrics: &Metrics) {
    metrics.queue.by_namespace(settings.admin.metrics_by_namespace);
    let posture = settings.posture();
    let (mode, tenant_identity) = (posture.mode(), posture.identity_method.as_str());
    let labels = ModeLabels {
        mode,
        tenant_identity,
    };
    metrics.mode.get_or_create(&labels).set(1);
    let relaxed = posture.relaxed();
    for setting in &relaxed {
        metrics
            .relaxed_settings
            .get_or_create(&SettingLabel { setting })
            .set(1);
    }
    let rendering_namespace = &settings.rendering_namespace;
    if relaxed.is_empty() {
        tracing::info!(%hub_id, rendering_namespace, mode, tenant_identity, relaxed = "nothing", "starting");
    } else {
        let relaxed = relaxed.join(",");
        tracing::warn!(%hub_id, rendering_namespace, mode, tenant_identity, relaxed, "starting with relaxed settings");
    }
}

/// Logs a line for each finding that the platform operator has to act on.
///
/// # Errors
/// A finding keeps the hub from starting.
fn report(findings: &[PreflightFinding], metrics: &Metrics) -> Result<(), AppError> {
    let mut refused = 0;
    for finding in findings {
        metrics.set_check_result(finding.check.as_str(), finding.result.as_str());
        let (check, found, fix) = (finding.check.as_str(), &finding.message, &finding.fix);
        let page = format!("{RUNBOOK}#{check}");
        match finding.result {
            CheckResult::Refused => {
                refused += 1;
                tracing::error!(check, fix, page, "refused: {found}");
            }
            CheckResult::Warning => tracing::warn!(check, fix, page, "{found}"),
            CheckResult::Ok | CheckResult::Skipped => {}
        }
    }
    if refused == 0 {
        Ok(())
    } else {
        Err(AppError::Preflight(refused))
    }
}

/// Collects the facts of the preflight.
pub(super) fn fact_collector(client: &Client, settings: &Settings, metrics: &Metrics) -> FactCollector {
    FactCollector {
        client: client.clone(),
        metrics: metrics.clone(),
        rendering: settings.rendering_namespace.clone(),
        kubeconfigs: settings.clusters.namespace.clone(),
        watched: settings.watch_namespaces.clone(),
        is_single_tenant: settings.tenancy.is_single_tenant,
        pipeline: settings.pipeline.as_ref().map(|pipeline| pipeline.rules.clone()),
        skipped: settings.start.skipped.clone(),
        pause: None,
    }
}

fn holder(settings: &Settings, hub_id: &HubId) -> HolderIdentity {
    HolderIdentity {
        hub_id: hub_id.clone(),
        holder: settings.start.instance_name.clone(),
        // Two processes differ in their number or in their start.
        process: format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond()),
        rendering: settings.rendering_namespace.clone(),
        watched: NamespaceScope::new(&settings.watch_namespaces),
    }
}

/// Clients of the hub's own cluster. kube's own retries are off: they repeat writes, without a bound on the wait.
pub(super) struct HubClients {
    /// The hub's own, without the fence: for the start, for the Lease, and for commands that are no hub. No loop has it.
    unfenced: Client,
    /// Opens while the hub holds its Lease.
    pub fence: WriteFence,
    /// The hub's own, through the fence.
    pub hub: Client,
    /// Reaches the same API server without any credential, through the fence.
    pub anonymous: Client,
}

/// How the hub's own cluster is reached.
pub(super) async fn cluster_config() -> Result<Config, AppError> {
    let debugging = [
        "KUBE_RS_DEBUG_IMPERSONATE_USER",
        "KUBE_RS_DEBUG_IMPERSONATE_GROUP",
        "KUBE_RS_DEBUG_OVERRIDE_URL",
    ];
    if let Some(set) = debugging
        .into_iter()
        .find(|name| std::env::var_os(name).is_some())
    {
        return Err(AppError::DebugIdentity(set));
    }
    let mut config = match Config::incluster() {
        Ok(config) => config,
        Err(_) => Config::from_kubeconfig(&kube::config::KubeConfigOptions::default())
            .await
            .map_err(|_| AppError::NoCluster)?,
    };
    config.default_retry = false;
    config.proxy_url = None;
    Ok(config)
}

pub(super) async fn clients(fence: WriteFence) -> Result<HubClients, AppError> {
    let config = cluster_config().await?;
    let mut anonymous = config.clone();
    anonymous.auth_info = AuthInfo::default();
    let fenced = |config: &Config| write_fence::client(config, &fence).map_err(|_| AppError::NoCluster);
    Ok(HubClients {
        hub: fenced(&config)?,
        anonymous: fenced(&anonymous)?,
        unfenced: Client::try_from(config).map_err(|_| AppError::NoCluster)?,
        fence,
    })
}

/// UID of a namespace that the hub may read; a cluster that has a namespace with this UID is the hub's own.
async fn uid_of(client: &Client, namespace: &str) -> Option<String> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let read = tokio::time::timeout(DEADLINE, api.get_metadata(namespace)).await;
    read.ok()?.ok()?.metadata.uid
}

/// The UID that the hub id contains; asked for until the API server answers, because a hub may start before it.
async fn cluster_uid(client: &Client) -> Result<String, AppError> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    loop {
        match tokio::time::timeout(DEADLINE, api.get_metadata(KUBE_SYSTEM)).await {
            Ok(Ok(namespace)) => {
                return namespace.metadata.uid.ok_or(AppError::NoClusterId);
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404) => {
                return Err(AppError::NoClusterId);
            }
            _ => tracing::warn!("the API server does not answer; it is asked again"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tokio::time::Instant;

    use super::*;
    use crate::app::config::{HubCli, HubCommand};

    #[tokio::test(start_paused = true)]
    async fn a_preflight_ends_with_an_error_if_the_api_server_does_not_answer() {
        // Linux takes its connections, and no program reads what comes.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let command = ["renderhub", "preflight", "--rendering-namespace", "rendering"];
        let HubCommand::Preflight(args) = HubCli::try_parse_from(command).unwrap().command else {
            panic!("another command")
        };
        let (settings, begin) = (args.hub.settings().unwrap(), Instant::now());
        let found = findings_in_time(&client, &settings).await;
        assert!(matches!(found, Err(AppError::NoAnswer)), "{found:?}");
        assert_eq!(begin.elapsed(), FINDINGS_LIMIT);
    }
}
