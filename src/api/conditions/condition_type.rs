//! The types of conditions.

/// Type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// Whether a Job runs for the task, or why none does.
    JobScheduled,
    /// The Job completed and its result is recorded.
    JobSucceeded,
    /// The Job failed, or its result is not to be trusted.
    JobFailed,
    /// Mirrors the outcome for `kubectl wait` and for tools that follow kstatus.
    Ready,
    /// Only a person can help.
    Stalled,
    /// Whether a class keeps the credential in another container than what a tenant wrote.
    Isolated,
    /// Whether the image of a class can be pulled with the Secrets that it names.
    PullSecretsResolved,
    /// Whether the image of a class is pulled where its Jobs run; it is there only while it is not.
    ImagePulled,
    /// Whether the hub reaches a cluster, and may do there what it must.
    Connected,
    /// Whether a Target's registry is there and may be used.
    RegistryResolved,
    /// Which Releases a Target gets.
    ReleasesResolved,
    /// Whether the chart of each Release of a Target is pushed.
    ReleasesRendered,
    /// Whether the chart of the newest version of a Target is pushed.
    BootstrapReady,
}

impl ConditionType {
    /// The name in a condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JobScheduled => "JobScheduled",
            Self::JobSucceeded => "JobSucceeded",
            Self::JobFailed => "JobFailed",
            Self::Ready => "Ready",
            Self::Stalled => "Stalled",
            Self::Isolated => "Isolated",
            Self::PullSecretsResolved => "PullSecretsResolved",
            Self::ImagePulled => "ImagePulled",
            Self::Connected => "Connected",
            Self::RegistryResolved => "RegistryResolved",
            Self::ReleasesResolved => "ReleasesResolved",
            Self::ReleasesRendered => "ReleasesRendered",
            Self::BootstrapReady => "BootstrapReady",
        }
    }
}
