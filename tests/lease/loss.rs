//! Who has lost its Lease ends at once, and who may not keep one does not begin.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub_harness::{Hub, wait_for};
use serde_json::json;

use support::instances::{ACTIVE, STANDBY, until_renewed, until_says};
use support::proxy::{Proxy, Stop};
use support::{LIMIT, Stage};

/// A renewal is due every 5 s, and a call takes 4 s at most.
const NOTICED: Duration = Duration::from_secs(15);

/// Waits for the end of a hub that finds another holder in its record.
async fn ends_for_loss(hub: &Hub) -> Result<()> {
    let status = hub.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "it ended with {status}: {}", hub.log());
    let says = "another instance has taken over";
    ensure!(hub.log().contains(says), "{}", hub.log());
    Ok(())
}

trait Holders {
    /// Writes another holder, or none, into a record, as an administrator with good intentions would.
    async fn write_holder(&self, suffix: &str, holder: Option<&str>) -> Result<()>;
}

impl Holders for Stage {
    async fn write_holder(&self, suffix: &str, holder: Option<&str>) -> Result<()> {
        let name = self.lease_name(suffix).await?;
        let edit = Patch::Merge(json!({"spec": {"holderIdentity": holder}}));
        self.leases().patch(&name, &PatchParams::default(), &edit).await?;
        Ok(())
    }
}

/// Holds: M5.
#[tokio::test]
async fn a_holder_that_finds_another_holder_or_none_in_its_record_ends() -> Result<()> {
    let mut stage = Stage::without_hub("edited", &[]).await?;
    for (instance, holder) in [("first", Some("somebody")), ("second", None)] {
        let hub = stage.spawn_instance(instance)?;
        // The second finds a holder that does not exist, and waits until it counts as gone.
        until_says(&hub, ACTIVE).await?;
        let edited = Instant::now();
        stage.write_holder("", holder).await?;
        ends_for_loss(&hub).await?;
        ensure!(edited.elapsed() < NOTICED, "{:?}", edited.elapsed());
        assert_eq!(stage.holder().await?.as_deref(), holder);
    }
    stage.passed();
    Ok(())
}

/// The grace period is for who still has the right to work.
///
/// Holds: M5.
#[tokio::test]
async fn a_holder_that_loses_its_record_while_it_drains_ends_at_once() -> Result<()> {
    let mut stage = Stage::without_hub("drained", &["--grace-period=5m"]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    proxy.stop_at(2, Stop::Before);
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    stage.submit(stage.task("shop")).await?;
    proxy.stopped().await?;
    let (ended, lost) = tokio::join!(hub.sigterm(LIMIT), async {
        wait_for("the hub to drain", LIMIT, async || {
            Ok(hub.log().contains("work under way is finished").then_some(()))
        })
        .await?;
        stage.write_holder("", Some("somebody")).await
    });
    lost?;
    ensure!(ended?.code() == Some(1), "{}", hub.log());
    ensure!(
        hub.log().contains("another instance has taken over"),
        "{}",
        hub.log()
    );
    drop(proxy);
    stage.passed();
    Ok(())
}

/// A standby has nothing to lose: it finds itself another record, or writes its own again.
#[tokio::test]
async fn a_standby_whose_record_is_removed_or_taken_stays_a_standby() -> Result<()> {
    let mut stage = Stage::without_hub("robbed", &[]).await?;
    let first = stage.instance("first").await?;
    let standby = stage.standby("second").await?;
    let name = stage.lease_name(".standby-0").await?;
    stage.leases().delete(&name, &DeleteParams::default()).await?;
    let has = async |suffix: &str| {
        wait_for("the standby's record", LIMIT, async || {
            let holder = stage.holder_at(suffix).await?;
            Ok((holder.as_deref() == Some("second")).then_some(()))
        })
        .await
    };
    has(".standby-0").await?;
    stage.write_holder(".standby-0", Some("somebody")).await?;
    has(".standby-1").await?;
    assert_eq!(standby.get("/readyz").await?, (200, STANDBY.to_owned()));
    until_renewed(&stage).await?;
    ensure!(first.exit_status().is_none(), "{}", first.log());
    stage.passed();
    Ok(())
}

/// A hub ends that may not do this with Leases, and says so.
async fn needs(verb: &str, says: &str, has_record: bool) -> Result<()> {
    let mut stage = Stage::without_hub("verbs", &[]).await?;
    if has_record {
        let hub = stage.instance("first").await?;
        ensure!(hub.sigterm(LIMIT).await?.code() == Some(0), "{}", hub.log());
    }
    stage.forbid(verb, "leases").await?;
    let hub = stage.spawn_instance("first")?;
    let status = hub.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "{verb}: {}", hub.log());
    let says = format!("leases cannot be {says} in the lease namespace");
    ensure!(hub.log().contains(&says), "{verb}: {}", hub.log());
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_hub_that_may_not_keep_a_record_says_so_and_ends() -> Result<()> {
    tokio::try_join!(
        needs("list", "listed", false),
        needs("create", "written", false),
        needs("update", "written", true),
    )?;
    Ok(())
}

/// People read Leases: which hub it is, what its holder does, where its Jobs run.
#[tokio::test]
async fn a_record_says_what_people_look_for() -> Result<()> {
    let mut stage = Stage::without_hub("said", &[]).await?;
    let _hub = stage.instance("first").await?;
    let lease = stage.lease().await?;
    let said = lease.annotations();
    assert_eq!(said["renderhub.dev/state"], "active");
    assert_eq!(said["renderhub.dev/rendering-namespace"], stage.scope.rendering);
    assert_eq!(said["renderhub.dev/watch-namespaces"], stage.scope.tenant);
    ensure!(!said.contains_key("renderhub.dev/former-namespaces"));
    assert_eq!(lease.labels()["app.kubernetes.io/part-of"], "renderhub");
    stage.passed();
    Ok(())
}
