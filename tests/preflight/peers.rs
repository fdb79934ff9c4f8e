//! M5: no two hubs serve the same tasks, in whatever order they start, stop, crash, sleep and wake.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use renderhub_harness::{Hub, wait_for};
use serde_json::json;

use crate::refused;
use crate::support::proxy::Proxy;
use crate::support::{EVERYWHERE, LIMIT, Stage};

/// Variable that names an instance.
const INSTANCE: &str = "RENDERHUB_INSTANCE_NAME";
/// What a hub says while it watches a record.
const WAITS: &str = "waiting until it is known whether this hub is alive";

impl Stage {
    fn spawn_instance(&mut self, name: &str) -> Result<Hub> {
        self.spawn_hub_with(&self.hub_user.kubeconfig()?, &[(INSTANCE, name)])
    }

    /// Starts an instance and waits until it is ready.
    async fn instance(&mut self, name: &str) -> Result<Hub> {
        let hub = self.spawn_instance(name)?;
        hub.wait_ready().await?;
        Ok(hub)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    async fn lease(&self) -> Result<Lease> {
        let name = format!("renderhub-{}", self.hub_id().await?);
        Ok(self.leases().get(&name).await?)
    }

    async fn holder(&self) -> Result<Option<String>> {
        Ok(self.lease().await?.spec.and_then(|spec| spec.holder_identity))
    }

    /// Another hub of the first one's neighbourhood: the same rendering namespace, these namespaces.
    async fn neighbour(&self, prefix: &str, tenant: &str, flags: &[&str]) -> Result<Self> {
        let mut other = Self::without_hub(prefix, flags).await?;
        other.scope.rendering.clone_from(&self.scope.rendering);
        tenant.clone_into(&mut other.scope.tenant);
        other.give_rights(&[]).await?;
        Ok(other)
    }
}

/// Waits until the record is written again.
async fn until_renewed(stage: &Stage) -> Result<()> {
    let before = stage.lease().await?.resource_version();
    wait_for("the Lease to be renewed", LIMIT, async || {
        Ok((stage.lease().await?.resource_version() != before).then_some(()))
    })
    .await
}

/// Holds: M5.
#[tokio::test]
async fn a_second_hub_with_the_same_id_refuses_and_the_first_goes_on() -> Result<()> {
    let mut stage = Stage::without_hub("twice", &[]).await?;
    stage.make_registry().await?;
    stage.hub = Some(stage.instance("first").await?);
    let second = stage.spawn_instance("second")?;
    let said = refused(&second, &["peers"]).await?;
    ensure!(
        said.contains("first") && said.contains("the same hub id"),
        "{said}"
    );
    assert_eq!(stage.holder().await?.as_deref(), Some("first"));
    until_renewed(&stage).await?;
    stage.barrier().await?;
    stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn hubs_whose_lists_meet_refuse_in_either_order() -> Result<()> {
    let mut first = Stage::without_hub("meet", &[]).await?;
    let (own, other) = (first.scope.tenant.clone(), first.plane.namespace("apart").await?);
    let mut wider = first.neighbour("wider", &own, &[]).await?;
    wider.also_watch(&other).await?;
    let mut all = first.neighbour("all", &own, &[EVERYWHERE]).await?;
    let mut apart = first.neighbour("apart", &other, &[]).await?;

    let running = first.instance("a").await?;
    let said = refused(&wider.spawn_instance("b")?, &["peers"]).await?;
    ensure!(said.contains(&format!("serves {own} too")), "{said}");
    refused(&all.spawn_instance("c")?, &["peers"]).await?;
    // One that shares nothing starts beside it, without a wait.
    let beside = apart.instance("d").await?;
    ensure!(!beside.log().contains(WAITS), "{}", beside.log());
    ensure!(running.sigterm(LIMIT).await?.code() == Some(0));

    // Who refused left nothing in the way of others.
    refused(&wider.spawn_instance("b")?, &["peers"]).await?;
    ensure!(beside.sigterm(LIMIT).await?.code() == Some(0));
    let running = all.instance("c").await?;
    ensure!(!running.log().contains(WAITS), "{}", running.log());
    for stage in [&mut first, &mut wider, &mut apart] {
        refused(&stage.spawn_instance("a")?, &["peers"]).await?;
    }
    for stage in [first, wider, all, apart] {
        stage.passed();
    }
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn an_instance_whose_predecessor_was_killed_waits_until_it_is_surely_gone() -> Result<()> {
    let mut stage = Stage::without_hub("killed", &[]).await?;
    stage.make_registry().await?;
    stage.instance("first").await?.kill9();
    let second = stage.spawn_instance("second")?;
    wait_for("the second to watch the record of the first", LIMIT, async || {
        Ok(second.log().contains(WAITS).then_some(()))
    })
    .await?;
    // It lives, is not ready, and holds nothing meanwhile.
    assert_eq!(
        (second.get("/livez").await?.0, second.get("/readyz").await?.0),
        (200, 503)
    );
    assert_eq!(stage.holder().await?.as_deref(), Some("first"));
    second.wait_ready().await?;
    assert_eq!(stage.holder().await?.as_deref(), Some("second"));
    stage.hub = Some(second);
    stage.barrier().await?;
    stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_restart_in_place_and_a_start_after_a_release_wait_for_nothing() -> Result<()> {
    let mut stage = Stage::without_hub("swift", &[]).await?;
    stage.instance("first").await?.kill9();
    let again = stage.instance("first").await?;
    ensure!(!again.log().contains(WAITS), "{}", again.log());
    ensure!(again.sigterm(LIMIT).await?.code() == Some(0));
    assert_eq!(stage.holder().await?, None);
    let second = stage.instance("second").await?;
    ensure!(!second.log().contains(WAITS), "{}", second.log());
    let spec = stage.lease().await?.spec.context("a spec")?;
    assert_eq!(
        (spec.lease_transitions, spec.lease_duration_seconds),
        (Some(2), Some(15))
    );
    stage.passed();
    Ok(())
}

/// A record of a hub that is gone for good delays one start, not every one.
///
/// Holds: M5.
#[tokio::test]
async fn the_record_of_a_hub_that_is_gone_is_cleared_by_who_takes_its_place() -> Result<()> {
    let mut stage = Stage::without_hub("renamed", &[]).await?;
    let mut other = stage.neighbour("renamed", &stage.scope.tenant, &[]).await?;
    stage.instance("first").await?.kill9();
    let second = other.instance("second").await?;
    ensure!(second.log().contains(WAITS), "{}", second.log());
    assert_eq!(stage.holder().await?, None);
    second.kill9();
    let again = other.instance("second").await?;
    ensure!(!again.log().contains(WAITS), "{}", again.log());
    stage.passed();
    other.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_hub_that_sleeps_too_long_ends_when_it_wakes() -> Result<()> {
    let mut stage = Stage::without_hub("asleep", &[]).await?;
    let first = stage.instance("first").await?;
    first.freeze()?;
    let second = stage.instance("second").await?;
    first.thaw()?;
    ensure!(first.wait_exit(LIMIT).await?.code() == Some(1));
    ensure!(
        first.log().contains("another instance has taken over"),
        "{}",
        first.log()
    );
    until_renewed(&stage).await?;
    assert_eq!(stage.holder().await?.as_deref(), Some("second"));
    ensure!(second.exit_status().is_none());
    stage.passed();
    Ok(())
}

/// Of two processes with one name the later one stays: a container that was started again.
///
/// Holds: M5.
#[tokio::test]
async fn a_process_whose_name_another_takes_ends() -> Result<()> {
    let mut stage = Stage::without_hub("same", &[]).await?;
    let first = stage.instance("hub-0").await?;
    let second = stage.instance("hub-0").await?;
    ensure!(first.wait_exit(LIMIT).await?.code() == Some(1));
    ensure!(
        first.log().contains("another instance has taken over"),
        "{}",
        first.log()
    );
    until_renewed(&stage).await?;
    ensure!(second.exit_status().is_none(), "{}", second.log());
    stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_lease_that_people_touch_or_remove_stays_the_hubs() -> Result<()> {
    let mut stage = Stage::without_hub("touched", &[]).await?;
    let hub = stage.instance("first").await?;
    let name = stage.lease().await?.name_any();
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "seen"}}}));
    stage
        .leases()
        .patch(&name, &PatchParams::default(), &note)
        .await?;
    until_renewed(&stage).await?;
    assert_eq!(stage.lease().await?.annotations()["note"], "seen");
    stage.leases().delete(&name, &DeleteParams::default()).await?;
    wait_for("the hub to write its record again", LIMIT, async || {
        Ok((stage.holder().await?.as_deref() == Some("first")).then_some(()))
    })
    .await?;
    until_renewed(&stage).await?;
    ensure!(hub.exit_status().is_none(), "{}", hub.log());
    stage.passed();
    Ok(())
}

/// Waits until one of two has refused, and makes sure that at no time both were ready.
async fn never_both(one: &Hub, other: &Hub) -> Result<()> {
    wait_for("one of the two to refuse", LIMIT, async || {
        let ready = async |hub: &Hub| hub.get("/readyz").await.is_ok_and(|(code, _)| code == 200);
        ensure_not_both(ready(one).await && ready(other).await)?;
        Ok((one.exit_status().is_some() || other.exit_status().is_some()).then_some(()))
    })
    .await?;
    for hub in [one, other] {
        if let Some(status) = hub.exit_status() {
            ensure!(status.code() == Some(1), "{}", hub.log());
            refused(hub, &["peers"]).await?;
        }
    }
    Ok(())
}

/// A wait takes errors for "not yet"; this one must end the test.
#[expect(clippy::unnecessary_wraps, reason = "it stands where an error is asked for")]
fn ensure_not_both(both: bool) -> Result<()> {
    assert!(!both, "two hubs are ready for the same tasks");
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_start_at_once_at_least_one_refuses() -> Result<()> {
    for round in 0..3 {
        // The same id, two instances.
        let mut same = Stage::without_hub("race", &[]).await?;
        let (one, other) = (same.spawn_instance("one")?, same.spawn_instance("other")?);
        never_both(&one, &other)
            .await
            .with_context(|| format!("round {round}, one id"))?;
        drop((one, other));
        // Two ids, the same tasks.
        let mut first = Stage::without_hub("race", &[]).await?;
        let mut second = first.neighbour("race", &first.scope.tenant, &[]).await?;
        let (one, other) = (first.spawn_instance("one")?, second.spawn_instance("other")?);
        never_both(&one, &other)
            .await
            .with_context(|| format!("round {round}, two ids"))?;
        for stage in [same, first, second] {
            stage.passed();
        }
    }
    Ok(())
}

/// Both write before either reads again, so each finds the other's record as it stays: only who renews while it watches is
/// seen alive.
///
/// Holds: M5.
#[tokio::test]
async fn two_that_watch_each_other_never_both_go_on() -> Result<()> {
    let mut first = Stage::without_hub("mutual", &[]).await?;
    let mut second = first.neighbour("mutual", &first.scope.tenant, &[]).await?;
    let proxy = Proxy::start(first.hub_user.client().await?).await?;
    proxy.meet_at("/leases");
    let kubeconfig = proxy.kubeconfig()?;
    let one = first.spawn_hub_with(&kubeconfig, &[(INSTANCE, "one")])?;
    let other = second.spawn_hub_with(&kubeconfig, &[(INSTANCE, "other")])?;
    never_both(&one, &other).await?;
    first.passed();
    second.passed();
    Ok(())
}

#[tokio::test]
async fn a_heartbeat_is_one_write_and_no_read() -> Result<()> {
    let mut stage = Stage::without_hub("beat", &[]).await?;
    let _hub = stage.instance("first").await?;
    let begin = stage.plane.audit()?.mark().await?;
    for _ in 0..2 {
        until_renewed(&stage).await?;
    }
    let mut counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    counts.retain(|action, _| action.ends_with(" leases"));
    ensure!(
        counts.keys().eq(["update leases"]) && counts["update leases"] <= 3,
        "{counts:?}"
    );
    stage.passed();
    Ok(())
}
