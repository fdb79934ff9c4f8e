//! What tenants and platforms may write, the worst of it included.

use super::*;

pub(super) fn catalogs() -> impl Strategy<Value = Catalog> {
    let credential = prop_oneof![Just(basic()), Just(docker()), Just(CredentialState::Anonymous)];
    (any::<[bool; 6]>(), credential).prop_map(|([single, plain, ca, class_ca, realm, pull], credential)| {
        let mut class = json!({"mode": if single { "Single" } else { "Split" }});
        let mut registry = json!({"allowedNamespaces": ["*"], "plainHTTP": plain});
        if class_ca {
            class["caConfigMapName"] = json!("class-trust");
        }
        if pull {
            class["imagePullSecrets"] = json!([{"name": "pull"}]);
        }
        if ca {
            registry["caConfigMapRef"] = json!({"name": "trust", "key": "root.pem"});
        }
        if realm {
            registry["tokenRealm"] = json!("https://auth.test/token");
        }
        offering(class, registry, credential)
    })
}

/// Text that tries to be something else: a flag, a variable, a path, a template, another object's name, another line.
fn hostile_text() -> impl Strategy<Value = String> {
    let words = [
        "--x",
        "--plain-http",
        "--url=oci://evil.test/a:1",
        "-",
        "$(REGISTRY_PASSWORD)",
        "$REGISTRY_PASSWORD",
        "`id`",
        BOUND,
        "pull",
        "trust",
        "main",
        "std",
        "../../etc/passwd",
        "/etc/renderer/credentials/password",
        "team-a/../team-b",
        "{namespace}",
        "{{ .Values }}",
        "a\nb: c",
        "\"},\"x\":{\"",
        "evil.test/x",
        "x@sha256:0",
        "ünï/cödé:1",
        "\u{202e}oci",
        "\0",
        "kube-system",
        "*",
        "",
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(str::to_owned),
        2 => ".{0,40}",
        1 => (1_usize..9_000).prop_map(|length| "x".repeat(length)),
    ]
}

/// Any JSON that a tenant may write.
fn free_form() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        hostile_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(hostile_text(), inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

prop_compose! {
    /// A task's metadata as some tenant may write it, as far as the API server lets it.
    fn metadata()(
        namespace in "[a-z]([a-z0-9-]{0,61}[a-z0-9])?",
        name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        uid in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
        marks in prop::collection::btree_map("renderhub.dev/(hub-id|task-uid|spec-hash)|[a-z]{1,9}", hostile_text(), 0..4),
    ) -> Value {
        json!({
            "name": name, "namespace": namespace, "uid": uid, "resourceVersion": "7", "generation": 1,
            "creationTimestamp": at(0).to_string(), "labels": marks, "annotations": marks,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": uid}],
        })
    }
}

fn task_with(metadata: Value, spec: Value) -> Task {
    let metadata = serde_json::from_value(metadata).unwrap();
    Task::new(TaskKind::RenderTask, &metadata, spec, Value::Null).unwrap()
}

prop_compose! {
    /// A task that can be served, with all that a tenant is free to choose.
    pub(super) fn tenants_task()(
        metadata in metadata(),
        path in prop::collection::vec("[a-z0-9]{1,9}", 1..4),
        tag in "[A-Za-z0-9_][A-Za-z0-9._-]{0,30}",
        values in free_form(),
        ttl in prop::option::of(0..604_800_i32),
        after in prop::option::of(0..604_800_i32),
        owner in prop::option::of("[a-z]{1,9}"),
    ) -> Task {
        let namespace = metadata["namespace"].as_str().unwrap();
        let mut spec = spec_with(json!({
            "config": {"type": "slides", "deck": values},
            "repository": format!("{namespace}/{}", path.join("/")),
            "tag": tag,
        }));
        if let Some(ttl) = ttl {
            spec["failedJobTTL"] = json!(ttl);
        }
        if let Some(after) = after {
            spec["ttlSecondsAfterFinished"] = json!(after);
        }
        if let Some(owner) = owner {
            spec["owner"] = json!({"kind": "Release", "name": owner});
        }
        task_with(metadata, spec)
    }
}

prop_compose! {
    /// A registry of a tenant's own, as no schema would let it through.
    pub(super) fn own_registry()(
        hostname in "[a-zA-Z]{1,9}\\.(test|evil\\.test)(:[1-9][0-9]{0,3})?",
        plain in prop::option::of(any::<bool>()),
        realm in prop::option::of(hostile_text()),
        secret in prop::option::of(hostile_text()),
        has_prefix in any::<bool>(),
        has_login in any::<bool>(),
        certificates in prop::option::of(hostile_text()),
    ) -> TenantDestination {
        let mut spec = json!({"hostname": hostname});
        for (key, value) in [("plainHTTP", json!(plain)), ("tokenRealm", json!(realm))] {
            if !value.is_null() {
                spec[key] = value;
            }
        }
        if has_prefix {
            spec["repositoryPrefix"] = json!("{namespace}/");
        }
        if let Some(name) = secret {
            spec["pushSecretRef"] = json!({"name": name});
        }
        let login = || TenantCredential {
            credential: basic_auth::pair("me", "secret").unwrap(),
            version: "u/1".to_owned(),
        };
        TenantDestination {
            spec: serde_json::from_value(spec).unwrap(),
            access: if has_login { PushAccess::Copied(login()) } else { PushAccess::Anonymous },
            certificates,
        }
    }
}

/// Every field of a task's spec that holds text, as a path.
const FIELDS: [&str; 16] = [
    "/repository",
    "/tag",
    "/registryRef/name",
    "/registryRef/kind",
    "/rendererClassName",
    "/serviceAccountName",
    "/baseURL",
    "/pushSecretRef",
    "/clusterName",
    "/kubeConfig",
    "/deploymentNamespace",
    "/owner",
    "/config/type",
    "/config/release/chart/name",
    "/config/release/chart/version",
    "/config/release/values",
];

prop_compose! {
    /// A task that can be served until one of its fields is replaced by what may not even fit the schema.
    pub(super) fn one_hostile_field()(
        metadata in metadata(),
        field in prop::sample::select(FIELDS.to_vec()),
        value in prop_oneof![4 => hostile_text().prop_map(Value::from), 1 => free_form()],
    ) -> Task {
        let namespace = metadata["namespace"].as_str().unwrap();
        let mut spec = spec_with(json!({"repository": format!("{namespace}/shop")}));
        let (parent, key) = field.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[key] = match key {
            "pushSecretRef" => json!({"name": value}),
            "kubeConfig" => json!({"secretRef": {"name": value}}),
            "owner" => json!({"kind": value, "name": value, "namespace": value}),
            _ => value,
        };
        task_with(metadata, spec)
    }
}
