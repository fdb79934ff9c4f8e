//! What one watch of tasks covers.

use std::sync::Arc;

use crate::api::names::TaskKind;

/// What one watch of tasks covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskWatchScope {
    /// Which of the two kinds.
    pub kind: TaskKind,
    /// The one namespace, or all.
    pub namespace: Option<Arc<str>>,
}

impl TaskWatchScope {
    /// The scopes of a hub: the listed namespaces, or with an empty list every namespace and the platform's own tasks.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Vec<Self> {
        if namespaces.is_empty() {
            let all = |kind| Self {
                kind,
                namespace: None,
            };
            return vec![all(TaskKind::RenderTask), all(TaskKind::ClusterRenderTask)];
        }
        let one = |name: &String| Self {
            kind: TaskKind::RenderTask,
            namespace: Some(name.as_str().into()),
        };
        namespaces.iter().map(one).collect()
    }

    /// Whether a task belongs to the scope.
    #[must_use]
    pub fn covers(&self, kind: TaskKind, namespace: &str) -> bool {
        self.kind == kind && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(kind: TaskKind, namespace: Option<&str>) -> TaskWatchScope {
        TaskWatchScope {
            kind,
            namespace: namespace.map(Arc::from),
        }
    }

    #[test]
    fn without_a_list_a_hub_serves_everything_with_one_only_that() {
        let (rt, crt) = (TaskKind::RenderTask, TaskKind::ClusterRenderTask);
        assert_eq!(TaskWatchScope::of(&[]), [scope(rt, None), scope(crt, None)]);
        let two = TaskWatchScope::of(&["team-a".to_owned(), "team-b".to_owned()]);
        assert_eq!(two, [scope(rt, Some("team-a")), scope(rt, Some("team-b"))]);
        assert!(
            !two.iter().any(|s| s.covers(crt, "")),
            "the platform's own tasks are another hub's"
        );
    }

    #[test]
    fn a_scope_covers_its_kind_and_its_namespace() {
        let (rt, crt) = (TaskKind::RenderTask, TaskKind::ClusterRenderTask);
        let table = [
            (scope(rt, None), rt, "team-a", true),
            (scope(rt, None), crt, "", false),
            (scope(crt, None), crt, "", true),
            (scope(rt, Some("team-a")), rt, "team-a", true),
            (scope(rt, Some("team-a")), rt, "team-a2", false),
            (scope(rt, Some("team-a")), crt, "team-a", false),
        ];
        for (scope, kind, namespace, covers) in table {
            assert_eq!(
                scope.covers(kind, namespace),
                covers,
                "{scope:?} {kind:?} {namespace}"
            );
        }
    }
}
