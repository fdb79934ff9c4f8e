//! What keeps the API server from creating a task's objects, and the message for the tenant.

use crate::api::conditions::Reason;

use super::job::JobPlacement;
use crate::plan::task::refusal::Refusal;

/// What keeps a task's objects from being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateBlocked {
    /// A foreign object has the name of the Job or the config Secret.
    NameConflict,
    /// The API server does not accept the Job of the class: a field of it is not valid, or an admission policy or webhook denies it.
    JobRefused,
    /// The rendering namespace takes nothing: a quota is used up, or it is gone.
    NotAdmitted,
    /// The hub, or on a tenant's own cluster the task's ServiceAccount, may not create these objects.
    Forbidden(CreatePermission),
}

/// A right to create something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreatePermission {
    /// Config Secrets.
    Secrets,
    /// Jobs.
    Jobs,
}

impl CreatePermission {
    /// The resource as roles name it, with its API group.
    #[must_use]
    pub const fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Secrets => ("", "secrets"),
            Self::Jobs => ("batch", "jobs"),
        }
    }
}

/// A place in a sentence, who can change rights and quotas there, and what rights the hub needs there.
fn words_of(place: &JobPlacement) -> [String; 3] {
    let words = |there: &str, operator: &str, role: &str| [there, operator, role].map(str::to_owned);
    match &place.cluster {
        None => words(
            "the rendering namespace",
            "the platform operator",
            "the Role that the chart makes",
        ),
        Some(cluster) => words(
            &format!("the namespace {} of the cluster {cluster}", place.namespace),
            "the operator of that cluster",
            "the Role of docs/how-to/register-a-cluster.md",
        ),
    }
}

impl CreateBlocked {
    /// The message for the tenant; `place` is where the Job is to run.
    pub(super) fn refusal(self, place: &JobPlacement) -> Refusal {
        let [there, operator, role] = words_of(place);
        match self {
            Self::NameConflict => Refusal::new(
                Reason::NameConflict,
                "an object that the hub did not make for this task has the name of its Job or Secret; ask the platform operator",
            ),
            Self::NotAdmitted => Refusal::new(
                Reason::Queued,
                format!(
                    "{there} takes no more Jobs now: a quota there is used up, or the namespace is gone; the task starts by itself \
                     once that is over; if this stays, ask {operator}"
                ),
            ),
            Self::Forbidden(right) => Refusal::new(
                Reason::Forbidden,
                format!(
                    "the hub may not create {} in {there}; ask {operator} to give it {role}; the task is tried again by itself",
                    right.resource().1
                ),
            ),
            Self::JobRefused if place.cluster.is_some() => Refusal::new(
                Reason::JobRefused,
                "the cluster's API server does not accept the Job of the task's renderer class; look at the cluster's admission \
                 policies and webhooks, or ask the platform operator to look at the class; the task is tried again by itself",
            ),
            Self::JobRefused => Refusal::new(
                Reason::JobRefused,
                "the API server does not accept the Job of the task's renderer class; ask the platform operator, who finds the \
                 cause in the hub's log and in the class's Ready condition; the task is tried again by itself",
            ),
        }
    }
}
