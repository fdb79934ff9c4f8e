//! Real Kubernetes control planes, nodes and registries for tests, from nothing.
//!
//! # A new test in ten lines
//!
//! ```no_run
//! use renderhub_harness::{ControlPlane, Watch};
//!
//! #[tokio::test]
//! async fn a_tenant_may_write_at_home() -> anyhow::Result<()> {
//!     let plane = ControlPlane::shared().await?; // one per test binary, ready in 3 to 5 seconds
//!     let scope = plane.scope("demo").await?; // namespaces and a shard name of this test alone
//!     let watch = Watch::new(plane, &[&scope.tenant, &scope.rendering]); // what a failure prints
//!     let tenant = plane.tenant(&scope.tenant).await?; // a user with the role `admin` there
//!     let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
//!         kube::Api::namespaced(tenant.client().await?, &scope.tenant);
//!     let map = serde_json::from_value(serde_json::json!({ "metadata": { "name": "mine" } }))?;
//!     maps.create(&Default::default(), &map).await?;
//!     watch.passed();
//!     Ok(())
//! }
//! # fn main() {}
//! ```
//!
//! A test needs nothing from the machine but Go, and `setpriv` from util-linux; the first run builds the programs
//! ([`Tools`]), later runs reuse them. A node ([`Node`]) needs root as well, and installs what it lacks by apt.
//!
//! # With a hub
//!
//! ```no_run
//! # async fn example(binary: &str) -> anyhow::Result<()> {
//! use renderhub_harness::finish::{self, Outcome};
//! use renderhub_harness::{AuditLevel, ControlPlane, Hub, Watch};
//!
//! let plane = ControlPlane::builder().with_audit(AuditLevel::Metadata).without_job_controller().start().await?;
//! let scope = plane.scope("demo").await?;
//! let identity = plane.service_account(&scope.rendering, "renderhub").await?;
//! // In a test program the binary is `support::programs::hub()`.
//! let rendering = format!("--rendering-namespace={}", scope.rendering);
//! let shard = format!("--shard-name={}", scope.shard);
//! let hub = Hub::spawn(binary, &identity.kubeconfig()?, &[rendering, shard])?;
//! let watch = Watch::new(&plane, &[&scope.tenant, &scope.rendering]).with_hub(&hub);
//! hub.wait_ready().await?;
//! let begin = plane.audit()?.mark().await?;
//! // … create a RenderTask, find its Job, and end it:
//! # let job = k8s_openapi::api::batch::v1::Job::default();
//! finish::end_job(&plane.admin().client().await?, &job, &Outcome::Complete("{}".to_owned())).await?;
//! println!("{:?}", plane.audit()?.counts(begin, identity.name()).await?);
//! watch.passed();
//! # Ok(()) }
//! ```
//!
//! # With a node
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use renderhub_harness::{ControlPlane, Node, Registry, RegistryOptions};
//!
//! let plane = ControlPlane::builder().with_node_network().start().await?;
//! let node = Node::start(&plane).await?;
//! node.import_image("target/images/hub.tar".as_ref())?;
//! let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
//! println!("pods push to oci://{}", registry.host());
//! # Ok(()) }
//! ```
//!
//! # With another cluster to render on
//!
//! ```no_run
//! # async fn example(hub: &renderhub_harness::ControlPlane) -> anyhow::Result<()> {
//! use renderhub_harness::{ControlPlane, Remote, apply};
//!
//! let plane = ControlPlane::start().await?; // any number of them, beside the hub's own
//! let remote = Remote::make(&plane, "edge").await?; // a namespace with the Role of examples/remote-cluster
//! let client = hub.admin().client().await?;
//! apply::object(&client, remote.secret("rendering", "edge", &remote.kubeconfig().await?)).await?;
//! apply::object(&client, remote.render_cluster("edge", "edge")).await?;
//! plane.stop_api_server()?; // and it is lost; `--cluster-allow-cidrs=127.0.0.0/8` lets a hub reach it at all
//! # Ok(()) }
//! ```
//!
//! # With a cluster that charts are installed on
//!
//! ```no_run
//! # async fn example(registry: &renderhub_harness::Registry) -> anyhow::Result<()> {
//! use renderhub_harness::{TargetCluster, helm::Helm, target};
//!
//! let helm = Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())?;
//! target::push_app(&helm, registry, "1.0.0").await?; // the chart of examples/pipeline/app
//! let cluster = TargetCluster::start().await?; // a control plane, a node, Flux
//! cluster.follow(registry, "team-a/bootstrap-edge").await?; // what a hub pushes there is installed
//! cluster.app_says("shop", "version=1.0.0 greeting=hello site=north").await?;
//! # Ok(()) }
//! ```
//!
//! # What holds for every server
//!
//! - It has its own free ports, random passwords, keys and certificate authority, and listens on loopback or in
//!   198.18.0.0/15 only. Certificates are verified everywhere.
//! - It ends with its handle. However the process ends, SIGKILL included, the kernel ends its servers
//!   ([`process`]), a node with its mounts and network ([`node`]), and a cleaner removes its files ([`rundir`]).
//! - It logs to a file of its own below [`rundir::of_this_process`], never to the test's output.
//!
//! # One control plane, many runtimes
//!
//! Each `#[tokio::test]` has a runtime of its own, and a client dies with the runtime it was made in. So the shared
//! control plane hands out identities, and [`Identity::client`] makes a fresh client in the runtime that asks.

pub mod apply;
pub mod audit;
pub mod canary;
pub mod commands;
pub mod control_plane;
pub mod diagnose;
pub mod dns;
pub mod finish;
pub mod flux;
pub mod helm;
pub mod hostile;
mod http;
pub mod hub;
pub mod identity;
pub mod image;
pub mod islet;
pub mod kstatus;
pub mod lane;
pub mod memory_group;
pub mod net;
pub mod node;
pub mod olm;
pub mod pki;
mod policy;
pub mod process;
pub mod progress;
pub mod reach;
pub mod registry;
pub mod remote;
pub mod rights;
pub mod rundir;
pub mod target;
pub mod tools;
mod turn;
mod wait;

pub use audit::Audit;
pub use canary::Canaries;
pub use control_plane::{AuditLevel, ControlPlane, Scope};
pub use diagnose::Watch;
pub use dns::Dns;
pub use flux::Flux;
pub use hostile::Hostile;
pub use hub::Hub;
pub use identity::Identity;
pub use islet::Islet;
pub use memory_group::MemoryGroup;
pub use node::Node;
pub use olm::Olm;
pub use registry::{PrivateRegistry, Registry, RegistryOptions};
pub use remote::Remote;
pub use rights::Rights;
pub use target::TargetCluster;
pub use tools::{Earlier, Tools};
pub use turn::{Turn, turn};
pub use wait::wait_for;
