//! An image that a node does not pull: what of it is known, and what is said to the platform operator.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::image_repository::ImageRepository;
use super::named::{NamedPullSecret, outcomes};
use crate::api::conditions::{ConditionType, DesiredCondition, Reason};
use crate::plan::task::job_state::{RENDER_CONTAINER, RENDERER_CONTAINER};

/// The kubelet's own words for an image that it does not have, each with the one that is told; no other is read. The first two
/// alternate while it tries.
const WORDS: &[(&str, &str)] = &[
    ("ErrImagePull", "ImagePullBackOff"),
    ("ImagePullBackOff", "ImagePullBackOff"),
    ("ErrImageNeverPull", "ErrImageNeverPull"),
    ("InvalidImageName", "InvalidImageName"),
    ("ImageInspectError", "ImageInspectError"),
    ("RegistryUnavailable", "RegistryUnavailable"),
    ("SignatureValidationFailed", "SignatureValidationFailed"),
];
/// What a container is called that the hub did not put into the pod.
const ANOTHER: &str = "that another writer put into the pod";

/// A container that waits for its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Which one.
    pub container: &'static str,
    /// Why, in the kubelet's word.
    pub word: &'static str,
}

impl PullFailure {
    /// The first container of a pod that waits for its image.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        all.flatten().find_map(Self::of_container)
    }

    fn of_container(container: &ContainerStatus) -> Option<Self> {
        let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
        let (_, word) = WORDS.iter().find(|(word, _)| *word == reason)?;
        let own = [RENDER_CONTAINER, RENDERER_CONTAINER];
        let container = own.into_iter().find(|name| *name == container.name);
        Some(Self {
            container: container.unwrap_or(ANOTHER),
            word,
        })
    }

    /// The message to the owner of a task. The host and the names of Secrets are the platform's.
    #[must_use]
    pub fn message(self) -> String {
        let Self { container, word } = self;
        format!(
            "the renderer Job waits: the image of container {container} is not pulled ({word}); the task goes on by itself once it is; if this \
             stays, ask the platform operator, who finds the host and the Secrets in the ImagePulled condition of the renderer class"
        )
    }
}

/// What the pods of a Job turned out to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedPull {
    /// They were not looked at.
    Unseen,
    /// For no image.
    Pulled,
    /// For one.
    Failing(PullFailure),
}

/// What a reconcile saw of the image of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullReport {
    /// Name of the class; `None` is the hub's own renderer.
    pub class: Option<String>,
    /// The cluster; `None` is the hub's own.
    pub cluster: Option<String>,
    /// What a pod waits for; `None` where it is pulled.
    pub failure: Option<PullFailure>,
}

/// What is known of a class after a report. Of several clusters the first one counts until its image is pulled, so that the status
/// does not alternate.
#[must_use]
pub fn after_report(known: Option<ClassPullFailure>, report: &PullReport) -> Option<ClassPullFailure> {
    match known {
        Some(known) if known.cluster != report.cluster => Some(known),
        _ => report.failure.map(|failure| ClassPullFailure {
            cluster: report.cluster.clone(),
            failure,
        }),
    }
}

/// Where the image of a class was not pulled last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPullFailure {
    /// The cluster; `None` is the hub's own.
    pub cluster: Option<String>,
    /// What the pod waits for.
    pub failure: PullFailure,
}

impl ClassPullFailure {
    /// The message to the platform operator: where, which container, why, from which host, and with which Secrets.
    #[must_use]
    pub fn message(&self, image: &str, named: &[NamedPullSecret]) -> String {
        let PullFailure { container, word } = self.failure;
        let place = match &self.cluster {
            None => "on the hub's cluster".to_owned(),
            Some(cluster) => format!("on cluster {cluster}"),
        };
        let repository = ImageRepository::of(image);
        let host = repository.as_ref().map_or(
            "no host, because it is not the name of an image",
            ImageRepository::host,
        );
        let tried = if named.is_empty() {
            "without a Secret, because the class names none".to_owned()
        } else {
            format!("with {}", outcomes(image, named))
        };
        format!(
            "{place} the image of container {container} is not pulled ({word}) from {host} {tried}; correct the image, its registry or the \
             Secret: the kubelet tries again by itself, and a changed Secret counts for the next Job"
        )
    }

