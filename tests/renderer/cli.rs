//! The program as its callers see it: arguments, exit codes, lines, termination messages, files left behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and its tables are long"
)]

#[path = "cli/bounds.rs"]
mod bounds;
#[path = "cli/pinned.rs"]
mod pinned;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use renderhub::api::termination::{Termination, TerminationPhase, TerminationReason};
use renderhub_harness::Canaries;
use support::programs;
use support::registry::{BASIC, Hostile, PASSWORD, Reply, say};
use tokio::process::Command;

const RELEASE: &str = r#"{"type":"release","release":{"chart":{"name":"shop","version":"1.0.0","description":"d"},
    "input":{"component":{"name":"c"},"resources":{"r":{"repository":"example.com/r","tag":"1"}},"entrypoint":{"resourceName":"r","type":"helm"}},
    "values":{"secret":"canary-value"}}}"#;

/// A directory for one test: its files, its TMPDIR, its termination message.
struct Sandbox {
    dir: tempfile::TempDir,
}

/// What one run did.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    message: Option<Termination>,
}

impl Sandbox {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tmp")).unwrap();
        std::fs::write(dir.path().join("config.json"), RELEASE).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(programs::renderer());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .kill_on_drop(true);
        command
            .env("TMPDIR", self.path("tmp"))
            .env("RENDERHUB_TERMINATION_LOG", self.path("log"));
        command.env("HOME", self.dir.path()).env("RUST_LOG", "trace");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        self.finish(self.command(args).output().await.unwrap())
    }

    fn finish(&self, output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let message = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let ran = Ran {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            message: Termination::parse(&message),
        };
        let left: Vec<_> = std::fs::read_dir(self.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "temporary files stay: {left:?}");
        let password = Canaries::new().with("the password", PASSWORD);
        for text in [&ran.stdout, &ran.stderr, &message] {
            assert!(!text.contains("canary") && !text.contains(BASIC), "{text}");
            assert_eq!(password.find("what is said", text), []);
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
        ran
    }
}

impl Ran {
    fn failed(&self, phase: TerminationPhase, reason: TerminationReason, text: &str) {
        // Which of the two it is, is the matter of a test of its own.
        let permanent = self.code == Some(2) && reason.is_permanent();
        assert!(
            self.code == Some(1) || permanent,
            "{:?}: {}",
            self.code,
            self.stderr
        );
        let said = self
            .message
            .as_ref()
            .map(|message| (message.phase, message.reason));
        assert_eq!(said, Some((phase, reason)), "{}", self.stderr);
        assert!(self.stderr.contains(text), "{} lacks {text}", self.stderr);
        assert!(
            self.stderr.contains("Error: ") && self.stderr.contains("Failed with: "),
            "{}",
            self.stderr
        );
    }

    fn succeeded(&self, reason: TerminationReason, lines: &[&str]) {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.message.as_ref().map(|message| message.reason), Some(reason));
        for line in lines {
            assert!(self.stdout.contains(line), "{} lacks {line}", self.stdout);
        }
        assert_eq!(self.stderr, "");
    }
}

#[tokio::test]
async fn rendering_alone() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["--skip-push", "config.json"]).await;
    ran.succeeded(
        TerminationReason::Rendered,
        &["Rendered release to ", " (skip-push)"],
    );
    let place = ran
        .stdout
        .trim()
        .trim_start_matches("Rendered release to ")
        .trim_end_matches(" (skip-push)");
    assert!(place.starts_with(sandbox.path("tmp").to_str().unwrap()) && !Path::new(place).exists());
}

