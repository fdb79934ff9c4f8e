//! A renderer that the tenant controls gains nothing: on a real node, with the hub as the chart installs it, an image whose
//! `render` does whatever the tenant's configuration says finds no credential, has no right, and harms no other pod.
//!
//! All tests share one world and run side by side, so each is a neighbour of the others.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "hostile_pod/sweep.rs"]
mod sweep;
#[path = "hostile_pod/world.rs"]
mod world;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use renderhub_harness::reach::everything;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use sweep::{Subject, rights};
use world::{CLOUD_CREDENTIAL, HUB, LIMIT, METADATA, RENDERING, TENANT, files, world};

const PASSWORD: &str = "/etc/renderer/credentials/password";
/// Each of these at the start of a line would be a way out, or to another pod's files.
const GAINED: [&str; 6] = ["MADE ", "MOUNTED", "WROTE ", "BECAME ", "CHANGED ", "ENTERED"];

/// Holds: R1, R3.
#[tokio::test]
async fn a_hostile_renderer_reads_everything_and_finds_no_credential() -> Result<()> {
    let world = world().await?;
    world
        .submit("everything", "hostile", "everything", json!({}))
        .await?;
    world.submit("looked", "hostile", "look", json!({})).await?;
    let failed = world.end("looked").await?;
    assert_eq!(failed.0, "JobFailed");
    ensure!(
        !failed.1.contains("FILE"),
        "a pod's words are in the task: {}",
        failed.1
    );
    let read = world.log("looked").await?;
    for seen in [
        "FILE /etc/renderer/config.json",
        r#""mode":"look""#,
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        ensure!(read.contains(seen), "it has not looked: {seen}\n{read}");
    }
    for gained in GAINED {
        ensure!(!has_line(&read, gained), "{gained}\n{read}");
    }
    // Kubernetes gives every pod the address of its API, and the Job its configuration; there are no other variables.
    for variable in ["RENDERHUB_", "REGISTRY_", "DOCKER_CONFIG"] {
        let is_it = |line: &str| line.starts_with(variable) && !line.starts_with("RENDERHUB_CONFIG_SHA256=");
        ensure!(!read.lines().any(is_it), "{variable} is in its environment");
    }
    // The pusher pushed what it was given, which was all that the other half could find.
    let pushed = world.end("everything").await?;
    assert_eq!(pushed.0, "JobSucceeded", "{}", pushed.1);
    let loot = std::fs::read_to_string(world.pulled("everything").await?.join("loot.txt"))?;
    ensure!(
        loot.contains("FILE /etc/renderer/config.json"),
        "the chart has no loot"
    );
    let canaries = world.canaries();
    ensure!(
        !canaries.show_in(&read) && !canaries.show_in(&loot),
        "it found the credential"
    );
    // Nor does anything that a tenant may read hold it, nor what the cluster knows of its pods.
    let tenant = world.plane.tenant(TENANT).await?.client().await?;
    let readable = wait_for("all kinds to be served", LIMIT, async || {
        Ok(Some(everything(&tenant, Some(TENANT)).await?))
    })
    .await?;
    ensure!(
        readable.contains("everything"),
        "the scan does not see the tenant's own tasks"
    );
    ensure!(!canaries.show_in(&readable), "a tenant can read the credential");
    let said = serde_json::to_string(&world.pods("looked").await?)?;
    ensure!(
        said.contains("terminated") && !canaries.show_in(&said),
        "a pod says the credential"
    );
    Ok(())
}

