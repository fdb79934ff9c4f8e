//! What a tenant names is read with the tenant's rights, and what is the tenant's own serves that tenant alone.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

use anyhow::Result;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::{ClusterRenderTask, RenderTask};
use renderhub_harness::finish::{self, Exit, Outcome};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};
use support::tenant::{BUILDER, OWN, account};
use support::{CANARY, EVERYWHERE, LIMIT, OWN_HOSTS, Stage, has, job_name_of, message_of};

trait Tenants: Sized {
    /// A stage whose tenant has everything of its own.
    async fn with_tenant(prefix: &str, flags: &[&str], verb: &str) -> Result<Self>;
    /// Waits until the task is refused for the reason; the message.
    async fn refused(&self, task: &RenderTask, reason: &str) -> Result<String>;
    /// Runs the task to its success and reads its config Secret on the way.
    async fn serves(&self, task: &RenderTask) -> Result<Secret>;
}

impl Tenants for Stage {
    async fn with_tenant(prefix: &str, flags: &[&str], verb: &str) -> Result<Self> {
        let stage = Self::with_flags(prefix, flags).await?;
        stage.make_builder(verb).await?;
        stage.make_own_secret(&stage.scope.tenant, "own-push").await?;
        stage.make_own_registry(&stage.scope.tenant, "mine").await?;
        Ok(stage)
    }

    async fn refused(&self, task: &RenderTask, reason: &str) -> Result<String> {
        let status = self.condition(task, JobScheduled, "False", reason).await?;
        assert_eq!(self.objects(task).await?, (false, false), "nothing is made");
        Ok(message_of(&status, JobScheduled).to_owned())
    }

    async fn serves(&self, task: &RenderTask) -> Result<Secret> {
        self.job_of(task).await?;
        let secret = self.secrets().get(&job_name_of(task)).await?;
        self.succeeds(task).await?;
        Ok(secret)
    }
}

/// Holds: C7, E5.
#[tokio::test]
async fn a_tenants_own_registry_is_read_as_its_service_account() -> Result<()> {
    let stage = Stage::with_tenant("own", &[], "create").await?;
    for task in [
        stage
            .submit_for_registry("by-registry", json!({"name": "mine"}))
            .await?,
        stage.submit_for_host("by-host", "own-push").await?,
    ] {
        let secret = stage.serves(&task).await?;
        let metadata = serde_json::to_string(&secret.metadata)?;
        assert!(!metadata.contains(OWN), "annotations are not copied: {metadata}");
        let data = secret.data.unwrap_or_default();
        assert_eq!(data["password"].0, OWN.as_bytes());
        let status = stage.tasks().get(&task.name_any()).await?.status;
        let url = status.and_then(|s| s.chart_url).unwrap_or_default();
        assert!(url.starts_with("oci://registry.mine:5000/"), "{url}");
    }
    let account = account(&stage.scope.tenant, BUILDER);
    let read = stage.requests_of(&account, &stage.scope.tenant).await?;
    let mut read: Vec<_> = read
        .iter()
        .map(|e| format!("{} {}", e.action(), e.name))
        .collect();
    read.sort();
    assert_eq!(
        read,
        [
            "get registries mine",
            "get secrets own-push",
            "get secrets own-push"
        ]
    );
    stage.hub_read_nothing_itself(&stage.scope.tenant).await?;
    let left = stage.secrets().list(&ListParams::default()).await?;
    let kept = serde_json::to_string(&left.items)?;
    assert!(!kept.contains("b3duLXBhc3N3b3Jk"), "the copy went with its task");
    stage.passed();
    Ok(())
}

