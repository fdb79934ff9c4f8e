//! Promises of the harness: a registry that real clients use, with a password and with a certificate that is verified.

use std::path::Path;

use anyhow::Result;
use renderhub_harness::helm::Helm;
use renderhub_harness::{Registry, RegistryOptions};

/// A registry, helm, and a directory with a packaged chart.
struct World {
    registry: Registry,
    helm: Helm,
    dir: tempfile::TempDir,
}

impl World {
    async fn start(options: RegistryOptions) -> Result<Self> {
        let registry = Registry::start(options).await?;
        let (helm, dir) = (Helm::new()?, tempfile::tempdir()?);
        let chart = dir.path().join("tiny");
        std::fs::create_dir(&chart)?;
        std::fs::write(
            chart.join("Chart.yaml"),
            "apiVersion: v2\nname: tiny\nversion: 1.2.3\n",
        )?;
        helm.run(&["package", &text(&chart), "--destination", &text(dir.path())])
            .await?;
        Ok(Self { registry, helm, dir })
    }

    fn with_password(mut self, password: &str) -> Result<Self> {
        self.helm = Helm::new()?.with_login(&self.registry.host(), self.registry.username(), password)?;
        Ok(self)
    }

    fn url(&self) -> String {
        format!("oci://{}/team", self.registry.host())
    }

    async fn push(&self, options: &[&str]) -> Result<String> {
        let package = text(&self.dir.path().join("tiny-1.2.3.tgz"));
        self.helm
            .run(&[&["push", &package, &self.url()], options].concat())
            .await
    }

    async fn show(&self, options: &[&str]) -> Result<String> {
        let chart = format!("{}/tiny", self.url());
        let words = ["show", "chart", &chart, "--version", "1.2.3"];
        self.helm.run(&[&words, options].concat()).await
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[tokio::test]
async fn a_password_is_needed() -> Result<()> {
    let world = World::start(RegistryOptions::new()).await?;
    assert!(world.registry.address().ip().is_loopback() && world.registry.ca_pem().is_err());
    let refused = world.push(&["--plain-http"]).await.unwrap_err().to_string();
    assert!(
        refused.contains("401") || refused.contains("basic credential not found"),
        "{refused}"
    );
    let wrong = world.with_password("wrong")?;
    let refused = wrong.push(&["--plain-http"]).await.unwrap_err().to_string();
    assert!(refused.contains("401"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn the_password_opens_it_and_is_not_logged() -> Result<()> {
    let world = World::start(RegistryOptions::new()).await?;
    let password = world.registry.password().to_owned();
    let world = world.with_password(&password)?;
    world.push(&["--plain-http"]).await?;
    let shown = world.show(&["--plain-http"]).await?;
    assert!(shown.contains("name: tiny"), "{shown}");
    assert!(
        world.registry.log().contains("/v2/team/tiny/manifests/"),
        "requests are logged"
    );
    assert!(!world.registry.log().contains(&password));
    Ok(())
}

#[tokio::test]
async fn the_docker_config_holds_the_password() -> Result<()> {
    let world = World::start(RegistryOptions::new()).await?;
    let config = world.dir.path().join("config.json");
    std::fs::write(&config, world.registry.docker_config_json())?;
    world
        .push(&["--plain-http", "--registry-config", &text(&config)])
        .await?;
    Ok(())
}

#[tokio::test]
async fn tls_is_verified_against_its_own_authority() -> Result<()> {
    let world = World::start(RegistryOptions::new().with_tls()).await?;
    let password = world.registry.password().to_owned();
    let world = world.with_password(&password)?;
    let refused = world.push(&[]).await.unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    let ca = world.dir.path().join("ca.pem");
    std::fs::write(&ca, world.registry.ca_pem()?)?;
    world.push(&["--ca-file", &text(&ca)]).await?;
    assert!(
        world
            .show(&["--ca-file", &text(&ca)])
            .await?
            .contains("version: 1.2.3")
    );
    Ok(())
}

#[tokio::test]
async fn anonymous_access_is_an_explicit_choice() -> Result<()> {
    let world = World::start(RegistryOptions::new().with_anonymous_access()).await?;
    world.push(&["--plain-http"]).await?;
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
