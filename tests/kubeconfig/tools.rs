//! What the common tools write is accepted as they write it.

use std::path::Path;

use super::differential::same_as_kube;
use super::documents::read;
use support::programs;

/// Where the samples are: they are what the fuzzer starts from as well.
pub const SAMPLES: &str = "tests/fuzz/corpus/kubeconfig";

#[test]
fn what_tools_write_is_accepted() {
    let samples = Path::new(programs::ROOT).join(SAMPLES);
    for name in [
        "kubectl-config-set.yaml",
        "kubectl-config-view.json",
        "kind.yaml",
        "k3s.yaml",
        "minikube-embedded.yaml",
        "by-hand-token.yaml",
    ] {
        let text = std::fs::read_to_string(samples.join(name)).unwrap();
        assert_eq!(read(&text).err(), None, "{name}");
        same_as_kube(&text);
    }
}