/// Holds: B25.
#[tokio::test]
async fn a_registry_of_the_tenants_own_is_used_where_the_platform_lists_its_host() -> Result<()> {
    let listed = format!("{OWN_HOSTS}=registry.mine:5000,*.listed.test");
    let stage = Stage::with_tenant("hosts", &[&listed], "create").await?;
    let other = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "Registry",
        "metadata": {"name": "other", "namespace": stage.scope.tenant},
        "spec": {"hostname": "registry.other:5000"}});
    apply::object(&stage.admin, other).await?;
    for (name, spec) in [
        (
            "port",
            json!({"registryRef": null, "baseURL": "registry.mine:6443"}),
        ),
        ("address", json!({"registryRef": null, "baseURL": "10.0.0.1"})),
        ("below", json!({"registryRef": null, "baseURL": "listed.test"})),
        (
            "registry",
            json!({"registryRef": {"kind": "Registry", "name": "other"}, "serviceAccountName": BUILDER}),
        ),
    ] {
        let host = spec["baseURL"]
            .as_str()
            .unwrap_or("registry.other:5000")
            .to_owned();
        let task = stage.submit_with(name, spec).await?;
        let message = stage.refused(&task, "RegistryNotAllowed").await?;
        assert!(message.contains(&format!("push to {host} by")), "{message}");
        assert!(message.contains("platform operator"), "{message}");
    }
    let spec = json!({"registryRef": null, "baseURL": "a.listed.test"});
    for task in [
        stage.submit_with("anonymous", spec).await?,
        stage
            .submit_for_registry("listed", json!({"name": "mine"}))
            .await?,
    ] {
        stage.serves(&task).await?;
    }
    stage.passed();
    Ok(())
}

/// What a task's failure shows of a host: everything that is not a time or a name of its own.
async fn shown(stage: &Stage, name: &str, spec: Value, exit: Exit) -> Result<Value> {
    let task = stage.submit_with(name, spec).await?;
    let job = stage.job_of(&task).await?;
    finish::end_job(
        &stage.admin,
        &job,
        &Outcome::Failed("BackoffLimitExceeded".to_owned(), exit),
    )
    .await?;
    let status = stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    let conditions = status
        .conditions
        .iter()
        .map(|c| (&c.type_, &c.reason, &c.message));
    Ok(
        json!({"failure": status.failure, "attempts": status.attempts, "conditions": conditions.collect::<Vec<_>>()}),
    )
}

