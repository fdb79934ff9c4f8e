//! What two readers could take for two things is refused: texts that are no texts, duplicate names, and every unknown field.

use renderhub::remote::kubeconfig::KubeconfigError::*;
use renderhub::remote::kubeconfig::{KubeconfigError, MAX_BYTES, decode};
use serde_json::{Value, json};

use super::differential::same_as_kube;
use super::documents::{accepted, forms, read, refused, valid, with, without};

/// Holds: K11.
#[test]
fn an_unknown_field_is_refused() {
    for place in [
        "/unknown",
        "/currentContext",
        "/clusters/0/unknown",
        "/clusters/1/cluster/certificateAuthorityData",
        "/clusters/0/cluster/Server",
        "/users/0/token",
        "/users/1/user/unknown",
        "/users/0/user/token-file",
        "/contexts/0/unknown",
        "/contexts/1/context/unknown",
        "/preferences/unknown",
    ] {
        refused(&with(place, json!("x")), UnknownField, place);
    }
    let extension = json!([{"name": "a", "extension": {}, "unknown": 1}]);
    refused(&with("/extensions", extension), UnknownField, "extensions");
}

#[test]
fn names_are_needed() {
    for place in [
        "/clusters/0/name",
        "/users/1/name",
        "/contexts/1/name",
        "/contexts/1/context/cluster",
    ] {
        refused(&without(place), MissingField, place);
    }
    for extension in [json!({"name": "a"}), json!({"extension": {}})] {
        refused(
            &with("/extensions", json!([extension])),
            MissingField,
            "extensions",
        );
    }
}

/// Holds: K11.
#[test]
fn a_value_of_another_kind_is_refused() {
    let table: [(&str, Value); 19] = [
        ("/apiVersion", json!(1)),
        ("/kind", json!(["Config"])),
        ("/current-context", json!(1)),
        ("/current-context", json!({})),
        ("/clusters", json!({"name": "remote"})),
        ("/clusters", json!("remote")),
        ("/clusters/0", json!("remote")),
        ("/clusters/0", json!(["remote", {}])),
        ("/clusters/0/name", json!(true)),
        ("/clusters/0/name", Value::Null),
        ("/clusters/0/cluster", json!([])),
        ("/clusters/0/cluster/server", json!(["https://a"])),
        ("/clusters/0/cluster/insecure-skip-tls-verify", json!("false")),
        ("/clusters/0/cluster/disable-compression", json!("true")),
        ("/users/0/user/token", json!(123_456)),
        ("/users/0/user/token", json!(1e3)),
        ("/users/0/user/token", json!(true)),
        ("/users/0/user/token", json!({"a": 1})),
        ("/preferences", json!("none")),
    ];
    for (place, value) in table {
        refused(&with(place, value), Unreadable, place);
    }
    // The same spelled as YAML does, where the quotes are what makes it a text.
    let good = serde_saphyr::to_string(&with("/users/0/user/token", json!("here"))).unwrap();
    for bare in [
        "0x1F", "0o17", "1e5", ".5", "1_000", "-1", "+1", "yes", "No", "on", "OFF", "y", "true", ".inf",
        ".nan",
    ] {
        let text = good.replacen("here", bare, 1);
        assert_eq!(read(&text).err(), Some(Unreadable), "{bare}");
        let text = good.replacen("here", &format!("'{bare}'"), 1);
        assert_eq!(read(&text).err(), None, "'{bare}'");
    }
    for tag in ["!!str", "!!binary", "!", "!local", "!<tag:yaml.org,2002:str>"] {
        let text = good.replacen("here", &format!("{tag} aGVyZQ=="), 1);
        assert!(read(&text).is_err(), "{tag}");
    }
}

/// Holds: K11.
#[test]
fn an_extension_is_what_others_can_read_as_well() {
    let with_extension = |extension: &str| {
        let text = serde_saphyr::to_string(&valid()).unwrap();
        format!("{text}\nextensions:\n- name: a\n  extension: {extension}\n")
    };
    for good in ["~", "text", "{a: [1, 2.5, yes, {b: ~}]}", "2026-02-03"] {
        assert!(same_as_kube(&with_extension(good)), "{good}");
    }
    for bad in [".nan", "[-.inf]", "1e999", "{a: 1, a: 2}", "!local a"] {
        assert!(read(&with_extension(bad)).is_err(), "{bad}");
    }
}

/// Holds: K11.
#[test]
fn a_field_that_is_there_twice_is_refused() {
    let good = serde_saphyr::to_string(&valid()).unwrap();
    for (field, twice) in [
        ("users:", "users: []\nusers:"),
        ("current-context:", "current-context: spare\ncurrent-context:"),
        ("    token:", "    token: a\n    token:"),
        ("    token:", "    \"token\": a\n    token:"),
        ("    server:", "    server: https://a\n    server:"),
        ("    cluster:", "    cluster: spare\n    cluster:"),
    ] {
        let text = good.replacen(field, twice, 1);
        assert_ne!(text, good);
        assert_eq!(read(&text).err(), Some(DuplicateField), "{twice}");
    }
    let json = valid().to_string();
    let json = json.replacen("\"kind\":", "\"kind\":\"Config\",\"kind\":", 1);
    assert_eq!(read(&json).err(), Some(DuplicateField));
}

