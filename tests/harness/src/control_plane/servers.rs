//! The command lines of the servers, and when each counts as ready.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;

use super::{AuditLevel, Builder, ControlPlane, READY_LIMIT, users};
use crate::lane::Lane;
use crate::pki::signing_key;
use crate::process::Process;
use crate::{Tools, net, rundir, wait_for};

/// Where Services live when there is no node; with one, its lane has a range of its own.
const SERVICES: &str = "198.19.255.0/24";
/// The address that the API server advertises when it listens on loopback, which it refuses to advertise.
const NOWHERE: &str = "198.18.255.254";
/// Short-lived objects that only make the log long.
const NOT_AUDITED: &str = "
- level: None
  nonResourceURLs: ['/readyz*', '/livez*', '/healthz*', '/openapi/*', '/version*', '/api', '/api/*', '/apis', '/apis/*']
- level: None
  users: ['system:apiserver', 'system:kube-scheduler', 'system:kube-controller-manager']
";

impl ControlPlane {
    pub(super) async fn start_servers(&mut self, options: &Builder, etcd: u16, peer: u16) -> Result<()> {
        self.spawn("etcd", self.etcd(etcd, peer)?)?;
        let etcd_address = SocketAddr::new(self.address, etcd);
        wait_for("etcd", READY_LIMIT, async || {
            self.check_servers()?;
            Ok(net::accepts(etcd_address).then_some(()))
        })
        .await?;
        let command = self.apiserver(options, etcd)?;
        self.spawn("kube-apiserver", command)?;
        self.until_live().await?;
        let command = self.controller_manager(options)?;
        self.spawn("kube-controller-manager", command)?;
        if options.scheduler {
            let command = self.scheduler()?;
            self.spawn("kube-scheduler", command)?;
        }
        self.until_ready().await
    }

    fn spawn(&mut self, name: &str, mut command: Command) -> Result<()> {
        // A fifth of their processor time goes to the garbage collector otherwise, and memory is not what a test machine lacks.
        command.env("GOGC", "400");
        let server = Process::spawn(name, &command, &self.dir.join(format!("{name}.log")))?;
        self.servers.push(server);
        Ok(())
    }

    /// A server that ended is a failure at once, not after the deadline.
    fn check_servers(&self) -> Result<()> {
        self.servers.iter().try_for_each(Process::check_running)
    }

    /// Runs `look` until it says yes, but ends at once when a server has ended.
    async fn until(&self, what: &str, look: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let waited = wait_for(what, READY_LIMIT, async || match self.check_servers() {
            Err(ended) => Ok(Some(Err(ended))),
            Ok(()) => Ok(look().await?.then_some(Ok(()))),
        });
        waited.await?
    }

