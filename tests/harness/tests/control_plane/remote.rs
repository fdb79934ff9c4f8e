//! A cluster to render on: what its kubeconfig may do, that the script of the examples makes one like it, and how it is lost.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use renderhub_harness::{Identity, Remote, Tools, helm, remote};
use serde_json::Value;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

async fn client_of(kubeconfig: &str) -> Result<Client> {
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(kubeconfig)?, &KubeConfigOptions::default())
            .await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// The code of the answer to a request for Jobs, as another user where there is a name.
async fn code(client: &Client, namespace: &str, other: Option<&str>) -> Result<u16> {
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    let mut request = http::Request::get(path);
    if let Some(other) = other {
        request = request.header("Impersonate-User", other);
    }
    match client.request_text(request.body(Vec::new())?).await {
        Ok(_) => Ok(200),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error.into()),
    }
}

/// The rights of a user in a namespace that a user without any right does not have, as rules of a Role.
async fn rules(client: &Client, nobody: &Identity, namespace: &str) -> Result<Vec<Value>> {
    let review = async |client: Client| -> Result<Vec<Value>> {
        let spec = SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        };
        let review = SelfSubjectRulesReview {
            spec,
            ..SelfSubjectRulesReview::default()
        };
        let api: Api<SelfSubjectRulesReview> = Api::all(client);
        let answer = api.create(&PostParams::default(), &review).await?;
        let status = answer.status.context("no answer")?;
        ensure!(!status.incomplete, "the API server does not know all rules");
        Ok(status.resource_rules.iter().map(|rule| json!(rule)).collect())
    };
    let common = review(nobody.client().await?).await?;
    let mut own = review(client.clone()).await?;
    own.retain(|rule| !common.contains(rule));
    own.sort_by_key(ToString::to_string);
    Ok(own)
}

/// Everything that a hub needs on another cluster, exactly.
fn exact(namespace: &str) -> Vec<Value> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let mut own = rule("", "namespaces", &["get"]);
    own["resourceNames"] = json!([namespace]);
    vec![
        rule(
            "batch",
            "jobs",
            &["create", "get", "list", "watch", "patch", "delete"],
        ),
        rule("", "secrets", &["create", "get", "list", "delete"]),
        rule("", "pods", &["list"]),
        own,
    ]
}

/// The rules of the example's Role.
fn written(namespace: &str) -> Result<Vec<Value>> {
    let objects = helm::documents(&remote::example("remote-cluster/role.yaml", namespace)?)?;
    let role = objects.iter().find(|object| object["kind"] == "Role");
    let rules = role.context("no Role")?["rules"].as_array().context("no rules")?;
    let mut rules = rules.clone();
    rules.sort_by_key(ToString::to_string);
    Ok(rules)
}

/// The kubeconfig does what a hub needs of another cluster, and nothing beyond it anywhere.
#[tokio::test]
async fn the_kubeconfig_of_a_remote_is_good_for_the_role_of_the_example_and_for_nothing_else() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let remote = Remote::make(plane, "narrow").await?;
    let nobody = plane.user("nobody-at-all", &[])?;
    let client = client_of(&remote.kubeconfig().await?).await?;
    let own = rules(&client, &nobody, &remote.namespace).await?;
    assert_eq!(own, written(&remote.namespace)?);
    for elsewhere in ["default", "kube-system"] {
        assert!(
            rules(&client, &nobody, elsewhere).await?.is_empty(),
            "{elsewhere}"
        );
    }
    // What the Role says of Namespaces is about this one.
    let namespaces: Api<Namespace> = Api::all(client);
    let labels = namespaces.get(&remote.namespace).await?.metadata.labels;
    let labels = labels.context("no labels")?;
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    assert!(namespaces.get("default").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_remote_forbids_and_forgets_and_takes_back() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let remote = Remote::make(plane, "moods").await?;
    let (first, second) = (remote.kubeconfig().await?, remote.kubeconfig().await?);
    assert_ne!(first, second, "each has a token of its own");
    let (first, second) = (client_of(&first).await?, client_of(&second).await?);
    let certificate = remote.certificate_identity("by-certificate").await?;
    let certificate = client_of(&certificate.kubeconfig_text()?).await?;
    let codes = async || -> Result<[u16; 3]> {
        Ok([
            code(&first, &remote.namespace, None).await?,
            code(&second, &remote.namespace, None).await?,
            code(&certificate, &remote.namespace, None).await?,
        ])
    };
    assert_eq!(codes().await?, [200, 200, 200]);
    remote.revoke().await?;
    assert_eq!(codes().await?, [403, 403, 200]);
    remote.grant().await?;
    assert_eq!(codes().await?, [200, 200, 200]);
    remote.expel().await?;
    assert_eq!(codes().await?, [401, 401, 200]);
    remote.grant().await?;
    assert_eq!(codes().await?, [401, 401, 200], "a new account has new tokens");
    let third = client_of(&remote.kubeconfig().await?).await?;
    assert_eq!(code(&third, &remote.namespace, None).await?, 200);
    Ok(())
}

