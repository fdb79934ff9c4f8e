//! An unsafe field is refused anywhere in the file, and nothing is run, opened or sent.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use renderhub::api::conditions::Reason;
use renderhub::remote::kubeconfig::KubeconfigError;
use renderhub::remote::kubeconfig::KubeconfigError::*;
use serde_json::{Value, json};

use super::documents::{accepted, forms, read, refused, set, valid, with};
use support::programs;

/// Where the entry with an unsafe field is: current, spare, and of no context.
const PLACES: [usize; 3] = [0, 1, 2];

/// A third cluster and user, which no context names.
fn with_unassigned() -> Value {
    let document = valid();
    let cluster = document["clusters"][1]["cluster"].clone();
    let mut document = document;
    for (list, entry) in [
        ("clusters", json!({"name": "stray", "cluster": cluster})),
        ("users", json!({"name": "stray", "user": {}})),
    ] {
        document[list].as_array_mut().unwrap().push(entry);
    }
    document
}

/// Fails unless a field is refused with this value in each entry of the list.
fn refused_everywhere(list: &str, entry: &str, field: &str, value: &Value, error: KubeconfigError) {
    assert_eq!(error.reason(), Reason::InsecureKubeconfig, "{error:?}");
    for place in PLACES {
        let document = set(
            with_unassigned(),
            &format!("/{list}/{place}/{entry}/{field}"),
            value.clone(),
        );
        refused(&document, error, &format!("{field} of entry {place}"));
    }
}

fn exec(command: &str, arguments: &Value) -> Value {
    json!({"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": command, "args": arguments})
}

#[test]
fn the_document_that_is_broken_here_is_whole() {
    accepted(&with_unassigned(), "with strays");
}

/// Holds: K1, K2, K3, K8.
#[test]
fn unsafe_fields_of_users() {
    let gcp = json!({"name": "gcp", "config": {"cmd-path": "/bin/sh", "cmd-args": "-c true", "expiry-key": "{.e}"}});
    let oidc = json!({"name": "oidc", "config": {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "a"}});
    let table: [(&str, Value, KubeconfigError); 21] = [
        ("exec", exec("true", &json!([])), Exec),
        ("exec", Value::Null, Exec),
        ("exec", json!({}), Exec),
        ("exec", json!("sh"), Exec),
        ("exec", json!([{"anything": {"at": "all"}}]), Exec),
        ("auth-provider", gcp, AuthProvider),
        ("auth-provider", oidc, AuthProvider),
        (
            "tokenFile",
            json!("/var/run/secrets/kubernetes.io/serviceaccount/token"),
            FilePath,
        ),
        ("tokenFile", json!(""), FilePath),
        ("client-certificate", json!("client.crt"), FilePath),
        ("client-key", json!("../client.key"), FilePath),
        ("username", json!("admin"), BasicAuth),
        ("password", json!("x"), BasicAuth),
        ("as", json!("admin"), Impersonation),
        ("as", Value::Null, Impersonation),
        ("as-uid", json!("0"), Impersonation),
        ("as-groups", json!(["system:masters"]), Impersonation),
        ("as-user-extra", json!({"scopes": ["a"]}), Impersonation),
        ("impersonate", json!("admin"), Impersonation),
        ("act-as", json!("admin"), Impersonation),
        ("act-as-groups", json!(["system:masters"]), Impersonation),
    ];
    for (field, value, error) in table {
        refused_everywhere("users", "user", field, &value, error);
    }
}

/// Holds: K3, K4, K5.
#[test]
fn unsafe_fields_of_clusters() {
    let table: [(&str, Value, KubeconfigError); 10] = [
        ("certificate-authority", json!("/etc/ssl/ca.crt"), FilePath),
        ("insecure-skip-tls-verify", json!(true), SkipsVerification),
        ("proxy-url", json!("http://10.0.0.1:3128"), Proxy),
        ("proxy-url", json!("socks5://user:password@10.0.0.1"), Proxy),
        ("proxy-url", json!(""), Proxy),
        ("server", json!("http://api.remote.example"), NotHttps),
        ("server", json!("api.remote.example:6443"), NotHttps),
        ("server", json!("unix:///run/docker.sock"), NotHttps),
        ("server", json!("https://user@api.remote.example"), ServerUser),
        ("server", json!("https://localhost:6443"), LocalServer),
    ];
    for (field, value, error) in table {
        refused_everywhere("clusters", "cluster", field, &value, error);
    }
    // Verification that is explicitly requested happens anyhow.
    accepted(
        &with("/clusters/0/cluster/insecure-skip-tls-verify", json!(false)),
        "verifies",
    );
}