    pub(super) async fn until_live(&self) -> Result<()> {
        let client = self.admin.client().await?;
        self.until("kube-apiserver", async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await? == "ok")
        })
        .await
    }

    /// The controllers run too: `ServiceAccounts` appear, and the `admin` role holds what is aggregated into it.
    async fn until_ready(&self) -> Result<()> {
        let client = self.admin.client().await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let roles: Api<ClusterRole> = Api::all(client);
        self.until("the controllers", async || {
            let account = accounts.get_opt("default").await?.is_some();
            let admin = roles
                .get_opt("admin")
                .await?
                .and_then(|role| role.rules)
                .unwrap_or_default();
            Ok(account && !admin.is_empty())
        })
        .await
    }

    fn etcd(&self, port: u16, peer: u16) -> Result<Command> {
        let url = |port| format!("http://{}", SocketAddr::new(self.address, port));
        let mut command = Command::new(Tools::path("etcd")?);
        command
            .arg("--data-dir")
            .arg(self.dir.join("etcd"))
            // A test's data need not survive a power cut, and fsync is most of what etcd does.
            .args([
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--quota-backend-bytes=4294967296",
            ])
            .arg(format!("--listen-client-urls={}", url(port)))
            .arg(format!("--advertise-client-urls={}", url(port)))
            .arg(format!("--listen-peer-urls={}", url(peer)))
            .arg(format!("--initial-advertise-peer-urls={}", url(peer)))
            .arg(format!("--initial-cluster=default={}", url(peer)));
        Ok(command)
    }

    fn apiserver(&self, options: &Builder, etcd: u16) -> Result<Command> {
        let lane = self.lane.as_ref();
        let services = lane.map_or_else(|| SERVICES.to_owned(), Lane::services);
        let mut command = Command::new(Tools::path("kube-apiserver")?);
        command
            .arg(format!("--etcd-servers=http://{}:{etcd}", self.address))
            .arg(format!("--bind-address={}", self.address))
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--service-cluster-ip-range={services}"))
            .arg("--authorization-mode=Node,RBAC")
            .arg("--allow-privileged=true")
            .arg("--profiling=false");
        if self.address.is_loopback() {
            command
                .arg(format!("--advertise-address={NOWHERE}"))
                .arg("--endpoint-reconciler-type=none");
        } else {
            command.arg(format!("--advertise-address={}", self.address));
        }
        self.certificate_flags(&services, &mut command)?;
        self.account_flags(&mut command)?;
        self.kubelet_flags(&mut command)?;
        self.audit_flags(options, &mut command)?;
        command.args(&options.apiserver_args);
        Ok(command)
    }

    /// What it shows to clients, and whose client certificates it takes.
    fn certificate_flags(&self, services: &str, command: &mut Command) -> Result<()> {
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let addresses = [self.address, first_address(services)?];
        let pair = self.authority.server(&names, &addresses)?;
        command
            .arg(self.file_flag("client-ca-file", "ca.pem", &self.endpoint.ca_pem)?)
            .arg(self.file_flag("tls-cert-file", "serving.pem", &pair.cert)?)
            .arg(self.file_flag("tls-private-key-file", "serving.key", &pair.key)?);
        Ok(())
    }

    /// What it signs `ServiceAccount` tokens with.
    fn account_flags(&self, command: &mut Command) -> Result<()> {
        let (private, public) = signing_key()?;
        command
            .arg(format!("--service-account-issuer={}", self.endpoint.url))
            .arg(self.file_flag("service-account-signing-key-file", "accounts.key", &private)?)
            .arg(self.file_flag("service-account-key-file", "accounts.pem", &public)?);
        Ok(())
    }

    /// How the API server reaches a kubelet: with a certificate of its own, and only if the kubelet has one of the harness.
    fn kubelet_flags(&self, command: &mut Command) -> Result<()> {
        let pair = self
            .authority
            .client("kube-apiserver-kubelet-client", &["system:masters"])?;
        command
            .arg("--kubelet-preferred-address-types=InternalIP")
            .arg(format!(
                "--kubelet-certificate-authority={}",
                self.dir.join("ca.pem").display()
            ))
            .arg(self.file_flag("kubelet-client-certificate", "kubelet-client.pem", &pair.cert)?)
            .arg(self.file_flag("kubelet-client-key", "kubelet-client.key", &pair.key)?);
        Ok(())
    }

    fn audit_flags(&self, options: &Builder, command: &mut Command) -> Result<()> {
        let Some(level) = options.audit else { return Ok(()) };
        let level = match level {
            AuditLevel::Metadata => "Metadata",
            AuditLevel::RequestResponse => "RequestResponse",
        };
        let policy = format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:{NOT_AUDITED}- level: {level}\n"
        );
        command
            .arg(self.file_flag("audit-policy-file", "audit-policy.yaml", &policy)?)
            .arg(format!(
                "--audit-log-path={}",
                self.dir.join("audit.log").display()
            ))
            // In MiB; the default rotates at 100, and a rotated log cannot be counted.
            .arg("--audit-log-maxsize=10000");
        Ok(())
    }

    fn controller_manager(&self, options: &Builder) -> Result<Command> {
        let mut command = self.control_loop("kube-controller-manager")?;
        let controllers = if options.job_controller {
            "*,-nodeipam"
        } else {
            "*,-nodeipam,-job"
        };
        command
            .arg(format!("--controllers={controllers}"))
            .arg(format!(
                "--service-account-private-key-file={}",
                self.dir.join("accounts.key").display()
            ))
            .arg(format!("--root-ca-file={}", self.dir.join("ca.pem").display()))
            .arg("--use-service-account-credentials")
            // Many tests share a control plane, and one that floods it must not keep the others' controllers waiting.
            .args(["--kube-api-qps=200", "--kube-api-burst=400"])
            // A quota that is older than its kind is counted at the next period only, by default after five minutes.
            .arg("--resource-quota-sync-period=10s");
        Ok(command)
    }

    fn scheduler(&self) -> Result<Command> {
        self.control_loop("kube-scheduler")
    }

    /// What the programs that run control loops have in common; each is a user of its own, as in a real cluster.
    fn control_loop(&self, program: &str) -> Result<Command> {
        let identity =
            users::certificate(&self.authority, &self.endpoint, &format!("system:{program}"), &[])?;
        let mut command = Command::new(Tools::path(program)?);
        command.arg("--kubeconfig").arg(identity.kubeconfig()?).args([
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]);
        Ok(command)
    }

    /// Writes a file and gives the flag that names it.
    fn file_flag(&self, flag: &str, name: &str, content: &str) -> Result<String> {
        let path: PathBuf = self.dir.join(name);
        rundir::write_private(&path, content.as_bytes())?;
        Ok(format!("--{flag}={}", path.display()))
    }
}

/// The first address of a range such as `198.19.7.0/24`: the Service `kubernetes` gets it.
fn first_address(range: &str) -> Result<IpAddr> {
    let base: Ipv4Addr = range
        .split('/')
        .next()
        .unwrap_or_default()
        .parse()
        .context("no IPv4 range")?;
    Ok(IpAddr::V4(Ipv4Addr::from_bits(base.to_bits() + 1)))
}