/// A stopped API server refuses, a frozen one says nothing, and both come back as they were.
#[tokio::test]
async fn a_control_plane_is_lost_and_comes_back_with_what_it_knew() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let remote = Remote::make(&plane, "lost").await?;
    let client = client_of(&remote.kubeconfig().await?).await?;
    plane.stop_api_server()?;
    assert!(code(&client, &remote.namespace, None).await.is_err());
    plane.start_api_server().await?;
    assert!(plane.start_api_server().await.is_err(), "it runs already");
    wait_for("the same token to be good again", LIMIT, async || {
        Ok((code(&client, &remote.namespace, None).await? == 200).then_some(()))
    })
    .await?;
    plane.freeze_api_server()?;
    let asked = code(&client, &remote.namespace, None);
    let silent = tokio::time::timeout(Duration::from_millis(500), asked).await;
    plane.thaw_api_server()?;
    assert!(silent.is_err(), "a frozen API server answered: {silent:?}");
    assert_eq!(code(&client, &remote.namespace, None).await?, 200);
    Ok(())
}

#[tokio::test]
async fn a_user_comes_by_way_of_another_address() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let remote = Remote::make(plane, "detour").await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let way = listener.local_addr()?;
    let identity = remote.identity().await?.by_way_of(format!("https://{way}"));
    let (to, client) = (
        (plane.address(), plane.port()),
        client_of(&identity.kubeconfig_text()?).await?,
    );
    let detour = async {
        let (mut from, _) = listener.accept().await?;
        let mut to = tokio::net::TcpStream::connect(to).await?;
        tokio::io::copy_bidirectional(&mut from, &mut to).await
    };
    tokio::select! {
        ended = detour => anyhow::bail!("the way ended first: {ended:?}"),
        told = code(&client, &remote.namespace, None) => assert_eq!(told?, 200),
    }
    Ok(())
}

/// Runs the script with the built kubectl, as an administrator of the shared control plane.
async fn script(out: &Path, words: &[&str]) -> Result<Output> {
    let plane = ControlPlane::shared().await?;
    let kubectl = Tools::path("kubectl")?;
    let programs = kubectl.parent().context("a program is in a directory")?.display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .arg(remote::examples().join("remote-cluster/kubeconfig.sh"))
        .args(words)
        .arg("--out")
        .arg(out)
        .env("PATH", format!("{programs}:{path}"))
        .env("KUBECONFIG", plane.admin().kubeconfig()?);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// The claims of the token in a kubeconfig.
fn claims(kubeconfig: &str) -> Result<Value> {
    let config = &helm::documents(kubeconfig)?[0];
    let token = config["users"][0]["user"]["token"].as_str().context("no token")?;
    let payload = token.split('.').nth(1).context("no JWT")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload)?)?)
}

#[tokio::test]
async fn the_script_makes_the_same_kubeconfig_with_an_end_or_without_one() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let nobody = plane.user("nobody-at-all", &[])?;
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("kubeconfig");
    // Where a file lies already that others may read.
    std::fs::write(&out, "old")?;
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o644))?;
    let namespace = format!("script-{}", renderhub_harness::rundir::random_hex(4)?);
    for (lifetime, seconds) in [(&["--duration", "1h"][..], Some(3600)), (&["--long-lived"], None)] {
        let words = [&["--namespace", &namespace], lifetime].concat();
        let made = script(&out, &words).await?;
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "{told}");
        assert!(made.stdout.is_empty(), "nothing to be piped by mistake");
        let bits = std::fs::metadata(&out)?.permissions().mode();
        assert_eq!(bits & 0o777, 0o600);
        let text = std::fs::read_to_string(&out)?;
        assert!(!told.contains(claims(&text)?["sub"].as_str().context("no subject")?));
        let client = client_of(&text).await?;
        let expected = written(&namespace)?;
        wait_for("the rights that are written", LIMIT, async || {
            Ok((rules(&client, &nobody, &namespace).await? == expected).then_some(()))
        })
        .await?;
        assert!(rules(&client, &nobody, "default").await?.is_empty());
        let claims = claims(&text)?;
        let end = claims["exp"].as_i64().zip(claims["iat"].as_i64());
        assert_eq!(end.map(|(end, begin)| end - begin), seconds);
        let word = if seconds.is_some() {
            "Z."
        } else {
            "renderhub-token"
        };
        assert!(told.contains("Its token ends: ") && told.contains(word), "{told}");
        assert!(told.contains(&format!("renderNamespace: {namespace}")), "{told}");
    }
    Ok(())
}

/// The kubeconfig of a tenant's cluster can do nothing but be the one `ServiceAccount`.
#[tokio::test]
async fn the_kubeconfig_of_a_tenants_cluster_is_good_for_being_one_service_account() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("kubeconfig");
    let manifest = remote::examples().join("own-cluster/cluster.yaml");
    let manifest = manifest.to_str().context("no text")?;
    let namespace = format!("own-{}", renderhub_harness::rundir::random_hex(4)?);
    let made = script(&out, &["--namespace", &namespace, "--manifest", manifest]).await?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let client = client_of(&std::fs::read_to_string(&out)?).await?;
    let builder = "system:serviceaccount:team-a:builder";
    wait_for("the rights to be seen", LIMIT, async || {
        Ok((code(&client, &namespace, Some(builder)).await? == 200).then_some(()))
    })
    .await?;
    for other in [
        None,
        Some("system:serviceaccount:team-a:other"),
        Some("system:serviceaccount:default:builder"),
        Some("test-admin"),
    ] {
        assert_eq!(code(&client, &namespace, other).await?, 403, "{other:?}");
    }
    assert_eq!(code(&client, "default", Some(builder)).await?, 403);
    Ok(())
}

