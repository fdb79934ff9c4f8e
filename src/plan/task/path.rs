//! Where a task is on the hub's API server: the only way from names to a path.
//!
//! Names of a task may come from the annotations of an object on another cluster, which are what that cluster says. They become a
//! task's only where they are names, and no other text becomes a part of a path.

use crate::api::labels::{GROUP, VERSION};
use crate::api::names::{TaskKind, TaskUid, is_dns_label, is_dns_subdomain, is_uid};

use crate::plan::task::model::TaskId;

/// The path of the tasks beside one, which a name may follow; `None` where the namespace or the name of the task is none.
#[must_use]
pub fn tasks_path(id: &TaskId) -> Option<String> {
    let is_name = is_dns_subdomain(&id.name);
    match id.kind {
        TaskKind::RenderTask if is_name && is_dns_label(&id.namespace) => Some(format!(
            "/apis/{GROUP}/{VERSION}/namespaces/{}/rendertasks",
            id.namespace
        )),
        TaskKind::ClusterRenderTask if is_name && id.namespace.is_empty() => {
            Some(format!("/apis/{GROUP}/{VERSION}/clusterrendertasks"))
        }
        TaskKind::RenderTask | TaskKind::ClusterRenderTask => None,
    }
}

impl TaskId {
    /// A task as an object names it; `None` where any of that is not what it should be.
    #[must_use]
    pub fn parse(kind: &str, namespace: &str, name: &str, uid: &str) -> Option<Self> {
        let kind = match kind {
            "RenderTask" => TaskKind::RenderTask,
            "ClusterRenderTask" => TaskKind::ClusterRenderTask,
            _ => return None,
        };
        let id = Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: TaskUid::new(uid),
        };
        (is_uid(uid) && tasks_path(&id).is_some()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f5a4e0c-0001-4000-8000-000000000001";

    /// Holds: B5.
    #[test]
    fn only_names_become_a_path() {
        let long = "a".repeat(64);
        for (kind, namespace, name, expected) in [
            (
                "RenderTask",
                "team-a",
                "shop.v1",
                Some("/apis/renderhub.dev/v1alpha1/namespaces/team-a/rendertasks"),
            ),
            (
                "ClusterRenderTask",
                "",
                "shop",
                Some("/apis/renderhub.dev/v1alpha1/clusterrendertasks"),
            ),
            ("RenderTask", "", "shop", None),
            ("ClusterRenderTask", "team-a", "shop", None),
            ("Secret", "team-a", "shop", None),
            (
                "RenderTask",
                "../../../../api/v1/namespaces/kube-system",
                "shop",
                None,
            ),
            ("RenderTask", "team-a/secrets/x?", "shop", None),
            ("RenderTask", "team.a", "shop", None),
            ("RenderTask", &long, "shop", None),
            ("RenderTask", "team-a", "..", None),
            ("RenderTask", "team-a", "shop/status", None),
            ("RenderTask", "team-a", "shop?watch=true", None),
            ("RenderTask", "team-a", "shop%2f", None),
            ("RenderTask", "team-a", "shop\r\nhost: x", None),
            ("RenderTask", "team-a", "", None),
        ] {
            let path = TaskId::parse(kind, namespace, name, UID).and_then(|id| tasks_path(&id));
            assert_eq!(path.as_deref(), expected, "{kind} {namespace} {name}");
        }
    }

    /// Holds: B5.
    #[test]
    fn only_a_uid_is_one() {
        for uid in ["", "t1", "../x", &UID.to_uppercase(), &format!("{UID}0")] {
            assert!(
                TaskId::parse("RenderTask", "team-a", "shop", uid).is_none(),
                "{uid}"
            );
        }
    }
}
