//! What a Job names by its hash: another configuration is not rendered, to another destination nothing is pushed.

use renderhub::api::input_hashes::{CONFIG_SHA256, URL_SHA256, sha256};
use renderhub::api::termination::{TerminationPhase, TerminationReason};

use super::{RELEASE, Sandbox};

/// Holds: B29.
#[tokio::test]
async fn what_was_put_in_the_place_of_the_input_is_not_read() {
    let sandbox = Sandbox::new();
    let render = ["render", "config.json", "--out", "chart.tgz"];
    let mut command = sandbox.command(&render);
    let other = command.env(CONFIG_SHA256, sha256(b"{}")).output().await.unwrap();
    let ran = sandbox.finish(other);
    ran.failed(
        TerminationPhase::Render,
        TerminationReason::InputReplaced,
        "RENDERHUB_CONFIG_SHA256",
    );
    assert_eq!(ran.code, Some(2), "no second attempt helps");
    assert!(!sandbox.path("chart.tgz").exists());
    let mut command = sandbox.command(&render);
    let own = command
        .env(CONFIG_SHA256, sha256(RELEASE.as_bytes()))
        .output()
        .await
        .unwrap();
    assert_eq!(sandbox.finish(own).code, Some(0));

    sandbox.write("url", "oci://127.0.0.1:1/shop:1.0.0");
    let push = ["push", "chart.tgz", "--url-file", "url", "--plain-http"];
    let mut command = sandbox.command(&push);
    let other = command.env(URL_SHA256, sha256(b"oci://127.0.0.1:1/other:1.0.0"));
    let ran = sandbox.finish(other.output().await.unwrap());
    ran.failed(
        TerminationPhase::Push,
        TerminationReason::InputReplaced,
        "RENDERHUB_URL_SHA256",
    );
    assert_eq!(ran.code, Some(2));
}