/// Holds: K11.
#[test]
fn a_name_that_is_there_twice_is_refused() {
    for list in ["clusters", "users", "contexts"] {
        let mut document = valid();
        let spare = document[list][1].clone();
        document[list].as_array_mut().unwrap().push(spare);
        refused(&document, DuplicateName, list);
    }
}

/// Makes an entry of a list, with this number in its name.
type Entry = fn(usize) -> Value;

/// Holds: K9.
#[test]
fn lists_are_short() {
    let entries: [(&str, Entry); 4] = [
        ("clusters", |n| json!({"name": format!("c{n}"), "cluster": {}})),
        ("users", |n| json!({"name": format!("u{n}"), "user": {}})),
        (
            "contexts",
            |n| json!({"name": format!("x{n}"), "context": {"cluster": "c"}}),
        ),
        (
            "extensions",
            |n| json!({"name": format!("e{n}"), "extension": null}),
        ),
    ];
    for (list, entry) in entries {
        let mut document = valid();
        let known = document[list].as_array().cloned().unwrap_or_default();
        let of = |length: usize| -> Value {
            known
                .iter()
                .cloned()
                .chain((known.len()..length).map(entry))
                .collect()
        };
        document[list] = of(16);
        accepted(&document, list);
        document[list] = of(17);
        refused(&document, TooManyEntries, list);
    }
    let extensions: Value = (0..17)
        .map(|n| json!({"name": format!("e{n}"), "extension": {}}))
        .collect();
    for place in [
        "/preferences/extensions",
        "/clusters/1/cluster/extensions",
        "/users/1/user/extensions",
        "/contexts/1/context/extensions",
    ] {
        refused(&with(place, extensions.clone()), TooManyEntries, place);
    }
}

/// Holds: K11.
#[test]
fn it_is_clear_which_context_is_meant() {
    let table: [(Value, KubeconfigError); 12] = [
        (without("/current-context"), NoCurrentContext),
        (with("/current-context", json!("")), NoCurrentContext),
        (with("/current-context", Value::Null), NoCurrentContext),
        (with("/current-context", json!("hub@Remote")), UnknownContext),
        (with("/contexts", json!([])), NoContext),
        (without("/contexts"), NoContext),
        (
            with("/contexts/0/context/cluster", json!("Remote")),
            UnknownCluster,
        ),
        (with("/contexts/0/context", json!({"user": "hub"})), MissingField),
        (with("/contexts/0/context", Value::Null), UnknownCluster),
        (with("/contexts/0/context/user", json!("")), UnknownUser),
        (
            with("/contexts/0/context", json!({"cluster": "remote"})),
            UnknownUser,
        ),
        (with("/users", Value::Null), UnknownUser),
    ];
    for (document, error) in table {
        refused(&document, error, "context");
    }
    let mut only = without("/current-context");
    only["contexts"].as_array_mut().unwrap().pop();
    let only = accepted(&only, "the only context");
    assert_eq!(only.fingerprint(), accepted(&valid(), "whole").fingerprint());
}

#[test]
fn other_kinds_are_refused() {
    for (place, value) in [
        ("/apiVersion", "v2"),
        ("/apiVersion", ""),
        ("/kind", "config"),
        ("/kind", "Secret"),
    ] {
        refused(&with(place, json!(value)), WrongKind, place);
    }
    for place in ["/apiVersion", "/kind", "/preferences"] {
        accepted(&without(place), place);
    }
}

/// Holds: K9.
#[test]
fn bytes_that_are_no_document_are_refused() {
    let table: [(&[u8], KubeconfigError); 12] = [
        (b"", NoContext),
        (b"\n", NoContext),
        (b"{}", NoContext),
        (b"null", Unreadable),
        (b"[]", Unreadable),
        (b"a kubeconfig", Unreadable),
        (b"\"", Unreadable),
        (b"{", Unreadable),
        (b"\t", NoContext),
        (b"\xff\xfe{\0}\0", NotUtf8),
        (b"kind: \"\xc3\x28\"", NotUtf8),
        (b"\0", Unreadable),
    ];
    for (bytes, error) in table {
        assert_eq!(decode(bytes).err(), Some(error), "{}", bytes.escape_ascii());
    }
    for (form, text) in forms(&valid()) {
        let middle = text.len() / 2;
        assert!(read(&text[..middle]).is_err(), "half of {form}");
    }
}

/// Holds: K9.
#[test]
fn a_kubeconfig_is_at_most_256_kib() {
    let text = valid().to_string();
    let padded = |length: usize| format!("{text}{}", " ".repeat(length - text.len()));
    assert_eq!(read(&padded(MAX_BYTES)).err(), None);
    assert_eq!(read(&padded(MAX_BYTES + 1)).err(), Some(TooLarge));
    assert_eq!(decode(&vec![0xff; 1 << 20]).err(), Some(TooLarge));
}
