//! A Target that is pinned to an earlier version has its content, under a new number.

use anyhow::Result;
use serde_json::json;

use crate::scene::Scene;

#[tokio::test]
async fn a_target_goes_back_to_a_version_and_forward_again() -> Result<()> {
    let scene = Scene::new("back").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({"userdata": {"n": 1}})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.change_target("edge", json!({"userdata": {"n": 2}})).await?;
    scene.complete_version("edge", 2).await?;
    let first = scene.versions("edge").await?[0].spec.clone();
    scene
        .change_target("edge", json!({"rollbackTo": first.version}))
        .await?;
    scene.complete_version("edge", 3).await?;
    let message = scene
        .target_is("edge", "ReleasesResolved", "True", "Resolved")
        .await?;
    assert!(
        message.contains(&format!("pinned to version {}", first.version)),
        "{message}"
    );
    let third = scene.versions("edge").await?[2].spec.clone();
    assert_eq!(
        (third.version, third.userdata, third.rollback_to),
        (first.version + 2, first.userdata, Some(first.version))
    );
    assert_eq!(third.releases, first.releases);
    // What is bound meanwhile changes nothing.
    scene.change_target("edge", json!({"userdata": {"n": 3}})).await?;
    scene.ready("edge").await?;
    assert_eq!(scene.versions("edge").await?.len(), 3);
    scene.change_target("edge", json!({"rollbackTo": null})).await?;
    scene.complete_version("edge", 4).await?;
    assert_eq!(
        scene.versions("edge").await?[3].spec.userdata,
        Some(json!({"n": 3}))
    );
    scene.change_target("edge", json!({"rollbackTo": 7})).await?;
    scene
        .target_is("edge", "Stalled", "True", "VersionNotFound")
        .await?;
    scene.passed();
    Ok(())
}
