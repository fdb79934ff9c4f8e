//! What comes before the loops: which hub this is, how strict it was told to be, and whether it may start.

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
use crate::api::names::HubId;
use crate::app::config::{OutputFormat, Settings};
use crate::app::probe;
use crate::app::probe::{ProbeArgs, ProbeError, ProbeTimeouts};
use crate::app::stop;
use crate::app::stop::{HubDeployment, StopOutcome};
use crate::base::metrics::{Metrics, ModeLabels, SettingLabel};
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::lease::{LeaseClient, LeaseError, LeaseHolder};
use crate::kubernetes::preflight::FactCollector;
use crate::kubernetes::seal_key;
use crate::kubernetes::write_fence;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::lease::{HolderIdentity, InstanceState, NamespaceScope, finding};
use crate::plan::platform::unserved_namespaces;
use crate::plan::preflight::{CheckResult, PreflightCheck, PreflightFinding, RUNBOOK, judge, table};
use crate::plan::task::status_seal::SealKey;

/// The namespace whose UID stands for the cluster.
const KUBE_SYSTEM: &str = "kube-system";
/// Pause before the API server is asked again for what the hub id is made of.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Longest wait for the answer that the hub id is made of.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest that a person waits for findings; a record that has to be watched takes a quarter of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub that may start.
pub(super) struct StartedHub {
    /// Its calls, through the fence.
    pub calls: HubClient,
    /// What it seals results with.
    pub key: SealKey,
    /// Its claim, which it must keep.
    pub lease: LeaseHolder,
    /// UIDs of the namespaces that were looked at.
    pub namespaces: BTreeMap<String, String>,
}

/// Everything before the loops, in order; `None` when the hub is told to stop meanwhile.
pub(super) async fn start_up(
    clients: &HubClients,
    settings: &Settings,
    metrics: &Metrics,
    (stop, state): (&CancellationToken, watch::Sender<InstanceState>),
) -> Result<Option<StartedHub>, AppError> {
    let looked = tokio::select! {
        looked = look_around(clients, settings, metrics) => looked?,
        () = stop.cancelled() => return Ok(None),
    };
    let (calls, key, namespaces) = looked;
    let leases = LeaseClient::new(
        clients.free.clone(),
        &settings.start.lease_namespace,
        metrics.clone(),
    );
    let told = tokio::spawn(tell(state.subscribe()));
    let taken = leases.take(claim(settings, calls.hub_id()), stop, state).await;
    told.abort();
    let lease = match taken {
        Ok(lease) => lease,
        Err(LeaseError::Conflict(alive)) => {
            report(&[finding(&alive)], metrics)?;
            return Ok(None);
        }
        Err(LeaseError::Stopped) => return Ok(None),
        Err(error) => return Err(AppError::Lease(error)),
    };
    report(&[finding(&[])], metrics)?;
    clients.fence.open(lease.validity());
    tracing::info!("this instance works");
    let key = if lease.has_stood_by() {
        seal_key::load(&calls).await?
    } else {
        key
    };
    Ok(Some(StartedHub {
        calls,
        key,
        lease,
        namespaces,
    }))
}

