//! Pushes to the real distribution registry: password, token service, anonymous, and TLS of a private authority.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and its tables are long"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use renderhub::api::termination::{Termination, TerminationReason};
use renderhub_harness::process::Process;
use renderhub_harness::{Registry, RegistryOptions, Tools, net, rundir, wait_for};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;
use support::programs;
use support::registry::{BASIC, Hostile, PASSWORD, Reply, say};
use tokio::process::Command;

/// Renders a chart once, pushes it as a test says.
struct Pusher {
    dir: tempfile::TempDir,
}

impl Pusher {
    async fn new() -> Result<Self> {
        let pusher = Self {
            dir: tempfile::tempdir()?,
        };
        let config = json!({"type": "bootstrap", "bootstrap": {"chart": {"name": "boot", "version": "1.0.0+b"}, "input": {}}});
        std::fs::write(pusher.path("config.json"), config.to_string())?;
        let rendered = pusher
            .run(&["render", "config.json", "--out", "chart.tgz"], &[])
            .await?;
        anyhow::ensure!(rendered.reason == TerminationReason::Rendered, "not rendered");
        Ok(pusher)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> Result<String> {
        std::fs::write(self.path(name), content)?;
        Ok(name.to_owned())
    }

    async fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Result<Termination> {
        let mut command = Command::new(programs::renderer());
        command
            .args(args)
            .args(["--termination-log", "log"])
            .current_dir(self.dir.path())
            .env_clear();
        command.envs(env.iter().copied()).kill_on_drop(true);
        let output = command.output().await?;
        let message = Termination::parse(&std::fs::read_to_string(self.path("log"))?);
        let message = message.context("no termination message")?;
        anyhow::ensure!(
            output.status.success() == message.reason.is_success(),
            "exit code and message differ"
        );
        Ok(message)
    }

    async fn push(&self, host: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Termination> {
        let url = format!("oci://{host}/platform/team-a/boot:1.0.0+b");
        self.run(&[&["push", "chart.tgz", "--url", &url], args].concat(), env)
            .await
    }
}

#[tokio::test]
async fn a_registry_with_a_password() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new()).await?;
    let (pusher, host) = (Pusher::new().await?, registry.host());
    let plain = ["--plain-http"];
    assert_eq!(
        pusher.push(&host, &plain, &[]).await?.reason,
        TerminationReason::CredentialRequired
    );
    let wrong = registry
        .docker_config_json()
        .replace("\"auth\":", "\"unused\":")
        .replace(registry.password(), "wrong");
    let wrong = pusher.write("wrong.json", &wrong)?;
    assert_eq!(
        pusher
            .push(&host, &plain, &[("DOCKER_CONFIG", &wrong)])
            .await?
            .reason,
        TerminationReason::Unauthorized
    );
    let right = pusher.write("right.json", &registry.docker_config_json())?;
    let first = pusher.push(&host, &plain, &[("DOCKER_CONFIG", &right)]).await?;
    assert_eq!(first.reason, TerminationReason::Pushed);
    pusher.write("username", registry.username())?;
    pusher.write("password", registry.password())?;
    let files = [
        "--plain-http",
        "--username-file",
        "username",
        "--password-file",
        "password",
    ];
    let again = pusher.push(&host, &files, &[]).await?;
    assert_eq!(
        (again.reason, again.digest),
        (TerminationReason::AlreadyExists, first.digest)
    );
    assert_eq!(
        pusher
            .push(&host, &[], &[("DOCKER_CONFIG", &right)])
            .await?
            .reason,
        TerminationReason::RegistryUnreachable,
        "no TLS there"
    );
    Ok(())
}

#[tokio::test]
async fn a_registry_open_to_everybody() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new().with_anonymous_access()).await?;
    let pusher = Pusher::new().await?;
    assert_eq!(
        pusher
            .push(&registry.host(), &["--plain-http"], &[])
            .await?
            .reason,
        TerminationReason::Pushed
    );
    // A credential for it does no harm, and is not sent, since the registry does not ask for one.
    pusher.write("auth.json", &registry.docker_config_json())?;
    let again = pusher
        .push(
            &registry.host(),
            &["--plain-http"],
            &[("DOCKER_CONFIG", "auth.json")],
        )
        .await?;
    assert_eq!(again.reason, TerminationReason::AlreadyExists);
    Ok(())
}

