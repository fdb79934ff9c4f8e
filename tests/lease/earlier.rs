//! An update from an earlier version, whose instances divided the namespaces of their hub and held a Lease each.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use renderhub_harness::apply;
use serde_json::json;

use support::Stage;
use support::instances::{ACTIVE, STANDBY, until_says};

/// Longer than the duration of a record that does not change.
const WATCHED: u32 = 20;

trait RenewedPart {
    /// Writes the Lease of such an instance, as each of its renewals did.
    async fn renew_part(&self) -> Result<()>;
}

impl RenewedPart for Stage {
    async fn renew_part(&self) -> Result<()> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": self.lease_name(".0").await?, "namespace": self.scope.rendering,
                "labels": {"app.kubernetes.io/part-of": "renderhub"},
                "annotations": {
                    "renderhub.dev/process": "7-1", "renderhub.dev/state": "active", "renderhub.dev/shards": "0,1",
                    "renderhub.dev/rendering-namespace": self.scope.rendering,
                    "renderhub.dev/watch-namespaces": self.scope.tenant,
                },
            },
            "spec": {
                "holderIdentity": "old", "leaseDurationSeconds": 15,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        });
        apply::object(&self.admin, lease).await.map(drop)
    }
}

/// Holds: M5.
#[tokio::test]
async fn a_hub_is_a_standby_until_the_last_instance_of_an_earlier_version_with_a_part_is_gone() -> Result<()>
{
    let mut stage = Stage::without_hub("earlier", &[]).await?;
    stage.renew_part().await?;
    let hub = stage.spawn_instance("new")?;
    for _ in 0..WATCHED {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.renew_part().await?;
        ensure!(
            stage.lease_at("").await.is_err(),
            "it works beside the other one: {}",
            hub.log()
        );
    }
    until_says(&hub, STANDBY).await?;
    // It is not renewed any more.
    until_says(&hub, ACTIVE).await?;
    assert_eq!(stage.holder_at(".0").await?, None);
    assert_eq!(stage.holder().await?.as_deref(), Some("new"));
    stage.passed();
    Ok(())
}
