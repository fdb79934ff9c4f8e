//! Objects of a few names in a few namespaces that are made, changed and taken away at random.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, object};
use crate::plan::pipeline::object::ObjectKey;

/// Namespaces of what is drawn.
const NAMESPACES: [&str; 2] = ["team-a", "team-b"];
/// Names of what is drawn.
const NAMES: [&str; 2] = ["one", "two"];
/// Kinds of what is drawn.
const KINDS: [&str; 8] = [
    "Target",
    "Release",
    "ComponentVersion",
    "Profile",
    "ReleaseBinding",
    "RegistryBinding",
    "Registry",
    "ReferenceGrant",
];

/// An object of a kind that is there from now on, with labels and a spec; without a spec it is gone.
#[derive(Clone, Debug)]
pub struct Edit {
    pub kind: &'static str,
    pub key: ObjectKey,
    labels: Value,
    spec: Option<Value>,
}

impl Edit {
    /// Does it.
    pub fn apply(&self, world: &mut World) {
        let objects = &mut world.objects;
        macro_rules! put {
            ($field:ident) => {{
                match self.spec.clone() {
                    Some(spec) => {
                        let mut new = object(&self.key.to_string(), &self.labels, spec);
                        // As the API server does: another spec is another generation of the same object.
                        let known = objects.$field.get(&self.key);
                        if let Some(known) = known {
                            new.status = known.status.clone();
                            new.uid = known.uid.clone();
                            new.generation = known.generation + 1;
                        }
                        objects.$field.insert(self.key.clone(), new);
                    }
                    None => {
                        objects.$field.remove(&self.key);
                    }
                }
            }};
        }
        match self.kind {
            "Target" => put!(targets),
            "Release" => put!(releases),
            "ComponentVersion" => put!(component_versions),
            "Profile" => put!(profiles),
            "ReleaseBinding" => put!(release_bindings),
            "RegistryBinding" => put!(registry_bindings),
            "Registry" => put!(registries),
            _ => {
                let spec = self
                    .spec
                    .clone()
                    .map(|spec| serde_json::from_value(spec).unwrap());
                let namespace = &self.key.namespace;
                objects.grants.put(&None, namespace, &self.key.name, spec);
            }
        }
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMES[..])
}

fn namespace() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMESPACES[..])
}

/// A namespace, or that of the object itself.
fn elsewhere() -> impl Strategy<Value = Option<&'static str>> {
    proptest::option::weighted(0.3, namespace())
}

fn labels() -> impl Strategy<Value = Value> {
    let value = || proptest::option::of(prop_oneof![Just("x"), Just("y")]);
    (value(), value()).prop_map(|(a, b)| {
        let all = [("a", a), ("b", b)];
        all.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
}

fn selector() -> impl Strategy<Value = Value> {
    let expression = prop_oneof![
        Just(json!([])),
        Just(json!([{"key": "a", "operator": "Exists"}])),
        Just(json!([{"key": "b", "operator": "In", "values": ["x", "y"]}])),
        Just(json!([{"key": "b", "operator": "NotIn", "values": ["x"]}])),
    ];
    (labels(), expression)
        .prop_map(|(labels, expression)| json!({"matchLabels": labels, "matchExpressions": expression}))
}

fn grant() -> impl Strategy<Value = Value> {
    let from = prop_oneof![
        Just("ReleaseBinding"),
        Just("RegistryBinding"),
        Just("Profile"),
        Just("Release"),
        Just("Target"),
    ];
    let to = prop_oneof![Just("Target"), Just("ComponentVersion"), Just("Registry")];
    let from = (from, namespace()).prop_map(
        |(kind, namespace)| json!({"group": "renderhub.dev", "kind": kind, "namespace": namespace}),
    );
    let to = (to, proptest::option::weighted(0.3, name())).prop_map(|(kind, name)| {
        let mut to = json!({"group": "renderhub.dev", "kind": kind});
        if let Some(name) = name {
            to["name"] = json!(name);
        }
        to
    });
    let from = proptest::collection::vec(from, 1..8);
    (from, proptest::collection::vec(to, 1..4)).prop_map(|(from, to)| json!({"from": from, "to": to}))
}

/// A spec with a reference in this field.
fn referring(field: &'static str) -> impl Strategy<Value = Value> {
    (name(), elsewhere()).prop_map(move |(name, namespace)| match namespace {
        Some(namespace) => json!({field: {"name": name, "namespace": namespace}}),
        None => json!({field: {"name": name}}),
    })
}

fn binding(field: &'static str) -> impl Strategy<Value = Value> {
    (referring("targetRef"), name()).prop_map(move |(mut spec, named)| {
        spec[field] = json!({"name": named});
        spec
    })
}

fn release() -> impl Strategy<Value = Value> {
    (referring("componentVersionRef"), 0..2i32).prop_map(|(mut spec, priority)| {
        spec["priority"] = json!(priority);
        spec
    })
}

fn component_version() -> impl Strategy<Value = Value> {
    (name(), name()).prop_map(|(component, tag)| {
        let chart = json!({"repository": format!("{tag}.test/{component}"), "tag": tag});
        json!({
            "componentRef": {"name": component}, "tag": tag, "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        })
    })
}

fn profile() -> impl Strategy<Value = Value> {
    let spec = (selector(), name());
    spec.prop_map(|(selector, release)| json!({"targetSelector": selector, "releaseRef": {"name": release}}))
}

fn registry() -> impl Strategy<Value = Value> {
    name().prop_map(|name| json!({"hostname": format!("{name}.test"), "targetPullSecretName": name}))
}

fn spec(kind: &'static str) -> BoxedStrategy<Value> {
    match kind {
        "Target" => referring("renderRegistryRef").boxed(),
        "Release" => release().boxed(),
        "ComponentVersion" => component_version().boxed(),
        "Profile" => profile().boxed(),
        "ReleaseBinding" => binding("releaseRef").boxed(),
        "RegistryBinding" => binding("registryRef").boxed(),
        "Registry" => registry().boxed(),
        _ => grant().boxed(),
    }
}

/// Something that is made, changed or taken away.
pub fn edit() -> impl Strategy<Value = Edit> {
    let place = (proptest::sample::select(&KINDS[..]), namespace(), name());
    place.prop_flat_map(|(kind, namespace, name)| edit_of(kind, ObjectKey::new(namespace, name)))
}

fn edit_of(kind: &'static str, key: ObjectKey) -> impl Strategy<Value = Edit> {
    (labels(), proptest::option::weighted(0.8, spec(kind))).prop_map(move |(labels, spec)| Edit {
        kind,
        key: key.clone(),
        labels,
        spec,
    })
}

/// Objects of every kind and name, of which some are missing.
pub fn population() -> impl Strategy<Value = Vec<Edit>> {
    let mut all = Vec::new();
    for kind in KINDS {
        for namespace in NAMESPACES {
            for name in NAMES {
                all.push(edit_of(kind, ObjectKey::new(namespace, name)));
            }
        }
    }
    all
}

/// A world after some edits, in which references may cross namespaces or not.
pub fn edited(edits: &[Edit], crosses: bool) -> World {
    let mut world = World::default();
    world.rules.crosses_namespaces = crosses;
    for edit in edits {
        edit.apply(&mut world);
    }
    world
}