/// Holds: K3.
#[test]
fn a_refusal_does_not_tell_which_files_exist() {
    let here = Path::new(programs::ROOT);
    let directory = tempfile::tempdir().unwrap();
    let paths = [
        here.join("Cargo.toml"),
        here.join("no-such-file"),
        "/etc/shadow".into(),
        "/dev/zero".into(),
        "/proc/self/mem".into(),
        directory.path().into(),
    ];
    for path in paths {
        for field in ["tokenFile", "client-certificate", "client-key"] {
            refused_everywhere("users", "user", field, &json!(path), FilePath);
        }
        refused_everywhere(
            "clusters",
            "cluster",
            "certificate-authority",
            &json!(path),
            FilePath,
        );
    }
}

/// Holds: K1, K11.
#[test]
fn unsafe_fields_cannot_be_smuggled_in() {
    let good = serde_saphyr::to_string(&valid()).unwrap();
    let bad = serde_saphyr::to_string(&with("/users/0/user/exec", exec("true", &json!([])))).unwrap();
    let user = "users:\n- name: hub\n  user:\n    exec: {command: sh}\n";
    let table = [
        (format!("{good}\n---\n{bad}"), SeveralDocuments),
        (format!("{bad}\n---\n{good}"), SeveralDocuments),
        (format!("---\n---\n{bad}"), Unreadable),
        (format!("{good}\n...\n{bad}"), SeveralDocuments),
        (format!("{good}\n---\n"), SeveralDocuments),
        (format!("{good}\n{user}"), DuplicateField),
        (format!("{user}{good}"), DuplicateField),
        (good.replacen("users:", "users: &x", 1), Alias),
        (
            good.replacen("token:", "<<: {exec: {command: sh}}\n    token:", 1),
            Alias,
        ),
        (
            good.replacen("token:", "\"<<\": {exec: {command: sh}}\n    token:", 1),
            UnknownField,
        ),
        (good.replacen("token:", "exec: *x\n    token:", 1), Alias),
        (
            good.replacen("token:", "? exec\n    : {command: sh}\n    token:", 1),
            Exec,
        ),
        (
            good.replacen("token:", "\"\\x65xec\": {command: sh}\n    token:", 1),
            Exec,
        ),
        (
            good.replacen("token:", "!local exec: {command: sh}\n    token:", 1),
            Tag,
        ),
        (
            good.replacen("token:", "!!str exec: {command: sh}\n    token:", 1),
            Exec,
        ),
        (
            good.replacen("token:", "Exec: {command: sh}\n    token:", 1),
            UnknownField,
        ),
        (good.replacen("users:", "Users: []\nusers:", 1), UnknownField),
    ];
    for (text, error) in table {
        assert_eq!(read(&text).err(), Some(error), "{text}");
    }
}

/// Holds: K1.
#[tokio::test]
async fn no_command_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("was-run");
    let command = exec("/bin/sh", &json!(["-c", format!("touch {}", marker.display())]));
    for place in PLACES {
        let document = set(
            with_unassigned(),
            &format!("/users/{place}/user"),
            json!({"exec": command}),
        );
        for (form, text) in forms(&document) {
            assert_eq!(read(&text).err(), Some(Exec), "{form}");
        }
    }
    assert!(!marker.exists());
    // The trap is set: a client that is built of the same document runs the command.
    let document = with("/users/0/user", json!({"exec": command}));
    let kubeconfig = Kubeconfig::from_yaml(&document.to_string()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let _ = kube::Client::try_from(config.unwrap());
    assert!(marker.exists());
}
