//! An image that a node does not pull: what of it is known, and what is said to the tenant and the platform operator.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::image_repository::ImageRepository;
use super::named::{NamedPullSecret, outcomes_in_pod};
use crate::api::conditions::{ConditionType, DesiredCondition, Reason};
use crate::plan::task::job_state::{RENDER_CONTAINER, RENDERER_CONTAINER};

/// The kubelet's own words for an image that it does not have, each with the one that the hub reports; it reads no other. The first
/// two alternate while the kubelet tries.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Which one.
    pub container: &'static str,
    /// Why, in the kubelet's word.
    pub word: &'static str,
    /// Pull Secrets of the class that the pod names by their own names, and not by the name of a copy.
    pub uncopied: Vec<String>,
}

impl PullFailure {
    /// The first container of a pod that waits for its image; the pod's class names these pull Secrets.
    #[must_use]
    pub fn of(pod: &Pod, named: &[NamedPullSecret]) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let (container, word) = all.flatten().find_map(of_container)?;
        let pulled_with = pod
            .spec
            .iter()
            .flat_map(|spec| &spec.image_pull_secrets)
            .flatten();
        let in_pod: Vec<&str> = pulled_with.map(|secret| secret.name.as_str()).collect();
        let uncopied = named.iter().map(|secret| &secret.name);
        Some(Self {
            container,
            word,
            uncopied: uncopied
                .filter(|name| in_pod.contains(&name.as_str()))
                .cloned()
                .collect(),
        })
    }

    /// The message to the owner of a task.
    #[must_use]
    pub fn message(&self, source: &PullSource<'_>) -> String {
        let (container, word, tried) = (self.container, self.word, source.tried(self));
        format!(
            "the renderer Job waits: the image of container {container} is not pulled ({word}){tried}; the task goes on by itself once it \
             is; if this stays, ask the platform operator"
        )
    }
}

fn of_container(container: &ContainerStatus) -> Option<(&'static str, &'static str)> {
    let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
    let (_, word) = WORDS.iter().find(|(word, _)| *word == reason)?;
    let own = [RENDER_CONTAINER, RENDERER_CONTAINER];
    let container = own.into_iter().find(|name| *name == container.name);
    Some((container.unwrap_or(ANOTHER), word))
}

/// Whose cluster a pod is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPlace {
    /// The hub's own.
    Hub,
    /// A `RenderCluster`.
    RenderCluster,
    /// A tenant's own, which no Secret of the platform goes to, not even by name.
    TenantCluster,
}

/// Where the image of a class comes from, as far as one place is concerned.
#[derive(Clone, Copy, Debug)]
pub struct PullSource<'a> {
    /// The image.
    pub image: &'a str,
    /// The pull Secrets of the class.
    pub named: &'a [NamedPullSecret],
    /// Where the pod is.
    pub place: PullPlace,
}

impl PullSource<'_> {
    /// The host that was asked, and the Secrets it was asked with; nothing for the container of another writer, whose image is not known.
    fn tried(&self, failure: &PullFailure) -> String {
        let Self { image, named, place } = *self;
        if failure.container == ANOTHER {
            return String::new();
        }
        let repository = ImageRepository::of(image);
        let host = repository.as_ref().map_or(
            "no host, because it is not the name of an image",
            ImageRepository::host,
        );
        let secrets = match place {
            PullPlace::TenantCluster => {
                "without a Secret of the platform's, because none goes to a tenant's own cluster".to_owned()
            }
            _ if named.is_empty() => {
                "without a Secret of the platform's, because the class names none".to_owned()
            }
            PullPlace::Hub | PullPlace::RenderCluster => {
                let is_on_hub = place == PullPlace::Hub;
                let outcomes = outcomes_in_pod(image, named, &failure.uncopied, is_on_hub);
                format!("with {outcomes}")
            }
        };
        format!(" from {host} {secrets}")
    }
}

