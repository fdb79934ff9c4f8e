//! Kubeconfigs to start from, and the forms in which one can be written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use renderhub::remote::kubeconfig::{KubeconfigError, RemoteConfig, decode};
use serde_json::{Value, json};

/// A PEM file of these tests.
macro_rules! pem {
    ($name:literal) => {
        include_str!(concat!("pem/", $name, ".pem"))
    };
}
pub(crate) use pem;

/// A token that is found nowhere but in a kubeconfig.
pub const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.a-token_of.the~tests+1/2=";

/// A kubeconfig with two of everything; the first of each is current.
pub fn valid() -> Value {
    let authority = data(pem!("authority"));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "hub@remote",
        "clusters": [
            {"name": "remote", "cluster": {"server": "https://api.remote.example:6443", "certificate-authority-data": authority}},
            {"name": "spare", "cluster": {"server": "https://10.0.0.1", "certificate-authority-data": authority}},
        ],
        "users": [
            {"name": "hub", "user": {"token": TOKEN}},
            {"name": "spare", "user": {"token": "another"}},
        ],
        "contexts": [
            {"name": "hub@remote", "context": {"cluster": "remote", "user": "hub", "namespace": "rendering"}},
            {"name": "spare", "context": {"cluster": "spare", "user": "spare"}},
        ],
    })
}

/// The same with a client certificate in the place of the token.
pub fn with_certificate() -> Value {
    let user =
        json!({"client-certificate-data": data(pem!("client")), "client-key-data": data(pem!("p256-pkcs8"))});
    with("/users/0/user", user)
}

/// The kubeconfig of [`valid`] with another value at a place, which is made where it is not there.
pub fn with(pointer: &str, value: Value) -> Value {
    set(valid(), pointer, value)
}

/// A document with another value at a place.
pub fn set(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match field.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) => parent[field] = value,
    }
    document
}

/// The kubeconfig of [`valid`] without what is at a place.
pub fn without(pointer: &str) -> Value {
    let mut document = valid();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    parent.as_object_mut().unwrap().remove(field).unwrap();
    document
}

/// Text as the fields that end in `-data` hold it.
pub fn data(text: &str) -> String {
    BASE64.encode(text)
}

/// A document in every form in which people and tools write one.
pub fn forms(document: &Value) -> Vec<(&'static str, String)> {
    let yaml = serde_saphyr::to_string(document).unwrap();
    let json = document.to_string();
    vec![
        (
            "JSON in many lines",
            serde_json::to_string_pretty(document).unwrap(),
        ),
        ("JSON as a YAML document", format!("---\n{json}\n...\n")),
        ("YAML as a document", format!("# a comment\n---\n{yaml}")),
        ("YAML with CRLF", yaml.replace('\n', "\r\n")),
        ("JSON", json),
        ("YAML", yaml),
    ]
}

/// Decodes text.
pub fn read(text: &str) -> Result<RemoteConfig, KubeconfigError> {
    decode(text.as_bytes())
}

/// Fails unless a document is refused for this, in every form.
#[track_caller]
pub fn refused(document: &Value, error: KubeconfigError, what: &str) {
    for (form, text) in forms(document) {
        assert_eq!(read(&text).err(), Some(error), "{what}, {form}");
    }
}

/// Fails unless a document is accepted in every form, and means the same in each.
#[track_caller]
pub fn accepted(document: &Value, what: &str) -> RemoteConfig {
    let mut found = forms(document).into_iter().map(|(form, text)| {
        let read = read(&text);
        read.unwrap_or_else(|error| panic!("{what}, {form}: {error}"))
    });
    let first = found.next().unwrap();
    assert!(
        found.all(|other| other.fingerprint() == first.fingerprint()),
        "{what}"
    );
    first
}