#[tokio::test]
async fn configurations_that_cannot_be_rendered() {
    let sandbox = Sandbox::new();
    for (content, reason, text) in [
        (
            "invalid: yaml: canary: [",
            TerminationReason::BadConfig,
            "failed to parse config-file: ",
        ),
        (
            "type: [canary]",
            TerminationReason::BadConfig,
            "failed to parse config-file: ",
        ),
        (
            "type: widget",
            TerminationReason::BadConfig,
            "unknown type specified in config: expected release or bootstrap, found \"widget\"",
        ),
        (
            "type: \"canary \\e[31m\"",
            TerminationReason::BadConfig,
            "expected release or bootstrap, found something else than a plain word",
        ),
        (
            "",
            TerminationReason::BadConfig,
            "expected release or bootstrap, found none",
        ),
        (
            "type: release\nrelease: {chart: {name: ../canary, version: 1}}",
            TerminationReason::BadConfig,
            "invalid chart name",
        ),
        (
            "type: release\nrelease: {chart: {name: c, version: canary}}",
            TerminationReason::BadConfig,
            "invalid chart version",
        ),
        (
            &" ".repeat(5 << 20),
            TerminationReason::ChartTooLarge,
            "failed to read config-file bad.yaml: file is too large",
        ),
    ] {
        sandbox.write("bad.yaml", content);
        for args in [
            &["--skip-push", "bad.yaml"][..],
            &["render", "bad.yaml", "--out", "chart.tgz"],
        ] {
            sandbox
                .run(args)
                .await
                .failed(TerminationPhase::Render, reason, text);
        }
    }
    assert!(!sandbox.path("chart.tgz").exists(), "nothing half-written");
    let missing = sandbox.run(&["--skip-push", "none"]).await;
    missing.failed(
        TerminationPhase::Render,
        TerminationReason::BadConfig,
        "failed to read config-file none: no such file or directory",
    );
    for args in [&[][..], &["--skip-push"]] {
        let none = sandbox.run(args).await;
        none.failed(
            TerminationPhase::Render,
            TerminationReason::BadConfig,
            "config-file is required",
        );
    }
}

/// Helm would say so only at the installation, when the tag is taken and a corrected chart meets a conflict.
#[tokio::test]
async fn a_release_whose_entrypoint_leads_nowhere_is_rendered_by_the_one_shot_form_alone() {
    let sandbox = Sandbox::new();
    let entrypoint = "\"resourceName\":\"r\"";
    assert!(RELEASE.contains(entrypoint), "{RELEASE}");
    sandbox.write("bad.yaml", &RELEASE.replace(entrypoint, "\"resourceName\":\"x\""));
    sandbox
        .run(&["render", "bad.yaml", "--out", "chart.tgz"])
        .await
        .failed(
            TerminationPhase::Render,
            TerminationReason::BadConfig,
            "entrypoint.resourceName in config is not a key of resources",
        );
    assert!(!sandbox.path("chart.tgz").exists());
    let one_shot = sandbox.run(&["--skip-push", "bad.yaml"]).await;
    one_shot.succeeded(TerminationReason::Rendered, &["Rendered release to "]);
}

#[tokio::test]
async fn what_was_rendered_is_printed_before_a_push_that_fails() {
    let sandbox = Sandbox::new();
    let url = "--url=oci://127.0.0.1:1/team-a/shop:1.0.0";
    let ran = sandbox.run(&["--plain-http", url, "config.json"]).await;
    ran.failed(
        TerminationPhase::Push,
        TerminationReason::RegistryUnreachable,
        "cannot reach the registry",
    );
    assert!(ran.stdout.starts_with("Rendered release to "), "{}", ran.stdout);
}

#[tokio::test]
async fn an_unusable_directory_for_temporary_files() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .command(&["--skip-push", "config.json"])
        .env("TMPDIR", "/nonexistent")
        .output()
        .await
        .unwrap();
    sandbox.finish(output).failed(
        TerminationPhase::Render,
        TerminationReason::Internal,
        "no such file or directory",
    );
}

#[tokio::test]
async fn command_lines_that_are_none() {
    let sandbox = Sandbox::new();
    for args in [
        &["a", "b"][..],
        &["--nope", "config.json"],
        &["push", "x"],
        &["render", "config.json"],
        &["--timeout=0", "c"],
        &["push", "x", "--url=oci://h/a:1", "--registry=oci://h"],
        &["--registry=h", "config.json"],
        &["push", "x", "--url=oci://h/a:1", "--repository-prefix=/a"],
        &["--repository-prefix=a/", "config.json"],
    ] {
        let ran = sandbox.run(args).await;
        assert_eq!(ran.code, Some(1), "{args:?}");
        assert!(ran.stderr.contains("try '--help'"), "{}", ran.stderr);
    }
    for args in [&["--help"][..], &["--version"], &["push", "--help"]] {
        assert_eq!(sandbox.run(args).await.code, Some(0), "{args:?}");
    }
}

