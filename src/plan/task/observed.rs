//! What a decision about a task rests on.

use k8s_openapi::jiff::Timestamp;

use super::create_blocked::CreateBlocked;
use super::job::JobPlacement;
use super::job_state::{JobState, PodTermination};
use super::model::Task;
use super::referrer::ReferrerKind;
use super::refusal::Refusal;
use super::retention::RemovalState;
use super::tenant::TenantDestination;
use super::verification::VerificationState;
use crate::plan::platform::catalog::{Catalog, CopiedCredentials};
use crate::plan::platform::feature_gates::FeatureGates;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::pull_secrets::pull_failure::ObservedPull;
use crate::plan::remote::lost_cluster::{RemoteLeftovers, TaskTimeouts};
use crate::plan::remote::site::{JobSiteState, RemoteTarget};

/// Everything a decision rests on.
#[derive(Clone, Debug)]
pub struct ObservedTask<'a> {
    /// The hub's clock.
    pub now: Timestamp,
    /// The task.
    pub task: &'a Task,
    /// Its Job.
    pub job: &'a JobState,
    /// UID of its config Secret, if one exists.
    pub secret: Option<&'a str>,
    /// The last pod that ended.
    pub pod_termination: Option<&'a PodTermination>,
    /// What its pods wait for.
    pub image_pull: &'a ObservedPull,
    /// The state of its verification, once that was started.
    pub verification: Option<&'a VerificationState>,
    /// What the platform offers.
    pub catalog: &'a Catalog,
    /// What the platform lets references do.
    pub tenancy: &'a TenancyPolicy,
    /// References that namespaces allow.
    pub grants: &'a ReferenceGrantIndex,
    /// What the task's own destination turned out to be, once it was read.
    pub tenant_destination: Option<&'a Result<TenantDestination, Refusal>>,
    /// Whether the hub may act as the account that the task names, once that was checked.
    pub impersonation: Option<&'a Result<(), Refusal>>,
    /// Where the Job runs.
    pub placement: &'a JobPlacement,
    /// The hub's rendering namespace, in which no task is served.
    pub rendering: &'a str,
    /// The same as the spec names it; `None` is the hub.
    pub target: Option<&'a Result<RemoteTarget, Refusal>>,
    /// The state of the site.
    pub site: JobSiteState<'a>,
    /// What may be there besides what was seen.
    pub leftovers: RemoteLeftovers,
    /// The platform's credentials that are copied to another cluster, once they were read.
    pub copied_credentials: Option<&'a Result<CopiedCredentials, Refusal>>,
    /// Features that are turned on.
    pub gates: &'a FeatureGates,
    /// How long the hub waits before it gives something up.
    pub timeouts: TaskTimeouts,
    /// Whether the task holds a slot of the queue.
    pub has_slot: bool,
    /// Whether it has waited for a slot long enough to say so.
    pub has_waited: bool,
    /// Tasks that wait for the tenant of the same namespace.
    pub waiting_beside: usize,
    /// What an earlier attempt to create its objects ran into.
    pub blocked: Option<CreateBlocked>,
    /// The kinds whose grants count for the task.
    pub referrer: ReferrerKind,
    /// Whether the object has a status that is not the hub's, and it is time to put it right.
    pub is_forged: bool,
    /// Whether the task itself may be removed now.
    pub removal: RemovalState,
}
