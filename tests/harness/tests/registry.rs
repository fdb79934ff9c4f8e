//! Promises of the harness: a registry that real clients use, with a password and with a certificate that is verified.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use renderhub_harness::process::run;
use renderhub_harness::{Registry, RegistryOptions, Tools};

/// A helm whose configuration and cache are its own.
fn helm(home: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(Tools::path("helm")?);
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME"] {
        command.env(name, home);
    }
    run(command.current_dir(home).args(words))
}

fn chart(home: &Path) -> Result<()> {
    std::fs::create_dir(home.join("tiny"))?;
    std::fs::write(
        home.join("tiny/Chart.yaml"),
        "apiVersion: v2\nname: tiny\nversion: 1.2.3\n",
    )?;
    helm(home, &["package", "tiny"]).map(drop)
}

#[tokio::test]
async fn a_password_is_needed_in_plain_http() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new()).await?;
    let home = tempfile::tempdir()?;
    let home = home.path();
    chart(home)?;
    let (host, url) = (registry.host(), format!("oci://{}/team", registry.host()));
    assert!(registry.address().ip().is_loopback() && registry.ca_pem().is_err());

    let refused = helm(home, &["push", "tiny-1.2.3.tgz", &url, "--plain-http"])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("401") || refused.contains("basic credential not found"),
        "{refused}"
    );
    let wrong = helm(
        home,
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

    std::fs::write(home.join("config.json"), registry.docker_config_json())?;
    let login = ["--plain-http", "--registry-config", "config.json"];
    helm(home, &[&["push", "tiny-1.2.3.tgz", &url][..], &login].concat())?;
    let shown = helm(
        home,
        &[
            &["show", "chart", &format!("{url}/tiny"), "--version", "1.2.3"][..],
            &login,
        ]
        .concat(),
    )?;
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
    let home = tempfile::tempdir()?;
    let home = home.path();
    chart(home)?;
    std::fs::write(home.join("ca.pem"), registry.ca_pem()?)?;
    let (host, password) = (registry.host(), registry.password().to_owned());
    let login = [
        "registry",
        "login",
        &host,
        "-u",
        registry.username(),
        "-p",
        &password,
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
    let home = tempfile::tempdir()?;
    chart(home.path())?;
    let url = format!("oci://{}/team", registry.host());
    helm(home.path(), &["push", "tiny-1.2.3.tgz", &url, "--plain-http"])?;
    Ok(())
}