#[tokio::test]
async fn exit_codes_say_whether_a_second_attempt_can_help() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", "type: unknown");
    let url = "oci://127.0.0.1:1/team-a/other:1.0.0";
    let absent = "oci://127.0.0.1:1/team-a/shop:1.0.0";
    // No credential becomes another one by trying it again.
    let registry = guarded().await;
    let refusing = format!("oci://{}/team-a/shop:1.0.0", registry.address);
    let render = ["render", "config.json", "--out", "chart.tgz"];
    assert_eq!(sandbox.run(&render).await.code, Some(0));
    for (args, code) in [
        (&["--skip-push", "bad.yaml"][..], 1),
        (&["--plain-http", "--url", url, "config.json"], 1),
        (&["render", "bad.yaml", "--out", "x.tgz"], 2),
        (&["push", "none", "--url", url], 2),
        (&["push", "chart.tgz", "--url", url], 2),
        (
            &[
                "push",
                "chart.tgz",
                "--url",
                url,
                "--username-file",
                "x",
                "--password-file",
                "y",
            ],
            2,
        ),
        (&["push", "chart.tgz", "--plain-http", "--url", &refusing], 2),
        (&["push", "chart.tgz", "--plain-http", "--url", absent], 1),
        (&["push"], 1),
    ] {
        assert_eq!(sandbox.run(args).await.code, Some(code), "{args:?}");
    }
}

#[tokio::test]
async fn two_halves_as_the_job_runs_them() {
    let (sandbox, registry) = (Sandbox::new(), Hostile::honest().await);
    let url = format!("oci://{}/team-a/shop:1.0.0\n", registry.address);
    sandbox.write("url", &url);
    let push = ["push", "chart.tgz", "--url-file", "url", "--plain-http"];
    let render = ["render", "config.json", "--out", "chart.tgz"];
    sandbox
        .run(&render)
        .await
        .succeeded(TerminationReason::Rendered, &["Rendered release to chart.tgz"]);
    assert!(registry.seen().is_empty(), "rendering needs no network");
    let first = sandbox.run(&push).await;
    first.succeeded(
        TerminationReason::Pushed,
        &["Pushed result to ", "/team-a/shop:1.0.0"],
    );
    // A Job that is tried again renders the same bytes, so the second push finds its own chart.
    sandbox
        .run(&render)
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    let second = sandbox.run(&push).await;
    second.succeeded(
        TerminationReason::AlreadyExists,
        &[&format!("Chart already exists at {}, skipping", url.trim())],
    );
    assert_eq!(first.message.unwrap().digest, second.message.unwrap().digest);
    sandbox.write("config.json", &RELEASE.replace("\"d\"", "\"e\""));
    sandbox
        .run(&render)
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    sandbox.run(&push).await.failed(
        TerminationPhase::Push,
        TerminationReason::TagConflict,
        "failed to push result: ",
    );
}

#[tokio::test]
async fn one_shot_does_not_render_what_exists() {
    let (sandbox, registry) = (Sandbox::new(), Hostile::honest().await);
    let url = format!("--url=oci://{}/team-a/shop:1.0.0", registry.address);
    let args = ["--plain-http", &url, "config.json"];
    sandbox.run(&args).await.succeeded(
        TerminationReason::Pushed,
        &["Rendered release to ", "Pushed result to "],
    );
    let again = sandbox.run(&args).await;
    again.succeeded(
        TerminationReason::AlreadyExists,
        &["Chart already exists at oci://", ", skipping render and push"],
    );
    assert!(!again.stdout.contains("Rendered"));
}