/// What the pods of a Job turned out to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What is known of a class after a report. Of several clusters the first one counts until its image is pulled, and of several pods
/// the first one, so that the status does not alternate.
#[must_use]
pub fn after_report(known: Option<ClassPullFailure>, report: &PullReport) -> Option<ClassPullFailure> {
    match known {
        Some(known) if known.cluster != report.cluster || known.is_repeated_by(report) => Some(known),
        _ => report.failure.clone().map(|failure| ClassPullFailure {
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
    /// Whether a report says no more than is known; one of a pod with more copies does.
    fn is_repeated_by(&self, report: &PullReport) -> bool {
        let known = &self.failure;
        report.failure.as_ref().is_some_and(|failure| {
            (failure.container, failure.word) == (known.container, known.word)
                && failure.uncopied.len() >= known.uncopied.len()
        })
    }

    /// The message to the platform operator: where, which container, why, from which host, and with which Secrets.
    #[must_use]
    pub fn message(&self, image: &str, named: &[NamedPullSecret]) -> String {
        let (container, word) = (self.failure.container, self.failure.word);
        let (on, place) = match &self.cluster {
            None => ("on the hub's cluster".to_owned(), PullPlace::Hub),
            Some(cluster) => (format!("on cluster {cluster}"), PullPlace::RenderCluster),
        };
        let source = PullSource { image, named, place };
        let tried = source.tried(&self.failure);
        format!(
            "{on} the image of container {container} is not pulled ({word}){tried}; correct the image, its registry or the Secret: the \
             kubelet tries again by itself, and a changed Secret counts for the next Job"
        )
    }

    /// The condition of the class.
    #[must_use]
    pub fn condition(&self, image: &str, named: &[NamedPullSecret]) -> DesiredCondition {
        let message = self.message(image, named);
        DesiredCondition::new(
            ConditionType::ImagePulled,
            false,
            Reason::ImagePullFailed,
            message,
        )
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::PullSecretEntries;
    use crate::api::names::HubId;
    use crate::plan::pull_secrets::copy::{PullCopy, PullCopyId, PullSecretFault};

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
        let found = |init: &Value, main: &Value| {
            PullFailure::of(&pod(init, main), &[]).map(|f| (f.container, f.word))
        };
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
        assert_eq!(PullFailure::of(&Pod::default(), &[]), None);
        let mut injected = pod(&waiting("ErrImagePull"), &other);
        let status = injected.status.as_mut().unwrap();
        status.init_container_statuses.as_mut().unwrap()[0].name = "canary".to_owned();
        let spec = json!({"containers": [], "imagePullSecrets": [{"name": "canary"}, {"name": "pull"}]});
        injected.spec = serde_json::from_value(spec).unwrap();
        let named = [named(Err(PullSecretFault::Missing))];
        let failure = PullFailure::of(&injected, &named).unwrap();
        assert_eq!(failure.uncopied, ["pull"]);
        let said = failure.message(&source(&named, PullPlace::RenderCluster));
        assert!(
            !said.contains("canary") && !said.contains("registry.example.com"),
            "{said}"
        );
    }

    #[test]
    fn the_first_cluster_counts_until_its_image_is_pulled_and_there_the_pod_with_most_copies() {
        let report = |cluster: &str, word: Option<&'static str>, uncopied: &[&str]| PullReport {
            class: None,
            cluster: Some(cluster.to_owned()),
            failure: word.map(|word| PullFailure {
                word,
                ..failure(uncopied)
            }),
        };
        let (refused, invalid) = (Some("ImagePullBackOff"), Some("InvalidImageName"));
        let mut known = None;
        for (cluster, word, uncopied, expected) in [
            ("a", None, &[][..], None),
            ("a", refused, &["pull"], Some(("a", 1))),
            ("a", refused, &[], Some(("a", 0))),
            ("a", refused, &["pull"], Some(("a", 0))),
            ("b", refused, &[], Some(("a", 0))),
            ("b", None, &[], Some(("a", 0))),
            ("a", None, &[], None),
            ("b", invalid, &["pull"], Some(("b", 1))),
        ] {
            known = after_report(known, &report(cluster, word, uncopied));
            let found = known.as_ref().map(|known| {
                let cluster = known.cluster.as_deref().unwrap_or_default();
                (cluster, known.failure.uncopied.len())
            });
            assert_eq!(found, expected, "{cluster} {word:?} {uncopied:?}");
        }
    }

    fn named(copy: Result<PullCopyId, PullSecretFault>) -> NamedPullSecret {
        NamedPullSecret {
            name: "pull".to_owned(),
            copy,
            is_by_hand: false,
        }
    }

    fn copied() -> PullCopyId {
        let file = json!({"auths": {"registry.example.com:5000": {"auth": "dTpw"}}}).to_string();
        let secret: Secret = serde_json::from_value(json!({
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": ByteString(file.into_bytes())},
        }))
        .unwrap();
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        let image = ImageRepository::of(IMAGE).unwrap();
        let copy = PullCopy::of(&hub, &secret, &image, PullSecretEntries::Needed).unwrap();
        copy.id().clone()
    }

    const IMAGE: &str = "registry.example.com:5000/renderer:1";

    fn source(named: &[NamedPullSecret], place: PullPlace) -> PullSource<'_> {
        PullSource {
            image: IMAGE,
            named,
            place,
        }
    }

    fn failure(uncopied: &[&str]) -> PullFailure {
        PullFailure {
            container: "render",
            word: "ImagePullBackOff",
            uncopied: uncopied.iter().map(ToString::to_string).collect(),
        }
    }

    /// A Secret, whether the pod names it without a copy, and what is said of it on the hub's cluster.
    fn situations_here() -> Vec<(NamedPullSecret, bool, &'static str)> {
        vec![
            (named(Ok(copied())), false, "(has registry.example.com:5000)"),
            (
                named(Ok(copied())),
                true,
                "(could not be copied when the Job was made, and can be now)",
            ),
            (
                named(Err(PullSecretFault::NoEntry)),
                true,
                "(has no entry for registry.example.com:5000)",
            ),
            (
                named(Err(PullSecretFault::Missing)),
                true,
                "(does not exist, neither in the hub's release namespace nor where",
            ),
            (by_hand(), true, "(the one in the rendering namespace, as it is)"),
        ]
    }

    /// The same on a `RenderCluster`.
    fn situations_there() -> Vec<(NamedPullSecret, bool, &'static str)> {
        vec![
            (by_hand(), false, "(has registry.example.com:5000)"),
            (
                named(Ok(copied())),
                true,
                "(could not be copied when the Job was made, and can be now; one that was made by hand on the cluster is used as it is)",
            ),
            (
                named(Err(PullSecretFault::Missing)),
                true,
                "(does not exist in the hub's release namespace; one that was made by hand",
            ),
            (
                named(Err(PullSecretFault::NoEntry)),
                true,
                "(has no entry for registry.example.com:5000; one that was made by hand",
            ),
        ]
    }

    fn by_hand() -> NamedPullSecret {
        NamedPullSecret {
            is_by_hand: true,
            ..named(Ok(copied()))
        }
    }

    #[test]
    fn task_and_class_say_where_why_from_which_host_and_with_which_secrets() {
        let here = situations_here().into_iter().map(|said| (PullPlace::Hub, said));
        let there = situations_there()
            .into_iter()
            .map(|said| (PullPlace::RenderCluster, said));
        for (place, (secret, is_uncopied, words)) in here.chain(there) {
            let failure = failure(if is_uncopied { &["pull"] } else { &[] });
            let is_cluster = place == PullPlace::RenderCluster;
            let of_class = ClassPullFailure {
                cluster: is_cluster.then(|| "edge-1".to_owned()),
                failure: failure.clone(),
            };
            let named = [secret];
            let of_class = of_class.condition(IMAGE, &named);
            assert_eq!(
                (of_class.status, of_class.reason),
                (false, Reason::ImagePullFailed)
            );
            assert_eq!(of_class.message.contains("on cluster edge-1"), is_cluster);
            let with = format!("from registry.example.com:5000 with pull {words}");
            for said in [of_class.message, failure.message(&source(&named, place))] {
                for words in ["container render", "ImagePullBackOff", &with] {
                    assert!(said.contains(words), "{words}: {said}");
                }
            }
        }
    }

    #[test]
    fn without_a_secret_the_reason_is_said_and_a_tenants_cluster_gets_no_name_of_the_platforms() {
        let failure = failure(&[]);
        let bare = PullSource {
            image: "busybox",
            ..source(&[], PullPlace::Hub)
        };
        let said = failure.message(&bare);
        assert!(
            said.contains("from docker.io without a Secret of the platform's, because the class names none"),
            "{said}"
        );
        let said = failure.message(&PullSource { image: "", ..bare });
        assert!(
            said.contains("from no host, because it is not the name of an image"),
            "{said}"
        );
        let all = [named(Ok(copied()))];
        let said = failure.message(&source(&all, PullPlace::TenantCluster));
        assert!(
            said.contains("from registry.example.com:5000 without a Secret of the platform's"),
            "{said}"
        );
        assert!(!said.contains("with pull"), "{said}");
    }
}