/// Finds out which hub this is, and whether anything but other hubs keeps it from starting; its calls, what it seals with, and
/// the UIDs of the namespaces it looked at.
async fn look_around(
    clients: &HubClients,
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(HubClient, SealKey, BTreeMap<String, String>), AppError> {
    let client = &clients.free;
    let mut namespaces = BTreeMap::from([(KUBE_SYSTEM.to_owned(), cluster_uid(client).await?)]);
    let hub_id = HubId::new(&settings.shard_name, &namespaces[KUBE_SYSTEM])?;
    announce(settings, &hub_id, metrics);
    let facts = inquiry(client, settings, metrics).facts().await;
    report(&judge(&facts, &settings.start.skipped), metrics)?;
    let rendering = &settings.rendering_namespace;
    let calls =
        |client: &Client| HubClient::new(client.clone(), metrics.clone(), rendering.clone(), hub_id.clone());
    // After the checks: nothing is written to a namespace that is not fit for it.
    let key = seal_key::load(&calls(client)).await?;
    if let Some(uid) = uid_of(client, rendering).await {
        namespaces.insert(rendering.clone(), uid);
    }
    Ok((calls(&clients.hub), key, namespaces))
}

/// What would keep a hub with these settings from starting, as text, and whether anything would.
///
/// # Errors
/// The cluster cannot be asked.
pub async fn preflight(settings: Settings, output: OutputFormat) -> Result<(String, bool), AppError> {
    let client = clients(WriteFence::default()).await?.free;
    let findings = findings_in_time(&client, &settings).await?;
    let text = match output {
        OutputFormat::Table => table::render(&findings),
        OutputFormat::Json => serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n",
    };
    Ok((text, findings.iter().all(|f| f.result != CheckResult::Refused)))
}

/// Looks at the network; a sentence on each thing that must hold.
///
/// # Errors
/// A Job is to look, and there is no cluster to make it in.
pub async fn probe_network(args: &ProbeArgs) -> Result<Vec<Result<String, ProbeError>>, AppError> {
    let client = match &args.from_job {
        Some(_) => Some(clients(WriteFence::default()).await?.free),
        None => None,
    };
    Ok(probe::run(args, ProbeTimeouts::default(), client.as_ref()).await)
}

/// Ends a hub that is about to be uninstalled; what came of it within the limit.
///
/// # Errors
/// There is no cluster to look for it in.
pub async fn stop_hub(hub: &HubDeployment, limit: Duration) -> Result<StopOutcome, AppError> {
    let client = clients(WriteFence::default()).await?.free;
    Ok(stop::run(&client, hub, limit).await)
}

/// The findings, as long as a person waits for them.
async fn findings_in_time(client: &Client, settings: &Settings) -> Result<Vec<PreflightFinding>, AppError> {
    let found = tokio::time::timeout(PATIENCE, findings(client, settings)).await;
    found.unwrap_or(Err(AppError::NoAnswer))
}

async fn findings(client: &Client, settings: &Settings) -> Result<Vec<PreflightFinding>, AppError> {
    let (metrics, _) = Metrics::new();
    let hub_id = HubId::new(&settings.shard_name, &cluster_uid(client).await?)?;
    let inquiry = inquiry(client, settings, &metrics);
    let facts = inquiry.facts().await;
    let mut findings = judge(&facts, &settings.start.skipped);
    let leases = LeaseClient::new(client.clone(), &settings.start.lease_namespace, metrics);
    let peers = match leases.peers(&claim(settings, &hub_id)).await {
        // Who looks at a hub that runs wants to know about the others.
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
    findings.push(left_to_nobody(&inquiry, settings, &leases).await);
    Ok(findings)
}

/// The finding on namespaces that are left to nobody, this hub's own aside.
async fn left_to_nobody(
    inquiry: &FactCollector,
    settings: &Settings,
    leases: &LeaseClient,
) -> PreflightFinding {
    let check = PreflightCheck::UnownedNamespaces;
    if settings.start.skipped.contains(&check) {
        return PreflightFinding::skipped(check);
    }
    let named = inquiry.task_namespaces().await;
    let own = NamespaceScope::new(&settings.watch_namespaces);
    match leases.records().await {
        Ok(records) => unserved_namespaces::finding(&unserved_namespaces::at_a_glance(
            &records,
            &named,
            &own,
            Timestamp::now(),
        )),
        Err(error) => PreflightFinding::warning(check, error.to_string(), "grant it, as the chart does"),
    }
}

/// Says when the instance stands by.
async fn tell(mut state: watch::Receiver<InstanceState>) {
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

/// Says once how strict the hub is, in its log and for as long as it runs in a metric.
fn announce(settings: &Settings, hub_id: &HubId, metrics: &Metrics) {
    metrics.queue.by_namespace(settings.admin.metrics_by_namespace);
    let posture = settings.posture();
    let (mode, tenant_identity) = (posture.mode(), posture.identity());
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

/// Tells what was found, a line for each finding that somebody has to act on.
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

/// What is asked at the start.
pub(super) fn inquiry(client: &Client, settings: &Settings, metrics: &Metrics) -> FactCollector {
    FactCollector {
        client: client.clone(),
        metrics: metrics.clone(),
        rendering: settings.rendering_namespace.clone(),
        kubeconfigs: settings.clusters.namespace.clone(),
        watched: settings.watch_namespaces.clone(),
        is_single_tenant: settings.tenancy.is_single_tenant,
        skipped: settings.start.skipped.clone(),
        pause: None,
    }
}

fn claim(settings: &Settings, hub_id: &HubId) -> HolderIdentity {
    HolderIdentity {
        hub_id: hub_id.clone(),
        holder: settings.start.instance_name.clone(),
        // Two processes have either another number or another beginning.
        process: format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond()),
        rendering: settings.rendering_namespace.clone(),
        watched: NamespaceScope::new(&settings.watch_namespaces),
    }
}

/// Clients of the hub's own cluster. kube's own retries are off: they repeat writes, without a bound on the wait.
pub(super) struct HubClients {
    /// The hub's own, for what is done before there is a claim or by no hub, and for the claim itself. No loop can get at it.
    free: Client,
    /// Opens with the claim.
    pub fence: WriteFence,
    /// The hub's own, through the fence.
    pub hub: Client,
    /// Reaches the same API server without any credential, through the fence.
    pub nobody: Client,
}

pub(super) async fn clients(gate: WriteFence) -> Result<HubClients, AppError> {
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
    let mut nobody = config.clone();
    nobody.auth_info = AuthInfo::default();
    let gated = |config: &Config| write_fence::client(config, &gate).map_err(|_| AppError::NoCluster);
    Ok(HubClients {
        hub: gated(&config)?,
        nobody: gated(&nobody)?,
        free: Client::try_from(config).map_err(|_| AppError::NoCluster)?,
        fence: gate,
    })
}

/// UID of a namespace, where the hub may see it: a cluster that has it is the hub's own.
async fn uid_of(client: &Client, namespace: &str) -> Option<String> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let read = tokio::time::timeout(DEADLINE, api.get_metadata(namespace)).await;
    read.ok()?.ok()?.metadata.uid
}

/// What the hub's id is made of, for which the API server is asked until it answers: a hub that starts before it is no broken hub.
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
    async fn a_person_who_waits_for_an_api_server_that_says_nothing_is_told_so_after_a_while() {
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
        assert_eq!(begin.elapsed(), PATIENCE);
    }
}