/// Holds: R1.
#[tokio::test]
async fn what_is_put_in_place_of_the_chart_is_not_followed() -> Result<()> {
    let world = world().await?;
    let (not_a_chart, too_large) = (
        "the chart archive is missing or not a chart",
        "the configuration or the chart is too large",
    );
    let at = |target: &str| json!({ "target": target });
    let table = [
        ("link-password", "link", at(PASSWORD), not_a_chart),
        (
            "link-username",
            "link",
            at("/etc/renderer/credentials/username"),
            not_a_chart,
        ),
        ("link-zero", "link", at("/dev/zero"), not_a_chart),
        ("link-environ", "link", at("/proc/self/environ"), not_a_chart),
        ("link-loop", "link", at("/chart/chart.tgz"), not_a_chart),
        // A chart that would be taken, by a name that is a link to it.
        ("link-chart", "linkchart", json!({}), not_a_chart),
        ("hardlink", "hardlink", at(PASSWORD), not_a_chart),
        ("link-inside", "linkinside", at(PASSWORD), not_a_chart),
        ("pipe", "pipe", json!({}), not_a_chart),
        ("directory", "directory", json!({}), not_a_chart),
        ("nothing", "nothing", json!({}), not_a_chart),
        ("garbage", "garbage", json!({}), not_a_chart),
        ("zeros", "zeros", json!({}), not_a_chart),
        ("sparse", "sparse", json!({}), too_large),
        (
            "lie",
            "lie",
            json!({}),
            "the renderer's pod ended without saying why, as when it was killed or its image is not a renderer; ask the platform operator to look at the pod",
        ),
    ];
    for (name, mode, more, _) in &table {
        world.submit(name, "hostile", mode, more.clone()).await?;
    }
    for (name, _, _, said) in table {
        let ended = world.end(name).await?;
        assert_eq!(ended, ("JobFailed".to_owned(), said.to_owned()), "{name}");
    }
    let log = world.log("hardlink").await?;
    ensure!(!log.contains("LINKED"), "{log}");
    Ok(())
}

/// Holds: R1.
#[tokio::test]
async fn a_process_that_outlives_its_container_cannot_change_the_chart() -> Result<()> {
    let world = world().await?;
    world.submit("linger", "hostile", "linger", json!({})).await?;
    let (ended, message) = world.end("linger").await?;
    assert_eq!(ended, "JobSucceeded", "{message}");
    let loot = std::fs::read_to_string(world.pulled("linger").await?.join("loot.txt"))?;
    assert_eq!(loot, "first\n");
    Ok(())
}

/// Holds: R4.
#[tokio::test]
async fn a_pod_reaches_its_registry_and_nothing_else() -> Result<()> {
    let world = world().await?;
    let services: Api<Service> = Api::namespaced(world.admin().await?, "default");
    let service = services
        .get("kubernetes")
        .await?
        .spec
        .and_then(|spec| spec.cluster_ip);
    let service = service.context("the API server has no Service")?;
    let targets = [
        (
            "apiserver",
            format!("{}:{}", world.plane.address(), world.plane.port()),
        ),
        ("service", format!("{service}:443")),
        ("kubelet", format!("{}:10250", world.node.address())),
        ("neighbour", world.neighbour.clone()),
        ("sibling", world.sibling().await?),
        ("metadata", format!("{METADATA}:80")),
        ("registry", world.registry.host()),
    ];
    let list: Vec<String> = targets.iter().map(|(name, at)| format!("{name}={at}")).collect();
    let more = json!({"targets": list.join(","), "metadata": METADATA});
    // The containers of a pod share its network; each tries on its own.
    for (name, class) in [("connect-render", "hostile"), ("connect-push", "foreign-hostile")] {
        world.submit(name, class, "connect", more.clone()).await?;
    }
    for name in ["connect-render", "connect-push"] {
        assert_eq!(world.end(name).await?.0, "JobFailed");
        let log = world.log(name).await?;
        for (target, _) in &targets {
            let answer = if *target == "registry" {
                "reached"
            } else {
                "refused"
            };
            ensure!(
                log.contains(&format!("CONNECT {target} {answer}\n")),
                "{name}: {target}: {log}"
            );
        }
        ensure!(
            log.contains("CONNECT done") && !log.contains(CLOUD_CREDENTIAL),
            "{name}: {log}"
        );
    }
    // The same targets answer a pod without a policy, so it was the policy that refused.
    let free = world.reached_without_a_policy(&targets)?;
    for (target, _) in targets.iter().filter(|(target, _)| *target != "sibling") {
        ensure!(
            free.contains(&format!("CONNECT {target} reached\n")),
            "{target}: {free}"
        );
    }
    ensure!(
        free.contains(CLOUD_CREDENTIAL),
        "the stand-in for the metadata service hands out nothing: {free}"
    );
    Ok(())
}

