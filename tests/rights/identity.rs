//! Which users a hub can impersonate, as the API server judges it.

use std::fmt::Write as _;

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use renderhub_harness::Identity;

use super::*;
use support::programs;
use support::tenant::account;

/// Asks for a token of a `ServiceAccount`; the code of the answer.
async fn mint(client: &Client, namespace: &str, name: &str) -> Result<u16> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let asked = TokenRequest::default();
    Ok(code(
        api.create_token_request(name, &PostParams::default(), &asked)
            .await,
    ))
}

fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// Lists what every user with a right there may list, as another user.
async fn list_as(client: &Client, headers: &[(&str, &str)], namespace: &str) -> Result<u16> {
    let mut request =
        http::Request::get(format!("/api/v1/namespaces/{namespace}/secrets")).body(Vec::new())?;
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes())?;
        request
            .headers_mut()
            .insert(name, http::HeaderValue::from_str(value)?);
    }
    Ok(code(client.request_text(request).await.map(drop)))
}

/// The hub gets tokens of the one account that the chart names, and of no other anywhere.
async fn mints_only_for(stage: &Stage, hub: &Client, may: bool) -> Result<()> {
    let (tenant, rendering) = (stage.scope.tenant.as_str(), stage.scope.rendering.as_str());
    let named = if may { 200 } else { 403 };
    for (namespace, name, expected) in [
        (tenant, BUILDER, named),
        (tenant, "other", 403),
        (tenant, "default", 403),
        (rendering, "default", 403),
        (rendering, "renderhub-renderer", 403),
        ("kube-system", "namespace-controller", 403),
        ("kube-system", "clusterrole-aggregation-controller", 403),
        ("default", "default", 403),
    ] {
        assert_eq!(mint(hub, namespace, name).await?, expected, "{namespace}/{name}");
    }
    Ok(())
}

/// Whether or not the hub may be the one account: it can be no other, and has nothing more than the account's rights.
async fn impersonates_no_other(stage: &Stage, hub: &Client) -> Result<()> {
    let tenant = &stage.scope.tenant;
    let builder = account(tenant, BUILDER);
    let other = account(tenant, "other");
    for headers in [
        &[("Impersonate-User", other.as_str())][..],
        &[("Impersonate-User", "test-admin")],
        &[("Impersonate-User", "anybody")],
        &[(
            "Impersonate-User",
            "system:serviceaccount:kube-system:namespace-controller",
        )],
        &[
            ("Impersonate-User", &builder),
            ("Impersonate-Group", "system:masters"),
        ],
        &[("Impersonate-User", &builder), ("Impersonate-Uid", "0")],
        &[
            ("Impersonate-User", &builder),
            ("Impersonate-Extra-Scopes", "all"),
        ],
    ] {
        assert_eq!(list_as(hub, headers, tenant).await?, 403, "{headers:?}");
    }
    Ok(())
}

/// Holds: I1.
#[tokio::test]
async fn a_hub_impersonates_only_accounts_that_the_chart_names() -> Result<()> {
    for (flags, gets_tokens) in [
        (&[EVERYWHERE][..], true),
        (&[], true),
        (&["--tenant-identity=impersonate"], false),
    ] {
        let mut stage = Stage::on(plane::plane().await?, "nobody", flags).await?;
        stage.allow_forbidden();
        let tenant = stage.scope.tenant.clone();
        for name in [BUILDER, "other"] {
            stage.make_account(&tenant, name).await?;
        }
        stage.let_hub_be(&[BUILDER]).await?;
        // What the account itself may read, so that a refusal is about who asks.
        stage
            .bind(
                &tenant,
                "lists",
                &json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}),
                &json!({"kind": "ServiceAccount", "name": BUILDER, "namespace": tenant}),
            )
            .await?;
        let hub = stage.hub_user.client().await?;
        mints_only_for(&stage, &hub, gets_tokens).await?;
        impersonates_no_other(&stage, &hub).await?;
        if !gets_tokens {
            let builder = account(&tenant, BUILDER);
            wait_for("the one account to be impersonated", LIMIT, async || {
                let code = list_as(&hub, &[("Impersonate-User", &builder)], &tenant).await?;
                Ok((code == 200).then_some(()))
            })
            .await?;
        }
        stage.passed();
    }
    Ok(())
}

/// Rules of a user in a namespace that users without any right do not have, a line each.
async fn rules(user: &Identity, nobody: &Identity, namespace: &str) -> Result<Vec<String>> {
    let (all, common) = (review(user, namespace).await?, review(nobody, namespace).await?);
    Ok(all.into_iter().filter(|rule| !common.contains(rule)).collect())
}