#[tokio::test]
async fn destinations_that_are_none() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["render", "config.json", "--out", "chart.tgz"])
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    for (url, text) in [
        ("", "registry reference is required"),
        (
            "oci://127.0.0.1:1/team-a/shop:",
            "failed to parse reference: invalid tag",
        ),
        ("oci://127.0.0.1:1/team-a/shop", "failed to parse reference"),
        (
            "oci://127.0.0.1:1/Canary/shop:1.0.0",
            "failed to parse reference: invalid repository",
        ),
        (
            "https://127.0.0.1:1/team-a/shop:1.0.0",
            "failed to parse reference",
        ),
        (
            "oci://u:p@127.0.0.1:1/team-a/shop:1.0.0",
            "failed to parse reference: invalid registry host",
        ),
        (
            "oci://127.0.0.1:1/team-a/other:1.0.0",
            "strict mode enabled, ref basename and tag must match",
        ),
        (
            "oci://127.0.0.1:1/team-a/shop:1.0.1",
            "strict mode enabled, ref basename and tag must match",
        ),
    ] {
        for args in [
            &["--plain-http", "--url", url, "config.json"],
            &["push", "chart.tgz", "--url", url],
        ] {
            let ran = sandbox.run(args).await;
            ran.failed(
                TerminationPhase::Push,
                TerminationReason::BadDestination,
                &format!("failed to push result: {}", ""),
            );
            assert!(ran.stderr.contains(text), "{}", ran.stderr);
        }
    }
    let ran = sandbox.run(&["push", "chart.tgz", "--url-file", "none"]).await;
    ran.failed(
        TerminationPhase::Push,
        TerminationReason::BadDestination,
        "failed to read url-file none: no such file or directory",
    );
}