/// Where nothing enforces the policy, what a pod can present, which is nothing, opens neither API.
///
/// Holds: R4.
#[tokio::test]
async fn who_has_no_token_gets_nothing_from_the_api_server() -> Result<()> {
    let world = world().await?;
    let nobody = world.plane.anonymous().client().await?;
    for namespace in [RENDERING, TENANT, HUB] {
        let pods: Api<Pod> = Api::namespaced(nobody.clone(), namespace);
        let answer = pods.list(&ListParams::default()).await;
        let code = match answer {
            Err(kube::Error::Api(status)) => status.code,
            other => anyhow::bail!("{other:?}"),
        };
        ensure!([401, 403].contains(&code), "{namespace}: {code}");
    }
    Ok(())
}

/// Holds: R5.
#[tokio::test]
async fn bombs_end_by_themselves_and_neighbours_do_not_notice() -> Result<()> {
    let world = world().await?;
    let silent = "the renderer's pod ended without saying why, as when it was killed or its image is not a renderer; ask the platform operator to look at the pod";
    let memory = "the renderer used more memory than its limit";
    let evicted = "the pod was evicted from its node, as when it uses more disk than its limit";
    let deadline = "the Job ran into its deadline; its pod may not have started";
    let bombs = [
        ("fork", "hostile", "JobFailed", silent),
        ("memory", "hostile", "JobFailed", memory),
        ("disk", "hostile", "JobFailed", evicted),
        ("log", "hostile", "JobFailed", evicted),
        // The node of the harness keeps it in memory, which is the container's.
        ("word", "hostile", "JobFailed", memory),
        ("sleep", "brief", "DeadlineExceeded", deadline),
    ];
    for (mode, class, _, _) in bombs {
        world
            .submit(&format!("bomb-{mode}"), class, mode, json!({}))
            .await?;
    }
    for (mode, ..) in bombs {
        world.until_started(&format!("bomb-{mode}")).await?;
    }
    world
        .submit_config("good", None, release("good", &json!({})))
        .await?;
    let (ended, message) = world.end("good").await?;
    assert_eq!(ended, "JobSucceeded", "{message}");
    for (mode, _, reason, said) in bombs {
        let ended = world.end(&format!("bomb-{mode}")).await?;
        assert_eq!(ended, (reason.to_owned(), said.to_owned()), "{mode}");
    }
    let forked = world
        .log("bomb-fork")
        .await?
        .lines()
        .filter(|line| line.starts_with("FORKED"))
        .count();
    ensure!((10..1000).contains(&forked), "no limit of processes: {forked}");
    Ok(())
}

/// Holds: R1, R2, R3, R5.
#[tokio::test]
async fn a_foreign_renderer_of_mode_single_pushes_and_is_held_as_tightly() -> Result<()> {
    let world = world().await?;
    world
        .submit_config("single", Some("foreign"), release("single", &json!({})))
        .await?;
    world
        .submit("single-looked", "foreign-hostile", "look", json!({}))
        .await?;
    let ended = world.end("single").await?;
    assert_eq!(ended.0, "JobSucceeded", "{}", ended.1);
    let tasks = world.tasks().await?;
    let digest = tasks.get("single").await?.status.and_then(|status| status.digest);
    ensure!(digest.is_some(), "our own renderer has said no digest");
    assert_eq!(world.end("single-looked").await?.0, "JobFailed");
    let read = world.log("single-looked").await?;
    // What mode Single gives up, and the class says so: here the tenant's code has the credential.
    ensure!(
        read.contains(world.registry.password()),
        "the scan does not find what is there"
    );
    for seen in [
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "POD_NAMESPACE=",
        "POD_NAME=",
    ] {
        ensure!(read.contains(seen), "{seen}\n{read}");
    }
    for gained in GAINED {
        ensure!(!has_line(&read, gained), "{gained}\n{read}");
    }
    Ok(())
}