    /// The condition of the class.
    #[must_use]
    pub fn condition(&self, image: &str, named: &[NamedPullSecret]) -> DesiredCondition {
        DesiredCondition {
            type_: ConditionType::ImagePulled,
            status: false,
            reason: Reason::ImagePullFailed,
            message: self.message(image, named),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::pull_secrets::copy::PullSecretFault;

    fn pod(init: &Value, main: &Value) -> Pod {
        let container = |name: &str, state: &Value| json!([{"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        serde_json::from_value(json!({"status": {
            "initContainerStatuses": container("render", init), "containerStatuses": container("renderer", main),
        }}))
        .unwrap()
    }

    fn waiting(reason: &str) -> Value {
        json!({"waiting": {"reason": reason, "message": "canary"}})
    }

    /// Holds: S5.
    #[test]
    fn only_the_kubelets_words_for_a_missing_image_are_read() {
        let found =
            |init: &Value, main: &Value| PullFailure::of(&pod(init, main)).map(|f| (f.container, f.word));
        let other = waiting("PodInitializing");
        for (word, reported) in WORDS {
            assert_eq!(found(&waiting(word), &other), Some(("render", *reported)));
            assert_eq!(
                found(&json!({"terminated": {"exitCode": 0}}), &waiting(word)),
                Some(("renderer", *reported))
            );
        }
        for state in [
            &other,
            &waiting("errimagepull"),
            &json!({"running": {}}),
            &json!({}),
            &waiting(""),
        ] {
            assert_eq!(found(state, state), None, "{state}");
        }
        assert_eq!(PullFailure::of(&Pod::default()), None);
        let mut injected = pod(&waiting("ErrImagePull"), &other);
        let status = injected.status.as_mut().unwrap();
        status.init_container_statuses.as_mut().unwrap()[0].name = "canary".to_owned();
        let failure = PullFailure::of(&injected).unwrap();
        assert!(!failure.message().contains("canary"), "{}", failure.message());
    }

    #[test]
    fn the_first_cluster_counts_until_its_image_is_pulled() {
        let report = |cluster: &str, word: Option<&'static str>| PullReport {
            class: None,
            cluster: Some(cluster.to_owned()),
            failure: word.map(|word| PullFailure {
                container: "render",
                word,
            }),
        };
        let mut known = None;
        for (report, cluster) in [
            (report("a", None), None),
            (report("a", Some("ImagePullBackOff")), Some("a")),
            (report("b", Some("ImagePullBackOff")), Some("a")),
            (report("b", None), Some("a")),
            (report("a", None), None),
            (report("b", Some("InvalidImageName")), Some("b")),
        ] {
            known = after_report(known, &report);
            let found = known.as_ref().and_then(|known| known.cluster.as_deref());
            assert_eq!(found, cluster, "{report:?}");
        }
    }

    #[test]
    fn the_platform_operator_reads_where_why_from_which_host_and_with_which_secrets() {
        let failure = ClassPullFailure {
            cluster: Some("edge-1".to_owned()),
            failure: PullFailure {
                container: "render",
                word: "ImagePullBackOff",
            },
        };
        let named = [NamedPullSecret {
            name: "pull".to_owned(),
            copy: Err(PullSecretFault::NoEntry),
            is_by_hand: false,
        }];
        let said = failure.condition("registry.example.com:5000/renderer:1", &named);
        assert_eq!((said.status, said.reason), (false, Reason::ImagePullFailed));
        for words in [
            "edge-1",
            "render",
            "ImagePullBackOff",
            "registry.example.com:5000",
            "pull (has no entry for",
        ] {
            assert!(said.message.contains(words), "{}", said.message);
        }
        let said = failure.message("busybox", &[]);
        assert!(said.contains("from docker.io without a Secret"), "{said}");
        // And nothing of the platform's is in what a tenant reads.
        let said = failure.failure.message();
        assert!(
            said.contains("render") && said.contains("ImagePullBackOff") && !said.contains("example.com"),
            "{said}"
        );
    }
}