#[tokio::test]
async fn the_script_refuses_what_the_hub_would_refuse_before_it_makes_anything() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("kubeconfig");
    let fresh = format!("refused-{}", renderhub_harness::rundir::random_hex(4)?);
    let more = |words: &[&'static str]| [&["--namespace", fresh.as_str()], words].concat();
    for (words, said) in [
        (more(&["--server", "http://192.0.2.1:8080"]), "by https only"),
        (more(&["--server", "https://192.0.2.1\" x"]), "no URL"),
        (more(&["--server", "https://somebody@192.0.2.1"]), "no URL"),
        (
            more(&["--server", "https://192.0.2.1/k8s/clusters/c-1"]),
            "with a path",
        ),
        (more(&["--server", "https://localhost:6443"]), "find itself"),
        (more(&["--namespace", "a/b"]), "no name of a namespace"),
        (more(&["--namespace", "a: {}\nb"]), "no name of a namespace"),
        (more(&["--namespace", ""]), "no name of a namespace"),
        (more(&["--forever"]), "unknown option --forever"),
    ] {
        let refused = script(&out, &words).await?;
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && told.contains(said),
            "{words:?}: {told}"
        );
        assert!(!out.exists());
    }
    let plane = ControlPlane::shared().await?;
    let namespaces: Api<Namespace> = Api::all(plane.admin().client().await?);
    assert!(namespaces.get_opt(&fresh).await?.is_none());
    Ok(())
}

/// The Role is the agreed one in every place where it is written; one more right is a change of what owners of clusters grant.
#[test]
fn the_role_is_exactly_what_a_hub_needs_in_the_example_and_on_the_page() -> Result<()> {
    let objects = helm::documents(&remote::example("remote-cluster/role.yaml", remote::NAMESPACE)?)?;
    let roles: Vec<_> = objects.iter().filter(|object| object["kind"] == "Role").collect();
    let bindings = objects
        .iter()
        .filter(|object| object["kind"] == "RoleBinding")
        .count();
    assert_eq!(
        (roles.len(), bindings, objects.len()),
        (1, 1, 4),
        "nothing else is bound"
    );
    assert_eq!(roles[0]["rules"], json!(exact(remote::NAMESPACE)));
    let page = remote::examples().join("../docs/how-to/register-a-cluster.md");
    let page = std::fs::read_to_string(page)?;
    let mut blocks = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next());
    let told = blocks
        .find(|block| block.starts_with("rules:"))
        .context("no Role on the page")?;
    assert_eq!(
        helm::documents(told)?[0]["rules"],
        json!(exact(remote::NAMESPACE))
    );
    Ok(())
}

/// The objects that the tenant applies on the hub's cluster fit together: the account may read what the task names, and nothing
/// else.
#[test]
fn the_examples_name_each_other() -> Result<()> {
    let read = |file| helm::documents(&remote::example(file, remote::NAMESPACE)?);
    let hub = read("own-cluster/hub.yaml")?;
    let cluster = read("own-cluster/cluster.yaml")?;
    let find = |objects: &[Value], kind: &str, name: &str| -> Result<Value> {
        let found = objects
            .iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.cloned().with_context(|| format!("no {kind} {name}"))
    };
    let task = find(&hub, "RenderTask", "web")?;
    let account = task["spec"]["serviceAccountName"].as_str().context("none")?;
    let rules = find(&hub, "Role", account)?["rules"].clone();
    assert_eq!(
        rules[0]["resourceNames"],
        json!([task["spec"]["kubeConfig"]["secretRef"]["name"]])
    );
    let _: ServiceAccount = serde_json::from_value(find(&hub, "ServiceAccount", account)?)?;
    let becoming = find(&cluster, "Role", "renderhub-impersonate")?;
    assert_eq!(
        becoming["metadata"]["namespace"], task["metadata"]["namespace"],
        "the right to be an account is given in its namespace"
    );
    assert_eq!(becoming["rules"][0]["resourceNames"], json!([account]));
    let role = find(&cluster, "Role", "renderhub")?;
    assert_eq!(role["metadata"]["namespace"], task["spec"]["deploymentNamespace"]);
    let narrow = find(&read("remote-cluster/role.yaml")?, "Role", "renderhub")?;
    assert_eq!(
        role["rules"], narrow["rules"],
        "one Role for both kinds of clusters"
    );
    let platform = read("remote-cluster/rendercluster.yaml")?;
    let wanted = find(&platform, "RenderCluster", "edge-1")?;
    let on_it = find(&platform, "RenderTask", "web")?;
    assert_eq!(on_it["spec"]["clusterName"], wanted["metadata"]["name"]);
    Ok(())
}