/// Holds: R1, X1, X2.
#[tokio::test]
async fn a_hostile_configuration_is_text_in_a_chart() -> Result<()> {
    let world = world().await?;
    let deep = (0..40).fold(json!("bottom"), |inner, _| json!({ "../x": [inner] }));
    let values = json!({
        "../../etc/passwd": "/etc/renderer/credentials/password", PASSWORD: {"link": "-> /etc/shadow"}, "deep": deep,
        "files": "{{ .Files.Get \"/etc/renderer/credentials/password\" }}", "env": "{{ env \"REGISTRY_PASSWORD\" }}",
        "$(cat /etc/passwd)": "`id`", "\u{202e}": "\u{0}\u{7}", "--plain-http": true,
    });
    world
        .submit_config("config", None, release("config", &values))
        .await?;
    let ended = world.end("config").await?;
    assert_eq!(ended.0, "JobSucceeded", "{}", ended.1);
    let chart = world.pulled("config").await?;
    let mut names = Vec::new();
    for file in files(&chart)? {
        let text = std::fs::read_to_string(&file)?;
        ensure!(
            !world.canaries().show_in(&text),
            "{} holds the credential",
            file.display()
        );
        names.push(file.strip_prefix(&chart)?.to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(
        names,
        [
            ".helmignore",
            "Chart.yaml",
            "templates/release.yaml",
            "values.yaml"
        ]
    );
    Ok(())
}

/// Holds: R2.
#[tokio::test]
async fn the_rendering_namespace_takes_our_pods_and_refuses_each_weaker_one() -> Result<()> {
    let world = world().await?;
    let admin = world.admin().await?;
    for (name, class) in [
        ("template-split", "hostile"),
        ("template-single", "foreign-hostile"),
    ] {
        world.submit(name, class, "nonsense", json!({})).await?;
        world.end(name).await?;
        let template = world.template(name).await?;
        dry_run(&admin, &template)
            .await
            .context("our own pod is refused")?;
        let mut count = 0;
        for (what, weaker) in weakened(&template) {
            let answer = dry_run(&admin, &weaker).await;
            let refused = matches!(&answer, Err(kube::Error::Api(s)) if s.code == 403 && s.message.contains("PodSecurity"));
            ensure!(refused, "{name}: {what}: {answer:?}");
            count += 1;
        }
        ensure!(count >= 20, "only {count} ways to weaken a pod");
    }
    Ok(())
}

async fn dry_run(admin: &Client, template: &Value) -> kube::Result<Pod> {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!("probe");
    let pod: Pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Api::namespaced(admin.clone(), RENDERING)
        .create(&parameters, &pod)
        .await
}

/// The pod with one protection less, for each protection it has.
fn weakened(template: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut add = |path: &str, value: Value| {
        let mut weaker = template.clone();
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = weaker.pointer_mut(parent).expect("what the template has");
        match (parent, value) {
            (Value::Array(list), value) => list.push(value),
            (parent, Value::Null) => _ = parent.as_object_mut().expect("an object").remove(key),
            (parent, value) => parent[key] = value,
        }
        all.push((path.to_owned(), weaker));
    };
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        add(&format!("/spec/{field}"), json!(true));
    }
    add("/spec/volumes/-", json!({"name": "x", "hostPath": {"path": "/"}}));
    add(
        "/spec/volumes/-",
        json!({"name": "x", "nfs": {"server": "x", "path": "/"}}),
    );
    add("/spec/securityContext/runAsUser", json!(0));
    add("/spec/securityContext/seccompProfile", Value::Null);
    add(
        "/spec/securityContext/seccompProfile",
        json!({"type": "Unconfined"}),
    );
    add(
        "/spec/securityContext/sysctls",
        json!([{"name": "kernel.msgmax", "value": "1"}]),
    );
    add(
        "/spec/securityContext/appArmorProfile",
        json!({"type": "Unconfined"}),
    );
    add("/spec/securityContext/seLinuxOptions", json!({"type": "spc_t"}));
    for kind in ["initContainers", "containers"] {
        if template["spec"][kind].is_null() {
            continue;
        }
        let own = format!("/spec/{kind}/0/securityContext");
        add(&own, json!({"privileged": true}));
        add(&format!("{own}/allowPrivilegeEscalation"), json!(true));
        add(&format!("{own}/allowPrivilegeEscalation"), Value::Null);
        add(&format!("{own}/capabilities"), Value::Null);
        add(&format!("{own}/capabilities"), json!({"drop": ["NET_RAW"]}));
        add(&format!("{own}/capabilities/add"), json!(["SYS_ADMIN"]));
        add(&format!("{own}/runAsNonRoot"), json!(false));
        add(&format!("{own}/runAsUser"), json!(0));
        add(&format!("{own}/seccompProfile"), json!({"type": "Unconfined"}));
        add(
            &format!("/spec/{kind}/0/ports"),
            json!([{"containerPort": 80, "hostPort": 80}]),
        );
    }
    all
}

/// Holds: R3.
#[tokio::test]
async fn the_renderers_account_may_do_nothing() -> Result<()> {
    let world = world().await?;
    let renderer = Subject::service_account(RENDERING, "renderhub-renderer");
    let admin = world.admin().await?;
    for namespace in [RENDERING, TENANT] {
        let found = rights(&admin, &renderer, namespace).await?;
        assert_eq!(found, about_oneself(), "in {namespace}");
    }
    Ok(())
}

/// Holds: R7.
#[tokio::test]
async fn no_tenant_has_a_right_where_the_jobs_run() -> Result<()> {
    let world = world().await?;
    let admin = world.admin().await?;
    for role in ["admin", "edit", "view"] {
        let tenant = Subject::user(&format!("somebody-with-{role}"));
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": tenant.user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant.user}],
        }))?;
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), TENANT);
        bindings.create(&PostParams::default(), &binding).await?;
        wait_for("the binding", LIMIT, async || {
            let at_home = rights(&admin, &tenant, TENANT).await?;
            let sees = |right: &str| at_home.iter().any(|found| found == right);
            Ok((sees("get /pods/log") && sees("list renderhub.dev/rendertasks")).then_some(()))
        })
        .await?;
        for namespace in [RENDERING, HUB] {
            let found = rights(&admin, &tenant, namespace).await?;
            assert_eq!(found, about_oneself(), "{role} in {namespace}");
        }
    }
    Ok(())
}

/// What every authenticated user may ask: who they are and what they may do.
fn about_oneself() -> [String; 3] {
    [
        "create authentication.k8s.io/selfsubjectreviews",
        "create authorization.k8s.io/selfsubjectaccessreviews",
        "create authorization.k8s.io/selfsubjectrulesreviews",
    ]
    .map(str::to_owned)
}

fn has_line(text: &str, begins: &str) -> bool {
    text.lines().any(|line| line.starts_with(begins))
}

/// A configuration of the real renderer.
fn release(name: &str, values: &Value) -> Value {
    json!({"type": "release", "release": {
        "chart": {"name": name, "description": "", "version": "1.0.0", "appVersion": "1"},
        "input": {
            "component": {"name": "shop"},
            "resources": {"chart": {"repository": "charts.example.com/shop", "tag": "1.0.0"}},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        },
        "values": values,
    }})
}
