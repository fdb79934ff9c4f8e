//! Names that are left out of an object where they go without saying: what an API server does for an object grows with each value.

use std::sync::Arc;

/// What names objects, and leaves out the object's own namespace and the name of a Release that is its unique name.
pub trait OmitsKnownNames {
    /// Puts a namespace in the place of another, wherever that may be left out. The name of a Release that is its unique name is
    /// left out where the new one is empty, and filled in otherwise.
    fn rename_namespace(&mut self, _from: &str, _to: &str) {}

    /// Leaves out what is known of the object, as it is written.
    fn leave_out(&mut self, own: &str) {
        self.rename_namespace(own, "");
    }

    /// Fills in what is known of the object, as the hub works with it.
    fn fill_in(&mut self, own: &str) {
        self.rename_namespace("", own);
    }
}

/// A text in the place of another, one of which is empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rename<'t> {
    pub from: &'t str,
    pub to: &'t str,
}

impl<'t> Rename<'t> {
    /// Leaves out, or fills in, another text: whichever this does with its own.
    const fn of(self, text: &'t str) -> Self {
        let (from, to) = if self.to.is_empty() {
            (text, "")
        } else {
            ("", text)
        };
        Self { from, to }
    }

    /// Does so with a text that is the one.
    pub fn apply(self, text: &mut String) {
        if text == self.from {
            self.to.clone_into(text);
        }
    }
}

/// A Release in an object, which may be shared.
pub(super) trait NamesRelease: Clone {
    /// The name of the Release.
    fn name(&mut self) -> &mut String;

    /// The namespaces that it names.
    fn namespaces(&mut self) -> impl Iterator<Item = &mut String>;

    /// Whether its name is this, or one of the namespaces that.
    fn names(&self, name: &str, namespace: &str) -> bool;

    /// Leaves out, or fills in, what is known of the Release with this unique name: in a copy of what is shared, and only where
    /// that changes it.
    fn rename_in(shared: &mut Arc<Self>, unique_name: &str, namespace: Rename<'_>) {
        let name = namespace.of(unique_name);
        if shared.names(name.from, namespace.from) {
            let own = Arc::make_mut(shared);
            name.apply(own.name());
            own.namespaces().for_each(|text| namespace.apply(text));
        }
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
    fn written<T: OmitsKnownNames + Serialize + DeserializeOwned>(whole: &Value) -> Value {
        let mut value: T = serde_json::from_value(whole.clone()).unwrap();
        value.leave_out("team");
        let written = serde_json::to_value(&value).unwrap();
        let mut read: T = serde_json::from_value(written.clone()).unwrap();
        read.fill_in("team");
        assert_eq!(serde_json::to_value(&read).unwrap(), *whole);
        written
    }

    #[test]
    fn a_version_names_neither_its_own_namespace_nor_a_release_by_its_unique_name_nor_defaults() {
        let release = json!({
            "namespace": "team", "name": "own", "source": "Profile/team/all",
            "registryBindings": [{"namespace": "team", "name": "own"}, {"namespace": "shelf", "name": "theirs"}],
            "componentVersionRef": {"namespace": "shelf", "name": "shop-1"}, "componentVersion": "1.0.0",
            "repository": "registry.test/team/shop", "version": "v0.0.1-h0123456789abcdef",
        });
        let mut other = release.clone();
        other["namespace"] = json!("shelf");
        other["source"] = json!("Profile/shelf/all");
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
                "source": "Profile/all",
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
    fn a_target_names_neither_its_own_namespace_nor_a_release_by_its_unique_name_nor_a_priority_of_0() {
        let release = |name: &str, namespace: &str, priority: i32| {
            let mut release = json!({
                "uniqueName": "shop", "namespace": namespace, "name": name, "version": "v0.0.1",
                "source": format!("ReleaseBinding/{namespace}/bound"),
            });
            if priority != 0 {
                release["priority"] = json!(priority);
            }
            release
        };
        let (own, other) = (release("shop", "team", 0), release("theirs", "shelf", 7));
        let written = written::<TargetStatus>(&json!({"releases": [own, other]}));
        let own = json!({"uniqueName": "shop", "source": "ReleaseBinding/bound", "version": "v0.0.1"});
        assert_eq!(written["releases"], json!([own, other]));
    }
}