/// Holds: B26.
#[tokio::test]
async fn a_failure_does_not_tell_whether_a_host_that_the_tenant_chose_is_there() -> Result<()> {
    let stage = Stage::with_tenant("oracle", &[], "create").await?;
    let host = || json!({"registryRef": null, "baseURL": "registry.mine:5000"});
    let push = |code, reason: &str, more: &str| {
        let word = format!(r#"{{"phase":"Push","reason":"{reason}"{more}}}"#);
        Exit::new("renderer", code, word)
    };
    let silent = shown(&stage, "silent", host(), push(1, "RegistryUnreachable", "")).await?;
    assert!(
        silent["failure"].to_string().contains("cannot be reached, or"),
        "{silent}"
    );
    for (number, exit) in [
        push(2, "CredentialRequired", ""),
        push(1, "RegistryRefused", ""),
        push(2, "RedirectRefused", ""),
        push(2, "Unauthorized", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = shown(&stage, &format!("answers-{number}"), host(), exit).await?;
        assert_eq!(answer, silent);
    }
    let own = json!({"registryRef": null, "baseURL": "registry.mine:5000", "pushSecretRef": {"name": "own-push"},
        "serviceAccountName": BUILDER});
    let sent = push(2, "Unauthorized", r#","credentialSent":true"#);
    let answer = shown(&stage, "sent", own, sent).await?;
    assert!(
        answer["failure"]
            .to_string()
            .contains("does not accept the push credential"),
        "{answer}"
    );
    let platforms = shown(&stage, "platform", json!({}), push(1, "RegistryUnreachable", "")).await?;
    assert!(
        platforms["failure"]
            .to_string()
            .contains("the registry cannot be reached\""),
        "{platforms}"
    );
    stage.passed();
    Ok(())
}

/// Holds: C1, T9.
#[tokio::test]
async fn the_platforms_secrets_cannot_be_named() -> Result<()> {
    let stage = Stage::with_tenant("platforms", &[], "create").await?;
    stage.make_push_secret("platform-only").await?;
    let mut messages = std::collections::BTreeSet::new();
    for (number, name) in [
        "push",
        "platform-only",
        "nowhere",
        "renderhub-seal",
        "default-token",
    ]
    .into_iter()
    .enumerate()
    {
        for (host_number, host) in ["registry.test:5000", "registry.evil", "good.evil:443"]
            .iter()
            .enumerate()
        {
            let spec = json!({"registryRef": null, "baseURL": host, "pushSecretRef": {"name": name},
                "serviceAccountName": BUILDER});
            let task = stage
                .submit_with(&format!("steal-{number}-{host_number}"), spec)
                .await?;
            let message = stage.refused(&task, "PushSecretNotFound").await?;
            assert!(message.contains(&format!("Secret \"{name}\"")), "{message}");
            messages.insert(message.replace(&format!("\"{name}\""), "NAME"));
        }
    }
    assert_eq!(
        messages.len(),
        1,
        "what exists and what does not reads the same: {messages:?}"
    );
    let made = stage.requests().await?;
    let made: Vec<_> = made
        .iter()
        .filter(|e| e.action() == "create jobs" || e.action() == "create secrets")
        .collect();
    assert!(made.iter().all(|e| e.name == "renderhub-seal"), "{made:?}");
    stage.hub_read_nothing_itself(&stage.scope.tenant).await?;
    let said = stage.everything_said().await?;
    assert!(!said.contains(CANARY) && !said.contains(OWN));
    stage.passed();
    Ok(())
}

/// Holds: I3.
#[tokio::test]
async fn without_an_identity_nothing_is_read_and_nothing_is_made() -> Result<()> {
    let stage = Stage::with_tenant("nobody", &[], "create").await?;
    // Some of what is asked for here is to be refused.
    stage.allow_forbidden();
    stage.make_account(&stage.scope.tenant, "no-rights").await?;
    stage
        .let_hub_become(&stage.scope.tenant, "no-rights", "create")
        .await?;
    stage.make_account(&stage.scope.tenant, "not-granted").await?;
    stage
        .let_hub_become(&stage.scope.tenant, "deleted", "create")
        .await?;
    let table = [
        (json!(null), "serviceAccountName is missing"),
        (json!("deleted"), "does not exist, or the hub may not act as it"),
        (
            json!("not-granted"),
            "does not exist, or the hub may not act as it",
        ),
        (json!("no-rights"), "may not get the Registry"),
    ];
    for (number, (account, part)) in table.into_iter().enumerate() {
        let spec =
            json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": account});
        let task = stage.submit_with(&format!("task-{number}"), spec).await?;
        let message = stage.refused(&task, "RBACDenied").await?;
        assert!(message.contains(part), "{account}: {message}");
    }
    // Also where nothing would be read as it: the platform's registry, and a host without a Secret.
    for account in ["deleted", "not-granted"] {
        for (kind, mut spec) in [
            ("platforms", json!({})),
            (
                "host",
                json!({"registryRef": null, "baseURL": "registry.test:5000"}),
            ),
        ] {
            spec["serviceAccountName"] = json!(account);
            let task = stage.submit_with(&format!("{kind}-{account}"), spec).await?;
            let message = stage.refused(&task, "RBACDenied").await?;
            assert!(
                message.contains("does not exist, or the hub may not act as it"),
                "{message}"
            );
        }
    }
    stage.hub_read_nothing_itself(&stage.scope.tenant).await?;
    // The schema takes no empty name; if it did, it would still be no account.
    for name in ["", " ", "x:y"] {
        let spec = json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": name});
        assert!(stage.submit_with("empty", spec).await.is_err(), "{name:?}");
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_task_starts_by_itself_once_the_tenant_has_mended_what_was_missing() -> Result<()> {
    let stage = Stage::new("mended").await?;
    // Some of what is asked for here is to be refused.
    stage.allow_forbidden();
    let tenant = stage.scope.tenant.clone();
    let task = stage.submit_for_registry("shop", json!({"name": "mine"})).await?;
    stage.refused(&task, "RBACDenied").await?;
    stage.make_builder("create").await?;
    stage.refused(&task, "RegistryNotFound").await?;
    stage.make_own_registry(&tenant, "mine").await?;
    stage.refused(&task, "PushSecretNotFound").await?;
    stage.make_own_secret(&tenant, "own-push").await?;
    stage.serves(&task).await?;
    stage.passed();
    Ok(())
}

/// Holds: I6.
#[tokio::test]
async fn one_token_serves_many_tasks_and_a_recreated_account_costs_exactly_one_more() -> Result<()> {
    let stage = Stage::with_tenant("tokens", &[], "create").await?;
    let submit =
        |prefix: &'static str| {
            let stage = &stage;
            futures::future::try_join_all((0..12).map(move |n| async move {
                stage.submit_for_host(&format!("{prefix}-{n}"), "own-push").await
            }))
        };
    for task in submit("first").await? {
        stage.job_of(&task).await?;
    }
    assert_eq!(
        stage.tokens_of(BUILDER).await?,
        1,
        "whoever comes while one is asked for waits for it"
    );
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    accounts.delete(BUILDER, &DeleteParams::default()).await?;
    stage.make_account(&stage.scope.tenant, BUILDER).await?;
    // The API server remembers tokens that it knew for some seconds.
    wait_for("a token of the new account", LIMIT, async || {
        for task in submit("more").await? {
            stage.job_of(&task).await?;
            stage.delete(&task).await?;
        }
        Ok((stage.tokens_of(BUILDER).await? > 1).then_some(()))
    })
    .await?;
    for task in submit("last").await? {
        stage.job_of(&task).await?;
    }
    assert_eq!(
        stage.tokens_of(BUILDER).await?,
        2,
        "one more, however many tasks met the refusal"
    );
    stage.passed();
    Ok(())
}

/// Holds: I2.
#[tokio::test]
async fn impersonation_shows_one_user_and_nothing_else() -> Result<()> {
    let stage = Stage::with_tenant("impersonate", &["--tenant-identity=impersonate"], "impersonate").await?;
    // Some of what is asked for here is to be refused.
    stage.allow_forbidden();
    let task = stage.submit_for_registry("shop", json!({"name": "mine"})).await?;
    stage.serves(&task).await?;
    let account = account(&stage.scope.tenant, BUILDER);
    let all = stage
        .plane
        .audit()?
        .since(renderhub_harness::audit::Mark::START)
        .await?;
    let borrowed: Vec<_> = all
        .iter()
        .filter(|e| e.user == stage.hub_user.name() && e.impersonated_user.is_some())
        .collect();
    assert_eq!(borrowed.len(), 2, "{borrowed:?}");
    for event in borrowed {
        assert_eq!(event.impersonated_user.as_deref(), Some(account.as_str()));
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", stage.scope.tenant),
            "system:authenticated".to_owned(),
        ];
        assert_eq!(
            event.impersonated_groups, groups,
            "the API server's own, and no other"
        );
    }
    assert_eq!(stage.tokens_of(BUILDER).await?, 0);
    let other = stage
        .submit_with(
            "other",
            json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": "default"}),
        )
        .await?;
    stage.refused(&other, "RBACDenied").await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_default_account_fills_the_blank_and_one_that_is_named_wins() -> Result<()> {
    let flag = format!("--default-service-account={BUILDER}");
    let stage = Stage::with_tenant("default", &[&flag], "create").await?;
    // Some of what is asked for here is to be refused.
    stage.allow_forbidden();
    let own = |account: Value| json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": account});
    let task = stage.submit_with("blank", own(json!(null))).await?;
    stage.serves(&task).await?;
    let named = stage.submit_with("named", own(json!("somebody-else"))).await?;
    stage.refused(&named, "RBACDenied").await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn where_one_team_owns_the_cluster_the_hub_reads_as_itself_unless_an_account_is_named() -> Result<()> {
    let stage = Stage::with_tenant("single", &["--single-tenant"], "create").await?;
    stage.let_hub_read_tenants().await?;
    let own = |account: Value| json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": account});
    let task = stage.submit_with("as-hub", own(json!(null))).await?;
    stage.serves(&task).await?;
    let as_hub = stage
        .requests_of(stage.hub_user.name(), &stage.scope.tenant)
        .await?;
    assert!(
        as_hub
            .iter()
            .any(|e| e.action() == "get secrets" && e.name == "own-push")
    );
    let before = as_hub.iter().filter(|e| e.action() == "get secrets").count();
    let task = stage.submit_with("as-account", own(json!(BUILDER))).await?;
    stage.serves(&task).await?;
    let after = stage
        .requests_of(stage.hub_user.name(), &stage.scope.tenant)
        .await?;
    assert_eq!(
        after.iter().filter(|e| e.action() == "get secrets").count(),
        before
    );
    stage.passed();
    Ok(())
}

trait Grants {
    /// Gives the hub what single-tenant mode gives it, as far as these tests need it.
    async fn let_hub_read_tenants(&self) -> Result<()>;
    async fn grant_to(&self, from: &str, to: &str) -> Result<()>;
}

impl Grants for Stage {
    async fn let_hub_read_tenants(&self) -> Result<()> {
        let right = json!({"apiGroups": ["", "renderhub.dev"], "resources": ["secrets", "registries"], "verbs": ["get"]});
        self.bind(&self.scope.tenant, "hub-reads", &right, &self.hub_subject())
            .await
    }

    async fn grant_to(&self, from: &str, to: &str) -> Result<()> {
        let grant = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "ReferenceGrant",
            "metadata": {"name": "from-others", "namespace": to}, "spec": {
                "from": [{"group": "renderhub.dev", "kind": "RenderTask", "namespace": from}],
                "to": [{"group": "renderhub.dev", "kind": "Registry"}]}});
        apply::object(&self.admin, grant).await?;
        Ok(())
    }
}

/// Holds: T9.
#[tokio::test]
async fn a_reference_to_another_namespace_needs_a_grant_and_tells_nothing() -> Result<()> {
    let mut stage = Stage::without_hub("grants", &["--no-cross-namespace-refs=false"]).await?;
    let other = stage.plane.namespace("owner").await?;
    stage.also_watch(&other).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.make_builder("create").await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_own_registry(&other, "shared").await?;
    stage.make_own_secret(&other, "own-push").await?;
    let shared = json!({"name": "shared", "namespace": other});
    // Everything that can be missing, one after the other, and what exists: no tenant can distinguish them.
    let mut messages = std::collections::BTreeSet::new();
    let task = stage.submit_for_registry("shop", shared.clone()).await?;
    messages.insert(stage.refused(&task, "CrossNamespaceRefDenied").await?);
    let absent = stage
        .submit_for_registry("absent", json!({"name": "absent", "namespace": other}))
        .await?;
    messages.insert(stage.refused(&absent, "CrossNamespaceRefDenied").await?);
    let nowhere = stage
        .submit_for_registry("nowhere", json!({"name": "shared", "namespace": "no-such"}))
        .await?;
    messages.insert(stage.refused(&nowhere, "CrossNamespaceRefDenied").await?);
    stage.grant_to(&tenant, &other).await?;
    let granted = stage
        .submit_for_registry("granted", json!({"name": "absent", "namespace": other}))
        .await?;
    messages.insert(stage.refused(&granted, "CrossNamespaceRefDenied").await?);
    assert_eq!(messages.len(), 1, "{messages:?}");
    stage
        .let_read(&tenant, &other, BUILDER, &["secrets", "registries"])
        .await?;
    let secret = stage.serves(&task).await?;
    assert_eq!(secret.data.unwrap_or_default()["password"].0, OWN.as_bytes());
    stage.hub_read_nothing_itself(&other).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_grant_wakes_its_tasks_and_its_end_leaves_running_jobs_alone() -> Result<()> {
    let mut stage = Stage::without_hub("wakes", &["--no-cross-namespace-refs=false"]).await?;
    let other = stage.plane.namespace("owner").await?;
    stage.also_watch(&other).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.make_builder("create").await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_own_registry(&other, "shared").await?;
    stage.make_own_secret(&other, "own-push").await?;
    stage
        .let_read(&tenant, &other, BUILDER, &["secrets", "registries"])
        .await?;
    let shared = json!({"name": "shared", "namespace": other});
    let task = stage.submit_for_registry("shop", shared.clone()).await?;
    stage.refused(&task, "CrossNamespaceRefDenied").await?;
    // By now the task is not retried for longer than the grant may take.
    stage
        .refused_for(&task, std::time::Duration::from_secs(12))
        .await?;
    stage.grant_to(&tenant, &other).await?;
    wait_for("the grant to start the task", LIMIT, async || {
        Ok(stage.objects(&task).await?.0.then_some(()))
    })
    .await?;
    let grants = Api::<kube::api::DynamicObject>::namespaced_with(
        stage.admin.clone(),
        &other,
        &support::record::raw::<renderhub::api::ReferenceGrant>(),
    );
    grants.delete("from-others", &DeleteParams::default()).await?;
    wait_for("the end of the grant to be heard", LIMIT, async || {
        let next = stage.submit_for_registry("next", shared.clone()).await?;
        let status = stage
            .status_when(&next, "the next task to be decided", |s| !s.conditions.is_empty())
            .await?;
        if has(&status, JobScheduled, "False", "CrossNamespaceRefDenied") {
            return Ok(Some(()));
        }
        stage.delete(&next).await?;
        Ok(None)
    })
    .await?;
    stage.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}

trait Waits {
    /// Waits until the task has been refused for so long.
    async fn refused_for(&self, task: &RenderTask, time: std::time::Duration) -> Result<()>;
}

impl Waits for Stage {
    async fn refused_for(&self, task: &RenderTask, time: std::time::Duration) -> Result<()> {
        let since = std::time::Instant::now();
        wait_for("the task to be refused for a while", LIMIT, async || {
            let status = self
                .tasks()
                .get(&task.name_any())
                .await?
                .status
                .unwrap_or_default();
            assert!(has(&status, JobScheduled, "False", "CrossNamespaceRefDenied"));
            Ok((since.elapsed() >= time).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn by_default_no_reference_leaves_its_namespace() -> Result<()> {
    let stage = Stage::with_tenant("stay", &[], "create").await?;
    let other = stage.plane.namespace("owner").await?;
    stage.make_own_registry(&other, "shared").await?;
    stage.grant_to(&stage.scope.tenant, &other).await?;
    let task = stage
        .submit_for_registry("shop", json!({"name": "shared", "namespace": other}))
        .await?;
    stage.refused(&task, "CrossNamespaceRefDenied").await?;
    let same = json!({"name": "mine", "namespace": stage.scope.tenant});
    let task = stage.submit_for_registry("same", same).await?;
    stage.serves(&task).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn the_platforms_own_tasks_name_secrets_of_the_rendering_namespace() -> Result<()> {
    let stage = Stage::on(
        support::plane::own_plane(&["crds"]).await?,
        "platform",
        &[EVERYWHERE],
    )
    .await?;
    let mut stage = stage;
    stage.make_push_secret("solar-push").await?;
    stage.start_hub().await?;
    let tasks: Api<ClusterRenderTask> = Api::all(stage.admin.clone());
    for (name, secret) in [("good", "solar-push"), ("missing", "no-such")] {
        let mut task = stage.task(name);
        task["kind"] = json!("ClusterRenderTask");
        task["metadata"] = json!({"name": name});
        let fields = task["spec"].as_object_mut().expect("an object");
        fields.remove("registryRef");
        fields.insert("baseURL".to_owned(), json!("registry.solar:5000"));
        fields.insert("pushSecretRef".to_owned(), json!({"name": secret}));
        tasks
            .create(&PostParams::default(), &serde_json::from_value(task)?)
            .await?;
    }
    let reason_of = async |name: &str| -> Result<Option<String>> {
        let status = tasks.get(name).await?.status.unwrap_or_default();
        Ok(status
            .conditions
            .into_iter()
            .find(|c| c.type_ == "JobScheduled")
            .map(|c| c.reason))
    };
    wait_for("both to be decided", LIMIT, async || {
        let both = (reason_of("good").await?, reason_of("missing").await?);
        Ok((both
            == (
                Some("JobScheduled".to_owned()),
                Some("PushSecretNotFound".to_owned()),
            ))
            .then_some(()))
    })
    .await?;
    let jobs = stage.jobs().list(&ListParams::default()).await?;
    let job = serde_json::to_string(&jobs.items)?;
    assert!(
        job.contains("\"secretName\":\"solar-push\""),
        "it is mounted in place"
    );
    stage.passed();
    Ok(())
}
