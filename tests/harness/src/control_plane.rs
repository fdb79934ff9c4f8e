//! A real control plane: etcd, kube-apiserver and kube-controller-manager, ready within seconds.
//!
//! Each has its own address, ports, certificate authority and data directory, so several run side by side. Nothing is
//! shared with the machine's own Kubernetes, if it has one.

mod outage;
mod rendering;
mod servers;
mod users;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use tokio::sync::OnceCell;

use crate::audit::Audit;
use crate::identity::{Endpoint, Identity, Proof};
use crate::lane::Lane;
use crate::net;
use crate::pki::Authority;
use crate::process::Process;
use crate::progress::Progress;
use crate::{apply, rundir, wait_for};

/// Another process may take a port between asking for it and using it; then everything starts again.
const ATTEMPTS: usize = 3;
/// How long a control plane may take on a slow, busy machine; 3 to 5 seconds is normal.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// How much the API server writes into its audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLevel {
    /// Which user did what to which object, and the result.
    Metadata,
    /// The bodies too, those of Secrets included: only where a test looks for what must not be in there.
    RequestResponse,
}

/// What kind of control plane to start; made by [`ControlPlane::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    address: Option<IpAddr>,
    audit: Option<AuditLevel>,
    job_controller: bool,
    scheduler: bool,
    apiserver_args: Vec<String>,
    node_network: bool,
}

impl Builder {
    /// Writes an audit log, read by [`ControlPlane::audit`].
    pub fn with_audit(mut self, level: AuditLevel) -> Self {
        self.audit = Some(level);
        self
    }

    /// Leaves the Job controller out, for tests that finish Jobs themselves (see [`crate::finish`]).
    pub fn without_job_controller(mut self) -> Self {
        self.job_controller = false;
        self
    }

    /// Runs a scheduler too; only useful with a node.
    pub fn with_scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// Listens on this address of the machine instead of a random loopback address.
    pub fn with_address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Takes a network that a [`crate::Node`] can join, and listens there instead of on loopback. Needs root. Comes with a
    /// scheduler.
    pub fn with_node_network(mut self) -> Self {
        self.node_network = true;
        self.scheduler = true;
        self
    }

    /// Adds a flag to kube-apiserver, e.g. `--runtime-config=…`.
    pub fn with_apiserver_arg(mut self, arg: impl Into<String>) -> Self {
        self.apiserver_args.push(arg.into());
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// If a program is missing or a server does not get ready.
    pub async fn start(self) -> Result<ControlPlane> {
        let _progress = Progress::start("starting a control plane");
        let mut attempt = 1;
        loop {
            match ControlPlane::try_start(&self).await {
                Err(error)
                    if attempt < ATTEMPTS && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
}

/// A running control plane; it ends when it is dropped or when the process ends, in whatever way.
#[derive(Debug)]
pub struct ControlPlane {
    authority: Authority,
    endpoint: Arc<Endpoint>,
    address: IpAddr,
    port: u16,
    dir: PathBuf,
    audit: Option<Audit>,
    admin: Identity,
    servers: Vec<Process>,
    lane: Option<Lane>,
}

impl ControlPlane {
    /// One with the default options: no audit log, no scheduler, all controllers.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// The options.
    pub fn builder() -> Builder {
        Builder {
            address: None,
            audit: None,
            job_controller: true,
            scheduler: false,
            apiserver_args: Vec::new(),
            node_network: false,
        }
    }

    /// The one control plane that all tests of this test binary share; it has an audit log of [`AuditLevel::Metadata`].
    ///
    /// It ends with the process. Tests stay apart by [`ControlPlane::scope`].
    ///
    /// # Errors
    /// As [`Builder::start`]; the next call tries again.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| Self::builder().with_audit(AuditLevel::Metadata).start())
            .await
    }

    async fn try_start(options: &Builder) -> Result<Self> {
        let dir = rundir::fresh("control-plane")?;
        let lane = if options.node_network {
            Some(Lane::take(&dir).await?)
        } else {
            None
        };
        let address = lane
            .as_ref()
            .map(Lane::host)
            .or(options.address)
            .unwrap_or_else(net::loopback);
        net::check_private(address)?;
        let [port, etcd, peer] = net::free_ports(address)?;
        let authority = Authority::new("renderhub-test-ca")?;
        let endpoint = Arc::new(Endpoint {
            url: format!("https://{address}:{port}"),
            ca_pem: authority.pem(),
            server_name: None,
            dir: dir.clone(),
        });
        let admin = users::certificate(&authority, &endpoint, "test-admin", &["system:masters"])?;
        let audit = options
            .audit
            .map(|_| Audit::new(dir.join("audit.log"), admin.clone()));
        let mut plane = Self {
            authority,
            endpoint,
            address,
            port,
            dir,
            audit,
            admin,
            servers: Vec::new(),
            lane,
        };
        plane.start_servers(options, etcd, peer).await?;
        Ok(plane)
    }

    /// Who may do everything.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// A user without any credential.
    #[must_use]
    pub fn anonymous(&self) -> Identity {
        Identity::new("system:anonymous", Proof::Nothing, &self.endpoint)
    }

    /// The API server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.endpoint.url
    }

    /// The address everything listens on.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The API server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate authority that signed the API server's certificate, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.endpoint.ca_pem
    }

    /// Its certificate authority, to sign for another server that the API server calls.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where its data, logs and kubeconfigs are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The audit log.
    ///
    /// # Errors
    /// If it was started without [`Builder::with_audit`].
    pub fn audit(&self) -> Result<&Audit> {
        self.audit
            .as_ref()
            .context("this control plane has no audit log: start it with `with_audit`")
    }

    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }

    /// The process ids of its servers.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Process::pid).collect()
    }

    /// Creates a namespace with a unique name: `prefix` and eight random digits.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let name = format!("{prefix}-{}", rundir::random_hex(4)?);
        let client = self.admin.client().await?;
        make_namespace(&client, &name).await?;
        Ok(name)
    }

    /// What one test needs to stay apart from all others: a tenant namespace, a rendering namespace and a shard name.
    ///
    /// # Errors
    /// As [`ControlPlane::namespace`].
    pub async fn scope(&self, prefix: &str) -> Result<Scope> {
        let id = rundir::random_hex(4)?;
        let scope = Scope {
            tenant: format!("{prefix}-{id}"),
            rendering: format!("rendering-{id}"),
            shard: format!("s{id}"),
        };
        let client = self.admin.client().await?;
        make_namespace(&client, &scope.tenant).await?;
        rendering::make(&client, &scope.rendering).await?;
        Ok(scope)
    }

    /// Server-side applies every document of `yaml` as the administrator; see [`apply::yaml`].
    ///
    /// # Errors
    /// As [`apply::yaml`].
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply::yaml(&self.admin.client().await?, yaml).await
    }

    /// The same with the content of a file.
    ///
    /// # Errors
    /// As [`apply::yaml`], and if the file cannot be read.
    pub async fn apply_file(&self, path: &Path) -> Result<Vec<DynamicObject>> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.apply_yaml(&text)
            .await
            .with_context(|| format!("in {}", path.display()))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // kube-apiserver takes up to a minute to end by itself, so all are killed; nothing here is worth saving.
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Names that belong to one test.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The namespace of the test's tenant.
    pub tenant: String,
    /// The namespace where the hub of this test runs its Jobs, made as [`ControlPlane::rendering_namespace`] makes it.
    pub rendering: String,
    /// The shard name for the hub's `--shard-name`, so that its hub id is its own.
    pub shard: String,
}

async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace {
        metadata,
        ..Namespace::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    // Pods cannot be created before it is there.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    wait_for(
        "the namespace's default ServiceAccount",
        Duration::from_secs(30),
        async || Ok(accounts.get_metadata_opt("default").await?),
    )
    .await?;
    Ok(())
}
