//! Namespaces that are left out of an object where they are its own: what an API server does for an object grows with each value.

use std::sync::Arc;

/// What names objects by namespace, and leaves the object's own out.
pub trait OmitsOwnNamespace {
    /// Puts a namespace in the place of another, wherever that may be left out.
    fn rename_namespace(&mut self, _from: &str, _to: &str) {}

    /// Leaves out the namespace of the object, as it is written.
    fn leave_out(&mut self, own: &str) {
        self.rename_namespace(own, "");
    }

    /// Fills in the namespace of the object, as the hub works with it.
    fn fill_in(&mut self, own: &str) {
        self.rename_namespace("", own);
    }
}

/// A part of an object that others share, and the namespaces that may be left out of it.
pub(super) trait NamesNamespaces: Clone {
    /// The namespaces.
    fn namespaces(&mut self) -> impl Iterator<Item = &mut String>;

    /// Whether one of them is this.
    fn names(&self, namespace: &str) -> bool;

    /// Puts a namespace in the place of another: in a copy of what is shared, and only where it names that.
    fn rename_in(shared: &mut Arc<Self>, from: &str, to: &str) {
        if shared.names(from) {
            Arc::make_mut(shared)
                .namespaces()
                .for_each(|name| rename(name, from, to));
        }
    }
}

/// Puts a namespace in the place of another.
pub(super) fn rename(namespace: &mut String, from: &str, to: &str) {
    if namespace == from {
        to.clone_into(namespace);
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::pipeline::{HydratedTargetSpec, TargetStatus};

    /// What is written of a whole value in namespace `team`, once it is read again as it was.
    fn written<T: OmitsOwnNamespace + Serialize + DeserializeOwned>(whole: &Value) -> Value {
        let mut value: T = serde_json::from_value(whole.clone()).unwrap();
        value.leave_out("team");
        let written = serde_json::to_value(&value).unwrap();
        let mut read: T = serde_json::from_value(written.clone()).unwrap();
        read.fill_in("team");
        assert_eq!(serde_json::to_value(&read).unwrap(), *whole);
        written
    }

    #[test]
    fn a_version_names_only_namespaces_that_are_not_its_own_and_no_defaults() {
        let release = json!({
            "namespace": "team", "name": "shop", "source": {"kind": "Profile", "namespace": "team", "name": "all"},
            "registryBindings": [{"namespace": "team", "name": "own"}, {"namespace": "shelf", "name": "theirs"}],
            "componentVersionRef": {"namespace": "shelf", "name": "shop-1"}, "componentVersion": "1.0.0",
            "repository": "registry.test/team/shop", "version": "v0.0.1-h0123456789abcdef",
        });
        let mut other = release.clone();
        other["namespace"] = json!("shelf");
        other["source"]["namespace"] = json!("shelf");
        (other["priority"], other["insecure"]) = (json!(-1), json!(true));
        let profiles = ["team", "shelf"].map(
            |namespace| json!({"namespace": namespace, "name": "all", "uniqueName": "shop", "userdata": 1}),
        );
        let whole = json!({
            "targetName": "edge", "targetUid": "uid", "version": 1, "changes": "first version", "profiles": profiles,
            "registry": {"kind": "Registry", "name": "main", "hostname": "registry.test", "repository": "edge"},
            "releases": {"own": release, "theirs": other},
        });
        let written = written::<HydratedTargetSpec>(&whole);
        assert_eq!(
            written["releases"]["own"],
            json!({
                "name": "shop", "source": {"kind": "Profile", "name": "all"},
                "registryBindings": [{"name": "own"}, {"namespace": "shelf", "name": "theirs"}],
                "componentVersionRef": {"namespace": "shelf", "name": "shop-1"}, "componentVersion": "1.0.0",
                "repository": "registry.test/team/shop", "version": "v0.0.1-h0123456789abcdef",
            })
        );
        let mut theirs = other;
        theirs["registryBindings"] = json!([{"name": "own"}, {"namespace": "shelf", "name": "theirs"}]);
        assert_eq!(written["releases"]["theirs"], theirs);
        assert_eq!(written["profiles"][0].get("namespace"), None);
        assert_eq!(written["profiles"][1]["namespace"], "shelf");
    }

    #[test]
    fn a_target_names_only_namespaces_that_are_not_its_own_and_no_priority_of_0() {
        let release = |namespace: &str, priority: i32| {
            let source = json!({"kind": "ReleaseBinding", "namespace": namespace, "name": "bound"});
            let mut release = json!({
                "uniqueName": "shop", "namespace": namespace, "name": "shop", "source": source, "version": "v0.0.1",
            });
            if priority != 0 {
                release["priority"] = json!(priority);
            }
            release
        };
        let other = release("shelf", 7);
        let written = written::<TargetStatus>(&json!({"releases": [release("team", 0), other]}));
        let own = json!({
            "uniqueName": "shop", "name": "shop", "source": {"kind": "ReleaseBinding", "name": "bound"}, "version": "v0.0.1",
        });
        assert_eq!(written["releases"], json!([own, other]));
    }
}
