//! Promises of the harness: a registry that real clients use, with a password and with a certificate that is verified.

use std::path::Path;

use anyhow::Result;
use renderhub_harness::process::run;
use renderhub_harness::{Registry, RegistryOptions, commands};

/// Runs helm with a configuration of its own.
fn helm(home: &Path, words: &[&str]) -> Result<String> {
    run(commands::helm(home)?.args(words))
}

/// A home for helm with a packaged chart in it.
fn home_with_chart() -> Result<tempfile::TempDir> {
    let home = tempfile::tempdir()?;
    std::fs::create_dir(home.path().join("tiny"))?;
    std::fs::write(
        home.path().join("tiny/Chart.yaml"),
        "apiVersion: v2\nname: tiny\nversion: 1.2.3\n",
    )?;
    helm(home.path(), &["package", "tiny"])?;
    Ok(home)
}

#[tokio::test]
async fn a_password_is_needed() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new()).await?;
    let home = home_with_chart()?;
    let (host, url) = (registry.host(), format!("oci://{}/team", registry.host()));
    assert!(registry.address().ip().is_loopback() && registry.ca_pem().is_err());
    let refused = helm(home.path(), &["push", "tiny-1.2.3.tgz", &url, "--plain-http"])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("401") || refused.contains("basic credential not found"),
        "{refused}"
    );
    let wrong = helm(
        home.path(),
        &[
            "registry",
            "login",
            &host,
            "-u",
            "pusher",
            "-p",
            "wrong",
            "--plain-http",
        ],
    );
    assert!(wrong.is_err());
    Ok(())
}

#[tokio::test]
async fn the_docker_config_holds_the_password_and_the_log_does_not() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new()).await?;
    let home = home_with_chart()?;
    let url = format!("oci://{}/team", registry.host());
    std::fs::write(home.path().join("config.json"), registry.docker_config_json())?;
    let options = ["--plain-http", "--registry-config", "config.json"];
    let with_options = |words: &[&str]| helm(home.path(), &[words, &options].concat());
    with_options(&["push", "tiny-1.2.3.tgz", &url])?;
    let shown = with_options(&["show", "chart", &format!("{url}/tiny"), "--version", "1.2.3"])?;
    assert!(shown.contains("name: tiny"), "{shown}");
    assert!(
        registry.log().contains("/v2/team/tiny/manifests/"),
        "requests are logged"
    );
    assert!(!registry.log().contains(registry.password()));
    Ok(())
}

#[tokio::test]
async fn tls_is_verified_against_its_own_authority() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new().with_tls()).await?;
    let home = home_with_chart()?;
    let home = home.path();
    std::fs::write(home.join("ca.pem"), registry.ca_pem()?)?;
    let host = registry.host();
    let login = [
        "registry",
        "login",
        &host,
        "-u",
        registry.username(),
        "-p",
        registry.password(),
    ];
    let refused = helm(home, &login).unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    helm(home, &[&login[..], &["--ca-file", "ca.pem"]].concat())?;
    let url = format!("oci://{host}/team");
    helm(home, &["push", "tiny-1.2.3.tgz", &url, "--ca-file", "ca.pem"])?;
    std::fs::remove_file(home.join("tiny-1.2.3.tgz"))?;
    helm(
        home,
        &[
            "pull",
            &format!("{url}/tiny"),
            "--version",
            "1.2.3",
            "--ca-file",
            "ca.pem",
        ],
    )?;
    assert!(home.join("tiny-1.2.3.tgz").is_file());
    Ok(())
}

#[tokio::test]
async fn anonymous_access_is_an_explicit_choice() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new().with_anonymous_access()).await?;
    let home = home_with_chart()?;
    let url = format!("oci://{}/team", registry.host());
    helm(home.path(), &["push", "tiny-1.2.3.tgz", &url, "--plain-http"])?;
    Ok(())
}

#[tokio::test]
async fn a_registry_is_never_shown_to_a_real_network() {
    let everywhere = RegistryOptions::new().with_address("0.0.0.0".parse().expect("an address"));
    let refused = Registry::start(everywhere)
        .await
        .expect_err("it must refuse")
        .to_string();
    assert!(refused.contains("loopback"), "{refused}");
}
