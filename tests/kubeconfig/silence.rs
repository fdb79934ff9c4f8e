//! Nothing of a kubeconfig is in anything that can be printed, whatever is done to it.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use renderhub::remote::kubeconfig::{ClusterCredential, KubeconfigError, decode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::documents::{data, forms, pem, set, valid, with_certificate};
use super::edits::edited;

/// Found nowhere but where it is planted; a legal part of a name, a token and a key.
const CANARY: &str = "c4n4ry7f3a9";
/// Cases of the random part.
const CASES: u32 = 4000;

/// The canary in its possible forms.
fn disguises() -> Vec<Value> {
    let broken = pem!("p256-pkcs8").replacen("MI", &format!("MI{CANARY}"), 1);
    vec![
        json!(CANARY),
        json!(format!("https://{CANARY}.example:6443")),
        json!(format!("https://{CANARY}@example")),
        json!(format!("{CANARY}\n{CANARY}")),
        json!(data(CANARY)),
        json!(data(&broken)),
        json!(format!("\u{1b}[31m{CANARY}")),
        json!([CANARY]),
        json!({CANARY: CANARY}),
    ]
}

/// The place of every field of a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(field, value)| (field.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(n, item)| (n.to_string(), item))
            .collect(),
        _ => Vec::new(),
    };
    for (field, child) in children {
        let place = format!("{at}/{}", field.replace('~', "~0").replace('/', "~1"));
        found.push(place.clone());
        places(child, &place, found);
    }
}

/// Every document with the canary in one field, or with a field of its name.
fn planted() -> Vec<Value> {
    let mut planted = Vec::new();
    for document in [valid(), with_certificate()] {
        let mut found = vec![String::new()];
        places(&document, "", &mut found);
        for place in found {
            if !place.is_empty() {
                planted.extend(
                    disguises()
                        .into_iter()
                        .map(|value| set(document.clone(), &place, value)),
                );
            }
            if document.pointer(&place).is_some_and(Value::is_object) {
                for field in [
                    "exec",
                    "tokenFile",
                    "proxy-url",
                    "tls-server-name",
                    "namespace",
                    CANARY,
                ] {
                    planted.push(set(document.clone(), &format!("{place}/{field}"), json!(CANARY)));
                }
            }
        }
    }
    planted
}

fn printed(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// All that can be printed of what a text comes to.
fn all_that_is_said(text: &str) -> String {
    match decode(text.as_bytes()) {
        Err(error) => format!(
            "{} {error} {} {}",
            printed(&error),
            error.message(),
            error.reason()
        ),
        Ok(config) => {
            let parts = (
                &config.host,
                &config.login,
                config.fingerprint(),
                config.fingerprint_without_token(),
            );
            printed(&config) + &printed(&parts) + &printed(&config.tls_server_name)
        }
    }
}

fn is_silent(text: &str) -> bool {
    let said = all_that_is_said(text).to_lowercase();
    let base64 = data(CANARY).to_lowercase();
    !said.contains(CANARY) && !said.contains(base64.trim_end_matches('='))
}

/// Holds: E1, E2.
#[test]
fn the_canary_is_printed_from_no_field() {
    let texts = planted()
        .iter()
        .flat_map(forms)
        .map(|(_, text)| text)
        .collect::<Vec<_>>();
    assert!(texts.len() > 3000, "{} texts", texts.len());
    for text in &texts {
        assert!(is_silent(text), "{text}");
    }
}

/// Holds: E1, E2.
#[test]
fn the_canary_is_not_printed_after_any_edit() {
    let planted = planted();
    let texts = planted.iter().flat_map(forms).map(|(_, text)| text);
    let texts = texts.filter(|text| text.contains(CANARY)).collect();
    let mut runner = TestRunner::new(Config::with_cases(CASES));
    let outcome = runner.run(&edited(texts), |text| {
        prop_assert!(is_silent(&text));
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// Holds: E1, E2.
#[test]
fn what_is_accepted_is_printed_as_a_fingerprint() {
    let token = set(valid(), "/users/0/user/token", json!(CANARY));
    let token = set(
        token,
        "/clusters/0/cluster/server",
        json!(format!("https://{CANARY}.example")),
    );
    let token = set(token, "/clusters/0/cluster/tls-server-name", json!(CANARY));
    for document in [token, with_certificate()] {
        let config = decode(document.to_string().as_bytes()).unwrap();
        // The canary is in there.
        let is_token =
            matches!(&config.login, ClusterCredential::Token(token) if token.expose_secret() == CANARY);
        assert!(is_token || matches!(config.login, ClusterCredential::Certificate { .. }));
        let said = all_that_is_said(&document.to_string());
        assert!(!said.contains(CANARY));
        // Neither the bytes of a certificate nor of a key, as text or as numbers.
        assert!(!said.contains("48, 130") && !said.contains("BEGIN"), "{said}");
        assert!(printed(&config).starts_with("RemoteConfig("), "{said}");
    }
}

/// Holds: E1.
#[test]
fn an_error_has_no_room_for_anything() {
    assert_eq!(size_of::<KubeconfigError>(), 1);
    for error in KubeconfigError::ALL {
        assert!(error.message().is_ascii());
    }
}