async fn review(user: &Identity, namespace: &str) -> Result<Vec<String>> {
    let spec = SelfSubjectRulesReviewSpec {
        namespace: Some(namespace.to_owned()),
    };
    let review = SelfSubjectRulesReview {
        spec,
        ..SelfSubjectRulesReview::default()
    };
    let api: Api<SelfSubjectRulesReview> = Api::all(user.client().await?);
    let status = api
        .create(&PostParams::default(), &review)
        .await?
        .status
        .context("no answer")?;
    ensure!(!status.incomplete, "the API server does not know all rules");
    let line = |rule: &k8s_openapi::api::authorization::v1::ResourceRule| {
        let words = |list: Option<&Vec<String>>| {
            let mut list = list.cloned().unwrap_or_default();
            list.sort();
            list.join(",")
        };
        let mut verbs = rule.verbs.clone();
        verbs.sort();
        let group = words(rule.api_groups.as_ref());
        let group = if group.is_empty() { "core" } else { &group };
        let names = rule.resource_names.as_ref().filter(|names| !names.is_empty());
        let only = names
            .map(|names| format!(" only {}", words(Some(names))))
            .unwrap_or_default();
        format!(
            "{} {group}/{}{only}",
            verbs.join(","),
            words(rule.resources.as_ref())
        )
    };
    let mut lines: Vec<_> = status.resource_rules.iter().map(line).collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// What a hub may do in each kind of namespace, in both modes; compared with the files in `tests/rights`.
///
/// Holds: I1.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "it tells one story from its beginning to its end"
)]
async fn a_hub_may_do_what_is_written_down_and_nothing_else() -> Result<()> {
    let nobody = plane::plane().await?.user("nobody-at-all", &[])?;
    let catalog = plane::plane().await?.namespace("catalog").await?;
    let catalogs = format!("--catalog-namespaces={catalog}");
    let crossing = "--no-cross-namespace-refs=false";
    for (file, flags) in [
        ("all.txt", &[EVERYWHERE][..]),
        ("some.txt", &[crossing]),
        ("pipeline-all.txt", &[EVERYWHERE, "--pipeline=true"]),
        ("pipeline-some.txt", &[crossing, "--pipeline=true", &catalogs]),
    ] {
        let plane = plane::plane().await?;
        let kubeconfigs = plane.namespace("kubeconfigs").await?;
        let flag = format!("--cluster-namespace={kubeconfigs}");
        let mut stage = Stage::on(plane, "golden", &[flags, &[flag.as_str()]].concat()).await?;
        stage.let_hub_be(&[BUILDER]).await?;
        let other = stage.plane.namespace("other").await?;
        let mut text = String::new();
        for (kind, namespace) in [
            ("a namespace of a tenant", stage.scope.tenant.as_str()),
            ("the rendering namespace", &stage.scope.rendering),
            ("the namespace of kubeconfigs", &kubeconfigs),
            ("the namespace of a catalog", &catalog),
            ("any other namespace", &other),
            ("kube-system", "kube-system"),
        ] {
            if namespace == catalog && !flags.contains(&catalogs.as_str()) {
                continue;
            }
            let rules = rules(&stage.hub_user, &nobody, namespace).await?.join("\n");
            writeln!(text, "# {kind}\n{rules}\n")?;
        }
        let text = text.replace(&stage.scope.tenant, "TENANT");
        let text = text
            .replace(&stage.scope.rendering, "RENDERING")
            .trim_end()
            .to_owned()
            + "
";
        let path = std::path::Path::new(programs::ROOT)
            .join("tests/rights")
            .join(file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text)?;
        }
        let golden = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        assert_eq!(text, golden, "{}; UPDATE_GOLDEN=1 writes it anew", path.display());
        stage.passed();
    }
    Ok(())
}

/// The how-to page is enough for a namespace that is made later, and its tenant can follow it.
#[tokio::test]
async fn a_tenant_can_let_the_hub_be_its_service_account() -> Result<()> {
    let page = std::path::Path::new(programs::ROOT).join("docs/how-to/install-for-many-tenants.md");
    let page = std::fs::read_to_string(page)?;
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let role = blocks
        .into_iter()
        .find(|block| block.contains("renderhub-identities"))
        .context("no such Role on the page")?;
    let stage = Stage::on(plane::plane().await?, "later", &[EVERYWHERE]).await?;
    stage.allow_forbidden();
    let tenant = &stage.scope.tenant;
    let account = "{kind: ServiceAccount, name: renderhub, namespace: renderhub-system}";
    ensure!(role.contains(account), "the page binds the Role to nobody");
    let user = format!(
        "{{kind: User, apiGroup: rbac.authorization.k8s.io, name: {}}}",
        stage.hub_user.name()
    );
    let role = role.replace(account, &user).replace("team-c", tenant);
    stage.make_account(tenant, BUILDER).await?;
    let hub = stage.hub_user.client().await?;
    assert_eq!(mint(&hub, tenant, BUILDER).await?, 403);
    let admin = stage.plane.tenant(tenant).await?.client().await?;
    apply::yaml(&admin, &role).await?;
    wait_for("the hub to get a token", LIMIT, async || {
        Ok((mint(&hub, tenant, BUILDER).await? == 200).then_some(()))
    })
    .await?;
    assert_eq!(mint(&hub, tenant, "default").await?, 403);
    stage.passed();
    Ok(())
}
