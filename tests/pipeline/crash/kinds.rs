//! The writes of a Target's life, around which a hub is killed.

use serde_json::Value;

use support::proxy::Write;

/// Writes of one kind.
pub struct Kind {
    pub name: &'static str,
    pub is_it: fn(&Write) -> bool,
}

pub static ADDS_FINALIZER: Kind = Kind {
    name: "the finalizer is put on the Target",
    is_it: |write| changes_target(write, "add"),
};
pub static MAKES_RELEASE_TASK: Kind = Kind {
    name: "the task of the Release is made",
    is_it: |write| is_new(write, "/rendertasks", "release-shop-"),
};
pub static SAYS_CHARTS_ARE_MISSING: Kind = Kind {
    name: "the Target says that the chart of the Release is not pushed",
    is_it: |write| is_status_of_target(write) && says(write, "ReleasesRendered", "False"),
};
pub static MAKES_VERSION: Kind = Kind {
    name: "the version is made",
    is_it: |write| is_new(write, "/hydratedtargets", "edge-v"),
};
pub static MAKES_BOOTSTRAP_TASK: Kind = Kind {
    name: "the task of the version is made",
    is_it: |write| is_new(write, "/rendertasks", "bootstrap-edge-v"),
};
pub static SAYS_VERSION_IS_MISSING: Kind = Kind {
    name: "the Target says that its newest version is not pushed",
    is_it: |write| {
        let is_bundled = says(write, "ReleasesRendered", "True");
        is_status_of_target(write) && is_bundled && says(write, "BootstrapReady", "False")
    },
};
pub static SAYS_VERSION_IS_PUSHED: Kind = Kind {
    name: "the version says that it is pushed",
    is_it: |write| {
        let is_status = write.path.contains("/hydratedtargets/edge-v") && write.path.ends_with("/status");
        is_status && write.status()["pushedAt"].is_string()
    },
};
pub static SAYS_TARGET_IS_READY: Kind = Kind {
    name: "the Target says that it is ready",
    is_it: |write| is_status_of_target(write) && says(write, "Ready", "True"),
};
pub static DELETES_BOOTSTRAP_TASK: Kind = Kind {
    name: "the task of a version is deleted",
    is_it: |write| deletes(write, "/rendertasks/bootstrap-edge-v"),
};
pub static DELETES_VERSION: Kind = Kind {
    name: "a version is deleted",
    is_it: |write| deletes(write, "/hydratedtargets/edge-v"),
};
pub static DELETES_RELEASE_TASK: Kind = Kind {
    name: "the task of a Release is deleted",
    is_it: |write| deletes(write, "/rendertasks/release-shop-"),
};
pub static LETS_TARGET_GO: Kind = Kind {
    name: "the finalizer is taken off the Target",
    is_it: |write| changes_target(write, "remove"),
};

/// All of them.
pub static ALL: [&Kind; 12] = [
    &ADDS_FINALIZER,
    &MAKES_RELEASE_TASK,
    &SAYS_CHARTS_ARE_MISSING,
    &MAKES_VERSION,
    &MAKES_BOOTSTRAP_TASK,
    &SAYS_VERSION_IS_MISSING,
    &SAYS_VERSION_IS_PUSHED,
    &SAYS_TARGET_IS_READY,
    &DELETES_BOOTSTRAP_TASK,
    &DELETES_VERSION,
    &DELETES_RELEASE_TASK,
    &LETS_TARGET_GO,
];

/// What a write makes: the resource, the name and the spec.
pub fn made(write: &Write) -> Option<(&str, &str, &Value)> {
    let (_, resource) = write.path.rsplit_once('/')?;
    let name = write.body["metadata"]["name"].as_str()?;
    (write.method == "POST").then_some((resource, name, &write.body["spec"]))
}

fn is_new(write: &Write, resource: &str, prefix: &str) -> bool {
    write.path.ends_with(resource) && made(write).is_some_and(|(_, name, _)| name.starts_with(prefix))
}

fn deletes(write: &Write, prefix: &str) -> bool {
    write.method == "DELETE" && write.path.contains(prefix)
}

/// The hub changes nothing of a Target besides its status but one finalizer.
fn changes_target(write: &Write, operation: &str) -> bool {
    let mut operations = write.body.as_array().into_iter().flatten();
    write.method == "PATCH"
        && write.path.ends_with("/targets/edge")
        && operations.any(|one| one["op"] == operation)
}

fn is_status_of_target(write: &Write) -> bool {
    write.path.ends_with("/targets/edge/status")
}

fn says(write: &Write, type_: &str, value: &str) -> bool {
    let mut conditions = write.status()["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == type_ && condition["status"] == value)
}