/// Holds: X1.
#[tokio::test]
async fn archives_that_are_none() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["render", "config.json", "--out", "chart.tgz"])
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    let secret = sandbox.write("credentials.json", "canary");
    std::os::unix::fs::symlink(secret, sandbox.path("link")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("chart.tgz"), sandbox.path("link-to-chart")).unwrap();
    sandbox.write("garbage", "canary");
    std::fs::File::create(sandbox.path("huge"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    for (archive, reason) in [
        ("none", TerminationReason::BadArchive),
        ("link", TerminationReason::BadArchive),
        ("link-to-chart", TerminationReason::BadArchive),
        ("garbage", TerminationReason::BadArchive),
        ("tmp", TerminationReason::BadArchive),
        ("/dev/zero", TerminationReason::BadArchive),
        ("huge", TerminationReason::ChartTooLarge),
    ] {
        let ran = sandbox
            .run(&["push", archive, "--url", "oci://127.0.0.1:1/team-a/shop:1.0.0"])
            .await;
        ran.failed(TerminationPhase::Push, reason, "failed to push result: ");
    }
}

/// A registry that accepts the canary and nothing else.
async fn guarded() -> Hostile {
    Hostile::start(|seen, _| {
        let challenge = [("WWW-Authenticate", "Basic realm=\"x\"".to_owned())];
        (seen.authorization() != Some(BASIC)).then(|| say(401, &challenge))
    })
    .await
}

#[tokio::test]
async fn credentials_of_the_one_shot_form() {
    let (sandbox, registry) = (Sandbox::new(), guarded().await);
    let url = format!("--url=oci://{}/team-a/shop:1.0.0", registry.address);
    let base = ["--plain-http", &url, "config.json"];
    let with = |args: &[&str]| sandbox.command(&[&base[..], args].concat());
    let auths = |password: &str| {
        serde_json::json!({"auths": {registry.address.to_string(): {"username": "canary-user", "password": password}}}).to_string()
    };
    let file = sandbox.write("auth.json", &auths(PASSWORD));
    sandbox.write("config.json.d", "");
    let flags = ["--username", "canary-user", "--password", PASSWORD];

    let refused = sandbox.finish(with(&[]).output().await.unwrap());
    refused.failed(
        TerminationPhase::Push,
        TerminationReason::CredentialRequired,
        "failed to push result: failed to push chart to registry: the registry does not allow this push without a credential",
    );
    assert!(refused.message.is_some_and(|message| !message.credential_sent));
    let wrong = sandbox.finish(
        with(&["--username=canary-user", "--password=x"])
            .output()
            .await
            .unwrap(),
    );
    wrong.failed(
        TerminationPhase::Push,
        TerminationReason::Unauthorized,
        "does not accept the credential (401)",
    );
    assert!(wrong.message.is_some_and(|message| message.credential_sent));
    assert!(
        registry.steps().iter().all(|step| *step == "lookup"),
        "nothing is uploaded"
    );

    sandbox
        .finish(with(&flags).output().await.unwrap())
        .succeeded(TerminationReason::Pushed, &["Rendered release"]);
    let variables = with(&[])
        .env("REGISTRY_USERNAME", "canary-user")
        .env("REGISTRY_PASSWORD", PASSWORD)
        .output()
        .await;
    sandbox
        .finish(variables.unwrap())
        .succeeded(TerminationReason::AlreadyExists, &[]);
    let from_file = with(&[]).env("DOCKER_CONFIG", &file).output().await;
    sandbox
        .finish(from_file.unwrap())
        .succeeded(TerminationReason::AlreadyExists, &[]);
    let half = with(&["--username", "canary-user"])
        .env("DOCKER_CONFIG", &file)
        .output()
        .await;
    sandbox
        .finish(half.unwrap())
        .succeeded(TerminationReason::AlreadyExists, &[]);
    std::fs::create_dir(sandbox.path(".docker")).unwrap();
    sandbox.write(".docker/config.json", &auths(PASSWORD));
    sandbox
        .finish(with(&[]).output().await.unwrap())
        .succeeded(TerminationReason::AlreadyExists, &[]);
    let directory = with(&[])
        .env("DOCKER_CONFIG", sandbox.path(".docker"))
        .output()
        .await;
    sandbox
        .finish(directory.unwrap())
        .succeeded(TerminationReason::AlreadyExists, &[]);
    let absent = with(&[]).env("DOCKER_CONFIG", "/none").output().await;
    sandbox.finish(absent.unwrap()).failed(
        TerminationPhase::Push,
        TerminationReason::CredentialRequired,
        "none was sent to it",
    );
    sandbox.write("auth.json", r#"{"auths":{"other.example":{"auth":"canary"}}}"#);
    let other = with(&[]).env("DOCKER_CONFIG", &file).output().await;
    sandbox.finish(other.unwrap()).failed(
        TerminationPhase::Push,
        TerminationReason::CredentialRequired,
        "none was sent to it",
    );
    sandbox.write("auth.json", "canary");
    let broken = with(&[]).env("DOCKER_CONFIG", &file).output().await;
    sandbox.finish(broken.unwrap()).failed(
        TerminationPhase::Push,
        TerminationReason::BadCredentials,
        "failed to read credentials: ",
    );
}

#[tokio::test]
async fn a_password_from_standard_input_is_one_word() {
    use tokio::io::AsyncWriteExt as _;
    let (sandbox, registry) = (Sandbox::new(), guarded().await);
    let url = format!("--url=oci://{}/team-a/shop:1.0.0", registry.address);
    for (input, good) in [
        (format!("{PASSWORD}\n"), true),
        (format!("{PASSWORD} x"), false),
        (String::new(), false),
    ] {
        let mut command = sandbox.command(&[
            "--plain-http",
            &url,
            "--username=canary-user",
            "--password-stdin",
            "config.json",
        ]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .await
            .unwrap();
        let ran = sandbox.finish(child.wait_with_output().await.unwrap());
        if good {
            ran.succeeded(TerminationReason::Pushed, &[]);
        } else {
            ran.failed(
                TerminationPhase::Push,
                TerminationReason::BadCredentials,
                "failed to read credentials: ",
            );
        }
    }
}

/// Holds: E7.
#[tokio::test]
async fn credentials_of_push_are_files() {
    let (sandbox, registry) = (Sandbox::new(), guarded().await);
    let url = format!("oci://{}/team-a/shop:1.0.0", registry.address);
    sandbox
        .run(&["render", "config.json", "--out", "chart.tgz"])
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    let base = ["push", "chart.tgz", "--plain-http", "--url", &url];
    let files = [
        &base[..],
        &["--username-file", "username", "--password-file", "password"],
    ]
    .concat();
    sandbox.run(&files).await.failed(
        TerminationPhase::Push,
        TerminationReason::BadCredentials,
        "no such file or directory",
    );
    sandbox.write("username", "canary-user\n");
    sandbox.write("password", PASSWORD);
    sandbox
        .run(&files)
        .await
        .succeeded(TerminationReason::Pushed, &[]);
    let named = sandbox
        .command(&base)
        .env("DOCKER_CONFIG", "/none")
        .output()
        .await
        .unwrap();
    sandbox.finish(named).failed(
        TerminationPhase::Push,
        TerminationReason::BadCredentials,
        "no such file or directory",
    );
    // Other hosts' credentials are not tried, and the variables of the one-shot form are not read.
    sandbox.write(
        "auth.json",
        r#"{"auths":{"other.example":{"username":"canary-user","password":"canary-password"}}}"#,
    );
    let mut other = sandbox.command(&base);
    other
        .env("DOCKER_CONFIG", "auth.json")
        .env("REGISTRY_USERNAME", "canary-user")
        .env("REGISTRY_PASSWORD", PASSWORD);
    let asked = registry.seen().len();
    let ran = sandbox.finish(other.output().await.unwrap());
    ran.failed(
        TerminationPhase::Push,
        TerminationReason::BadCredentials,
        "no entry for the registry",
    );
    assert_eq!(
        registry.seen().len(),
        asked,
        "nor is it tried without a credential"
    );
}

/// Holds: C1, O2.
#[tokio::test]
async fn a_destination_on_another_registry_is_refused_before_any_credential_is_read() {
    let (sandbox, registry) = (Sandbox::new(), guarded().await);
    let host = registry.address.to_string();
    let url = format!("oci://{host}/team-a/shop:1.0.0");
    sandbox
        .run(&["render", "config.json", "--out", "chart.tgz"])
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    // None of the files exists, so opening one would be an error.
    let base = ["push", "chart.tgz", "--plain-http", "--url", &url];
    let files = ["--username-file", "username", "--password-file", "password"];
    let name = host.split(':').next().unwrap();
    for other in [
        "registry.example",
        name,
        &format!("{name}:1"),
        &host.replace(name, "localhost"),
    ] {
        let bound = [&base[..], &["--registry", other], &files].concat();
        let ran = sandbox.run(&bound).await;
        ran.failed(
            TerminationPhase::Push,
            TerminationReason::BadDestination,
            "not on the registry",
        );
        assert_eq!(ran.code, Some(2), "{other}");
        let mut docker = sandbox.command(&bound[..base.len() + 2]);
        let ran = docker.env("DOCKER_CONFIG", "/none").output().await.unwrap();
        let ran = sandbox.finish(ran);
        ran.failed(
            TerminationPhase::Push,
            TerminationReason::BadDestination,
            "not on the registry",
        );
    }
    assert!(registry.seen().is_empty());
    let bound = [&base[..], &["--registry", &host], &files].concat();
    sandbox.run(&bound).await.failed(
        TerminationPhase::Push,
        TerminationReason::BadCredentials,
        "no such file or directory",
    );
    sandbox.write("username", "canary-user");
    sandbox.write("password", PASSWORD);
    sandbox
        .run(&bound)
        .await
        .succeeded(TerminationReason::Pushed, &[]);
}

/// Holds: C3, B13.
#[tokio::test]
async fn a_push_stays_within_its_prefix() {
    let (sandbox, registry) = (Sandbox::new(), guarded().await);
    let host = registry.address.to_string();
    let rendered = ["render", "config.json", "--out", "chart.tgz"];
    sandbox
        .run(&rendered)
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    let word = |prefix: &str| format!("--repository-prefix={prefix}");
    let files = ["--username-file", "username", "--password-file", "password"];
    // What the file says is what the hub once wrote, and may have come to say something else since.
    let run = async |repository: &str, prefix: &str| {
        sandbox.write("url", &format!("oci://{host}/{repository}:1.0.0"));
        let prefix = word(prefix);
        let base = [
            "push",
            "chart.tgz",
            "--plain-http",
            "--url-file",
            "url",
            "--registry",
            &host,
        ];
        sandbox
            .run(&[&base[..], &[prefix.as_str()], &files].concat())
            .await
    };
    // None of the files with the credential exists, so a push that opened one would say so.
    for (repository, prefix) in [
        ("team-b/shop", "team-a/"),
        ("team-a2/shop", "team-a"),
        ("team-a2/shop", "team-a/"),
        ("team/shop", "team-a/"),
        ("x/team-a/shop", "team-a/"),
        ("shop", "shop/"),
        ("charts/team-b/shop", "charts/team-a/"),
    ] {
        let ran = run(repository, prefix).await;
        ran.failed(
            TerminationPhase::Push,
            TerminationReason::BadDestination,
            "not within the repository prefix",
        );
        assert_eq!(ran.code, Some(2), "{repository} {prefix}");
    }
    assert!(registry.seen().is_empty());
    for prefix in ["TEAM/", "/", "../", "team-a//", "-x"] {
        assert_eq!(run("team-a/shop", prefix).await.code, Some(1), "{prefix}");
    }
    sandbox.write("username", "canary-user");
    sandbox.write("password", PASSWORD);
    let mut pushed = TerminationReason::Pushed;
    for prefix in ["team-a/", "team-a", "team-a/shop", ""] {
        run("team-a/shop", prefix).await.succeeded(pushed, &[]);
        pushed = TerminationReason::AlreadyExists;
    }
}

/// Holds: O3.
#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let (sandbox, registry, proxy) = (Sandbox::new(), guarded().await, Hostile::honest().await);
    let url = format!("--url=oci://{}/team-a/shop:1.0.0", registry.address);
    let mut command = sandbox.command(&["--plain-http", &url, "config.json", "--username=canary-user"]);
    command.env("REGISTRY_PASSWORD", PASSWORD);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        command.env(name, format!("http://{}", proxy.address));
    }
    sandbox
        .finish(command.output().await.unwrap())
        .succeeded(TerminationReason::Pushed, &[]);
    assert!(proxy.seen().is_empty());
}

#[tokio::test]
async fn authorities_that_cannot_be_read() {
    let sandbox = Sandbox::new();
    let args = ["--url=oci://127.0.0.1:1/team-a/shop:1.0.0", "config.json"];
    let named = sandbox.run(&[&args[..], &["--ca-file", "none"]].concat()).await;
    named.failed(
        TerminationPhase::Push,
        TerminationReason::RegistryUnreachable,
        "failed to read CA file: no such file or directory",
    );
    let variable = sandbox
        .command(&args)
        .env("SSL_CERT_FILE", sandbox.write("empty.pem", ""))
        .output()
        .await
        .unwrap();
    sandbox.finish(variable).failed(
        TerminationPhase::Push,
        TerminationReason::RegistryUnreachable,
        "CA file holds no certificate",
    );
}

#[tokio::test]
async fn a_signal_ends_it_and_leaves_nothing() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (asked, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let registry = Hostile::start(move |_, _| {
            let _ = asked.send(());
            Some(Reply::Hang)
        })
        .await;
        let sandbox = Sandbox::new();
        let url = format!("--url=oci://{}/team-a/shop:1.0.0", registry.address);
        let child = sandbox
            .command(&["--plain-http", &url, "config.json"])
            .spawn()
            .unwrap();
        // Once the registry is asked, the temporary directory exists.
        answered.recv().await.unwrap();
        assert_eq!(std::fs::read_dir(sandbox.path("tmp")).unwrap().count(), 1);
        let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        assert_eq!(
            core.split_whitespace().nth(4),
            Some("0"),
            "a core file would hold the credential"
        );
        rustix::process::kill_process(pid, signal).unwrap();
        let ran = sandbox.finish(child.wait_with_output().await.unwrap());
        ran.failed(TerminationPhase::Push, TerminationReason::Internal, "interrupted");
    }
}

#[tokio::test]
async fn without_a_file_for_it_there_is_no_message() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["render", "config.json", "--out", "chart.tgz"]);
    let output = command
        .env_remove("RENDERHUB_TERMINATION_LOG")
        .output()
        .await
        .unwrap();
    assert!(output.status.success());
    assert!(!sandbox.path("log").exists());
    let named = sandbox
        .run(&[
            "render",
            "config.json",
            "--out",
            "chart.tgz",
            "--termination-log",
            "other",
        ])
        .await;
    assert_eq!((named.code, named.message), (Some(0), None));
    assert_eq!(
        Termination::parse(&std::fs::read_to_string(sandbox.path("other")).unwrap()),
        Some(Termination::rendered())
    );
}