/// Holds: O5.
#[tokio::test]
async fn a_registry_with_a_private_authority() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new().with_tls()).await?;
    let (pusher, host) = (Pusher::new().await?, registry.host());
    let auth = ("DOCKER_CONFIG", "auth.json");
    pusher.write("auth.json", &registry.docker_config_json())?;
    pusher.write("ca.pem", registry.ca_pem()?)?;
    assert_eq!(
        pusher.push(&host, &["--timeout", "10"], &[auth]).await?.reason,
        TerminationReason::RegistryUnreachable,
        "unknown authority"
    );
    assert!(
        !registry.log().contains("manifests"),
        "nothing is asked before the certificate is good"
    );
    assert_eq!(
        pusher
            .push(&host, &["--ca-file", "ca.pem"], &[auth])
            .await?
            .reason,
        TerminationReason::Pushed
    );
    assert_eq!(
        pusher
            .push(&host, &[], &[auth, ("SSL_CERT_FILE", "ca.pem")])
            .await?
            .reason,
        TerminationReason::AlreadyExists
    );
    // The certificate is for an address; a name of the same address is another host.
    let port = registry.address().port();
    let name = format!("localhost:{port}");
    pusher.write("auth.json", &registry.docker_config_json().replace(&host, &name))?;
    let renamed = pusher
        .push(&name, &["--ca-file", "ca.pem", "--timeout", "10"], &[auth])
        .await?;
    assert_eq!(renamed.reason, TerminationReason::RegistryUnreachable);
    Ok(())
}

/// Holds: C4.
#[tokio::test]
async fn another_chart_under_the_tag_is_a_conflict() -> Result<()> {
    let registry = Registry::start(RegistryOptions::new().with_anonymous_access()).await?;
    let pusher = Pusher::new().await?;
    assert_eq!(
        pusher
            .push(&registry.host(), &["--plain-http"], &[])
            .await?
            .reason,
        TerminationReason::Pushed
    );
    let config = std::fs::read_to_string(pusher.path("config.json"))?
        .replace("\"input\":{}", "\"input\":{\"userdata\":1}");
    pusher.write("config.json", &config)?;
    pusher
        .run(&["render", "config.json", "--out", "chart.tgz"], &[])
        .await?;
    assert_eq!(
        pusher
            .push(&registry.host(), &["--plain-http"], &[])
            .await?
            .reason,
        TerminationReason::TagConflict
    );
    Ok(())
}

// === a token service ===

/// Signs tokens as the registry is configured to trust them.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new() -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap())
    }

    /// The public key as the registry reads it.
    fn jwks(&self) -> String {
        let public = URL_SAFE_NO_PAD.encode(self.0.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": "test", "x": public}]}).to_string()
    }

    /// A token for what the query asks for, as far as `actions` goes.
    fn token(&self, repository: &str, actions: &[&str]) -> String {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let claims = json!({
            "iss": "test", "aud": "registry", "sub": "canary-user", "jti": "1", "iat": now, "nbf": now - 60, "exp": now + 600,
            "access": [{"type": "repository", "name": repository, "actions": actions}],
        });
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = format!(
            "{}.{}",
            encode(json!({"alg": "EdDSA", "typ": "JWT", "kid": "test"})),
            encode(claims)
        );
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(head.as_bytes()));
        format!("{head}.{signature}")
    }
}

/// A token service that grants `actions` on the repository that was asked for.
async fn token_service(actions: &'static [&'static str]) -> Hostile {
    Hostile::start(move |seen, _| {
        if seen.authorization() != Some(BASIC) {
            return Some(say(401, &[]));
        }
        let repository = seen
            .target()
            .split("repository%3A")
            .nth(1)?
            .split("%3A")
            .next()?
            .replace("%2F", "/");
        let body = json!({"token": Signer::new().token(&repository, actions)}).to_string();
        Some(Reply::Say(200, Vec::new(), body.into_bytes()))
    })
    .await
}

