//! Condition types and reasons, and the merge that keeps transition times.
//!
//! Every reason that can appear on an object is in [`Reason`]; `docs/reasons/` says of each what to do about it.

mod condition_type;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

pub use condition_type::ConditionType;

use super::time::whole_seconds;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Why a condition has the status it has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[$doc])* $name),+ }

        impl Reason {
            /// Every reason, for the docs test and for metric labels.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The reason in a condition.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// The reason of a condition, if this version knows it.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $(stringify!($name) => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

reasons! {
    /// The Job runs.
    JobScheduled,
    /// No Job exists yet.
    DoesNotExist,
    /// The task waits for a free slot.
    Queued,
    /// The cluster the task names is not connected.
    WaitingForCluster,
    /// The tenant's own registry does not exist, or a registry that the task may use cannot be used as it is.
    RegistryNotFound,
    /// The platform's registry does not allow the task's namespace, or does not exist.
    RegistryNotAllowed,
    /// The repository is outside the prefix the registry grants to the task's namespace.
    RepositoryNotAllowed,
    /// The registry's credential does not exist.
    PushSecretNotFound,
    /// The registry's credential has a type or a content that cannot be used for its host.
    PushSecretInvalid,
    /// The renderer class does not exist or does not allow the task's namespace.
    RendererClassNotFound,
    /// The cluster does not exist.
    ClusterNotFound,
    /// The platform's credential may not travel to the cluster.
    CredentialsNotAllowedOnCluster,
    /// The spec uses a field that this hub does not serve.
    FeatureDisabled,
    /// A reference leaves the task's namespace without a grant.
    CrossNamespaceRefDenied,
    /// The task's identity may not read what the task names.
    RBACDenied,
    /// A foreign object has the name of the task's Job or Secret.
    NameConflict,
    /// The spec was changed after the task was made.
    SpecMutated,
    /// The spec cannot be served as it is.
    InvalidSpec,
    /// The API server does not accept the Job of the renderer class.
    JobRefused,
    /// The configuration does not fit into a Secret.
    ConfigTooLarge,
    /// The Job completed.
    JobSucceeded,
    /// The Job failed.
    JobFailed,
    /// The Job vanished without a recorded result.
    JobLost,
    /// Another chart is under the tag already.
    TagConflict,
    /// The Job ran into its deadline.
    DeadlineExceeded,
    /// The registry does not hold what the renderer says it pushed.
    ResultUnverified,
    /// The object is as it should be.
    Ready,
    /// Work goes on.
    Progressing,
    /// The class reads what a tenant wrote in a container without the credential.
    SeparateContainers,
    /// The class reads what a tenant wrote in the container that holds the credential.
    SharedContainer,
    /// A pull Secret of a class does not exist in the hub's release namespace.
    PullSecretNotFound,
    /// A pull Secret of a class is of another type, or cannot be decoded.
    PullSecretInvalid,
    /// No pull Secret of a class has an entry for the host of its image.
    PullSecretWithoutHost,
    /// A node does not pull the image of a container.
    ImagePullFailed,
    /// A Secret that is no copy has the name of the copy of a pull Secret.
    PullSecretNameConflict,
    /// More is asked for of pull Secrets than is copied.
    PullSecretLimitExceeded,
    /// A namespace that gets copies of pull Secrets was deleted and made again.
    NamespaceRecreated,
    /// A pod made room for one that can pull its image.
    PodEvicted,
    /// The cluster is connected.
    Connected,
    /// The first attempt to connect is under way.
    Connecting,
    /// The platform operator ended the connection.
    Disconnected,
    /// The cluster does not answer, or not in time.
    Unreachable,
    /// The cluster does not know the kubeconfig's user any more.
    Unauthorized,
    /// The kubeconfig's user may not do what the hub must.
    Forbidden,
    /// The Secret with the kubeconfig, or the key in it, does not exist.
    KubeconfigNotFound,
    /// The kubeconfig cannot be read, or lacks something.
    BadKubeconfig,
    /// The kubeconfig asks for something that is not safe.
    InsecureKubeconfig,
    /// The kubeconfig is larger than 256 KiB.
    KubeconfigTooLarge,
    /// The kubeconfig leads to the hub's own cluster.
    SelfTarget,
    /// The hub cannot tell the cluster from its own.
    Unrecognised,
    /// The cluster's version of Kubernetes is too old, or lacks a kind that the hub needs.
    Incompatible,
    /// Requests as the task's ServiceAccount reach the cluster as another user's.
    ImpersonationNotEffective,
    /// A task was let go although its cluster could not be cleared.
    TeardownForced,
    /// What is named is there and may be used.
    Resolved,
    /// What is named does not exist in the namespace.
    NotFound,
    /// What is named in another namespace does not exist, or may not be used from here.
    NotGranted,
    /// No Release excludes another.
    NoConflicts,
    /// No Release is bound to the Target.
    NoReleaseBindings,
    /// Releases are bound to the Target, and none of them can be on it.
    AllReleaseBindingsFiltered,
    /// The charts of all Releases are pushed.
    AllRendered,
    /// A chart is not pushed yet.
    Pending,
    /// Something that a Release needs is missing or not granted.
    MissingDependencies,
    /// The chart of a Release could not be rendered or pushed.
    ReleaseFailed,
    /// The Registry that the Target renders to names no Secret to push with.
    MissingPushSecretRef,
    /// No `RegistryBinding` says how a host is pulled from.
    MissingRegistryBinding,
    /// `RegistryBindings` name different Secrets for one host.
    RegistryBindingConflict,
    /// The chart of a Target could not be rendered or pushed.
    Failed,
    /// The Target is suspended.
    Suspended,
    /// More Releases are bound to the Target than it can have.
    TooManyReleases,
    /// More bindings and Profiles are for the Target than it can have.
    TooManyBindings,
    /// The versions of a namespace take as many bytes as the hub keeps of one.
    TooManyVersions,
    /// The objects of a namespace take more memory than the hub has for one.
    TooManyObjects,
    /// The API server does not let the hub make an object for the Target.
    CreateRefused,
    /// The version of the Target would be larger than 256 KiB.
    VersionTooLarge,
    /// The version that the Target is to go back to does not exist.
    VersionNotFound,
    /// The registry did not say whether it has a chart of the version that the Target is to go back to.
    ChartLookupFailed,
    /// A chart of the version that the Target is to go back to is gone, and cannot be rendered again.
    ChartLost,
    /// Two Profiles set one key of the data differently.
    UserdataConflict,
    /// Another Release is on the Target in place of the one that is bound.
    Superseded,
    /// A change of a Release is on its way to the Targets of a Profile.
    RollingOut,
    /// The change of a Release reaches no more Targets, because it failed on too many of them.
    RolloutHalted,
    /// The change of a Release has not reached the Target yet: others come first.
    RolloutWaiting,
    /// A version of a Target was made; only in events.
    VersionMade,
    /// The chart of a version of a Target was pushed; only in events.
    VersionPushed,
    /// Charts that no version names any more were left in their registry.
    PruneGivenUp,
}

impl Reason {
    /// Whether only a person can help: nothing the hub watches will change the outcome by itself.
    #[must_use]
    pub const fn is_stalled(self) -> bool {
        matches!(
            self,
            Self::FeatureDisabled
                | Self::SpecMutated
                | Self::InvalidSpec
                | Self::ConfigTooLarge
                | Self::NameConflict
                | Self::RepositoryNotAllowed
                | Self::BadKubeconfig
                | Self::InsecureKubeconfig
                | Self::KubeconfigTooLarge
                | Self::SelfTarget
                | Self::Unrecognised
                | Self::Incompatible
                | Self::ImpersonationNotEffective
                | Self::AllReleaseBindingsFiltered
                | Self::MissingDependencies
                | Self::MissingPushSecretRef
                | Self::MissingRegistryBinding
                | Self::RegistryBindingConflict
                | Self::TooManyReleases
                | Self::TooManyBindings
                | Self::TooManyVersions
                | Self::TooManyObjects
                | Self::CreateRefused
                | Self::VersionTooLarge
                | Self::VersionNotFound
                | Self::ChartLost
                | Self::UserdataConflict
                | Self::Superseded
                | Self::NotFound
                | Self::NotGranted
        )
    }

    /// Whether no one has to do anything.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            Self::JobScheduled
                | Self::JobSucceeded
                | Self::Ready
                | Self::Progressing
                | Self::SeparateContainers
                | Self::Connected
                | Self::Connecting
                | Self::Resolved
                | Self::NoConflicts
                | Self::AllRendered
                | Self::Pending
                | Self::RollingOut
                | Self::RolloutWaiting
                | Self::VersionMade
                | Self::VersionPushed
                | Self::PodEvicted
        )
    }

    /// Where the documentation of this version says what the reason means and what to do about it.
    #[must_use]
    pub fn page(self) -> String {
        format!(
            "{}/blob/v{}/docs/reasons/{self}.md",
            env!("CARGO_PKG_REPOSITORY"),
            env!("CARGO_PKG_VERSION")
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition as the hub wants it; its transition time is settled by [`merge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCondition {
    /// Type of the condition.
    pub type_: ConditionType,
    /// Whether it holds.
    pub status: bool,
    /// Why.
    pub reason: Reason,
    /// The same for people; never a foreign string.
    pub message: String,
}

impl DesiredCondition {
    /// A condition that holds or does not, for this reason.
    #[must_use]
    pub fn new(type_: ConditionType, status: bool, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            type_,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// Puts the wanted conditions in place of those of their types, and removes the types in `gone`.
///
/// A condition whose status stays keeps its transition time, so that a write that changes nothing can be seen as such.
pub fn merge(
    conditions: &mut Vec<Condition>,
    wanted: &[DesiredCondition],
    gone: &[ConditionType],
    generation: Option<i64>,
    now: Timestamp,
) {
    conditions.retain(|c| !gone.iter().any(|type_| type_.as_str() == c.type_));
    for want in wanted {
        let status = if want.status { "True" } else { "False" };
        let old = conditions.iter().position(|c| c.type_ == want.type_.as_str());
        let since = old
            .map(|i| &conditions[i])
            .filter(|c| c.status == status)
            .map_or_else(|| whole_seconds(now), |c| c.last_transition_time.clone());
        let condition = Condition {
            type_: want.type_.as_str().to_owned(),
            status: status.to_owned(),
            reason: want.reason.as_str().to_owned(),
            message: want.message.clone(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match old {
            Some(i) => conditions[i] = condition,
            None => conditions.push(condition),
        }
    }
}

/// The condition of a type.
#[must_use]
pub fn find_condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_str())
}

/// Whether a condition of the type holds.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: ConditionType) -> bool {
    find_condition(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Whether the condition of a type has this reason.
#[must_use]
pub fn has_reason(conditions: &[Condition], type_: ConditionType, reason: Reason) -> bool {
    find_condition(conditions, type_).is_some_and(|c| c.reason == reason.as_str())
}

/// The reason of the condition of a type, if this version knows it.
#[must_use]
pub fn reason_of(conditions: &[Condition], type_: ConditionType) -> Option<Reason> {
    Reason::parse(&find_condition(conditions, type_)?.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(status: bool, message: &str) -> DesiredCondition {
        DesiredCondition {
            type_: ConditionType::Ready,
            status,
            reason: Reason::Ready,
            message: message.to_owned(),
        }
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let (t0, t1, t2) = (at(0), at(10), at(20));
        let mut conditions = Vec::new();
        merge(&mut conditions, &[wanted(false, "a")], &[], Some(1), t0);
        merge(&mut conditions, &[wanted(false, "b")], &[], Some(1), t1);
        assert_eq!(
            (
                conditions[0].message.as_str(),
                conditions[0].last_transition_time.0
            ),
            ("b", t0)
        );
        merge(&mut conditions, &[wanted(true, "c")], &[], Some(1), t2);
        assert_eq!((conditions.len(), conditions[0].last_transition_time.0), (1, t2));
        assert!(is_true(&conditions, ConditionType::Ready));
    }

    #[test]
    fn a_type_that_is_gone_is_removed() {
        let mut conditions = Vec::new();
        merge(&mut conditions, &[wanted(true, "")], &[], None, at(0));
        merge(&mut conditions, &[], &[ConditionType::Ready], None, at(1));
        assert!(conditions.is_empty());
    }

    #[test]
    fn a_message_is_what_happened_and_holds_no_link() {
        for reason in Reason::ALL {
            for status in [true, false] {
                let mut conditions = Vec::new();
                let reported = DesiredCondition {
                    reason: *reason,
                    ..wanted(status, "why")
                };
                merge(&mut conditions, &[reported], &[], None, at(0));
                assert_eq!(conditions[0].message, "why", "{reason}");
            }
        }
    }

    #[test]
    fn each_reason_has_its_page_where_its_name_says() {
        for reason in Reason::ALL {
            let file = format!("docs/reasons/{reason}.md");
            assert!(reason.page().ends_with(&format!("/{file}")), "{reason}");
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
            assert!(path.is_file(), "{file}");
        }
    }

    #[test]
    fn reasons_read_back_as_written() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::parse("SomethingElse"), None);
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }
}