/// The real registry, sending its clients to the token service at `realm`.
async fn registry_with_tokens(realm: &str) -> Result<(Process, String)> {
    let dir = rundir::fresh("token-registry")?;
    let ip = net::loopback();
    let address = std::net::SocketAddr::new(ip, net::free_port(ip)?);
    let file = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("jwks.json"), Signer::new().jwks())?;
    let config = json!({
        "version": "0.1", "log": {"level": "info"}, "http": {"addr": address.to_string()},
        "storage": {"filesystem": {"rootdirectory": file("data")}},
        "auth": {"token": {"realm": realm, "service": "registry", "issuer": "test", "jwks": file("jwks.json"), "signingalgorithms": ["EdDSA"]}},
    });
    std::fs::write(dir.join("config.yml"), config.to_string())?;
    let mut command = std::process::Command::new(Tools::path("registry")?);
    command
        .arg("serve")
        .arg(dir.join("config.yml"))
        .env("OTEL_TRACES_EXPORTER", "none");
    let process = Process::spawn("the registry", &command, Path::new(&file("log")))?;
    wait_for("the registry to listen", Duration::from_secs(60), async || {
        process.check_running()?;
        Ok(std::net::TcpStream::connect(address).is_ok().then_some(()))
    })
    .await?;
    Ok((process, address.to_string()))
}

/// Holds: O1.
#[tokio::test]
async fn a_registry_with_a_token_service() -> Result<()> {
    let service = token_service(&["pull", "push"]).await;
    let realm = format!("http://{}/token", service.address);
    let (_process, host) = registry_with_tokens(&realm).await?;
    let pusher = Pusher::new().await?;
    pusher.write("username", "canary-user")?;
    pusher.write("password", PASSWORD)?;
    let files = [
        "--plain-http",
        "--username-file",
        "username",
        "--password-file",
        "password",
    ];
    assert_eq!(
        pusher.push(&host, &files, &[]).await?.reason,
        TerminationReason::RealmRefused,
        "not named beforehand"
    );
    assert!(service.seen().is_empty(), "and not told the password");
    let named = [&files[..], &["--token-realm", &realm]].concat();
    assert_eq!(
        pusher.push(&host, &named, &[]).await?.reason,
        TerminationReason::Pushed
    );
    assert_eq!(
        pusher.push(&host, &named, &[]).await?.reason,
        TerminationReason::AlreadyExists
    );
    for seen in service.seen() {
        assert_eq!(
            seen.target(),
            "/token?service=registry&scope=repository%3Aplatform%2Fteam-a%2Fboot%3Apull%2Cpush"
        );
    }
    assert_eq!(service.seen().len(), 2, "one token a push");
    Ok(())
}

/// Holds: O1, O5.
#[tokio::test]
async fn a_plain_registry_with_an_encrypted_token_service() -> Result<()> {
    // Any server with TLS will do: what counts is that its certificate is checked against what the platform trusts.
    let service = Registry::start(RegistryOptions::new().with_tls()).await?;
    let realm = format!("https://{}/v2/", service.host());
    let challenge = format!("Bearer realm=\"{realm}\"");
    let registry =
        Hostile::start(move |_, _| Some(say(401, &[("WWW-Authenticate", challenge.clone())]))).await;
    let (pusher, host) = (Pusher::new().await?, registry.address.to_string());
    pusher.write("ca.pem", service.ca_pem()?)?;
    let plain = ["--plain-http", "--timeout", "10", "--token-realm", &realm];
    assert_eq!(
        pusher.push(&host, &plain, &[]).await?.reason,
        TerminationReason::RegistryUnreachable,
        "unknown authority"
    );
    assert!(!service.log().contains("/v2/?"));
    let trusted = [&plain[..], &["--ca-file", "ca.pem"]].concat();
    assert_eq!(
        pusher.push(&host, &trusted, &[]).await?.reason,
        TerminationReason::CredentialRequired,
        "the service itself refuses"
    );
    Ok(())
}

#[tokio::test]
async fn a_token_that_may_only_pull() -> Result<()> {
    let service = token_service(&["pull"]).await;
    let realm = format!("http://{}/token", service.address);
    let (_process, host) = registry_with_tokens(&realm).await?;
    let pusher = Pusher::new().await?;
    pusher.write("username", "canary-user")?;
    pusher.write("password", PASSWORD)?;
    let args = [
        "--plain-http",
        "--username-file",
        "username",
        "--password-file",
        "password",
        "--token-realm",
        &realm,
    ];
    // The registry answers 401 rather than 403 where a token's scope is too small.
    assert_eq!(
        pusher.push(&host, &args, &[]).await?.reason,
        TerminationReason::Unauthorized
    );
    Ok(())
}
