//! A kubeconfig says everything itself: where the cluster is, who vouches for it, and one way to log in.

use renderhub::remote::kubeconfig::KubeconfigError;
use renderhub::remote::kubeconfig::KubeconfigError::*;
use renderhub::remote::kubeconfig::{ApiServerHost, ClusterCredential, PrivateKeyEncoding};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::documents::{TOKEN, accepted, data, pem, refused, set, valid, with, with_certificate, without};

const AUTHORITY: &str = "/clusters/0/cluster/certificate-authority-data";
const CHAIN: &str = "/users/0/user/client-certificate-data";
const KEY: &str = "/users/0/user/client-key-data";

fn key(pem: &str) -> Value {
    set(with_certificate(), KEY, json!(data(pem)))
}

#[test]
fn a_whole_one_comes_down_to_its_values() {
    let config = accepted(
        &with("/clusters/0/cluster/tls-server-name", json!("Kubernetes.")),
        "token",
    );
    assert_eq!(config.host, ApiServerHost::Name("api.remote.example".into()));
    assert_eq!(config.port, 6443);
    assert_eq!(
        config.tls_server_name,
        Some(ApiServerHost::Name("kubernetes".into()))
    );
    assert_eq!(config.authorities.len(), 1);
    let ClusterCredential::Token(token) = &config.login else {
        panic!("no token")
    };
    assert_eq!(token.expose_secret(), TOKEN);

    let config = accepted(&with_certificate(), "certificate");
    let ClusterCredential::Certificate { chain, kind, key } = &config.login else {
        panic!("no certificate")
    };
    assert_eq!((chain.len(), *kind), (1, PrivateKeyEncoding::Pkcs8));
    assert!(!key.expose_secret().is_empty());
    assert_eq!(config.tls_server_name, None);

    let config = accepted(&with("/current-context", json!("spare")), "the other");
    assert_eq!(config.host, ApiServerHost::Address([10, 0, 0, 1].into()));
    assert_eq!(config.port, 443);
}

/// Holds: K4.
#[test]
fn nothing_may_be_missing() {
    let no_server = without("/clusters/0/cluster/server");
    let table: [(Value, KubeconfigError); 15] = [
        (no_server, NoServer),
        (with("/clusters/0/cluster/server", json!("")), NoServer),
        (with("/clusters/0/cluster", Value::Null), NoServer),
        (with("/clusters/0", json!({"name": "remote"})), NoServer),
        (
            with("/clusters/0/cluster/server", json!("https://127.1")),
            BadServer,
        ),
        (
            with("/clusters/0/cluster/server", json!("https://a/b")),
            ServerPath,
        ),
        (
            with("/clusters/0/cluster/tls-server-name", json!("")),
            BadServerName,
        ),
        (
            with("/clusters/0/cluster/tls-server-name", json!("*.a")),
            BadServerName,
        ),
        (without(AUTHORITY), NoAuthority),
        (with(AUTHORITY, Value::Null), NoAuthority),
        (with("/users/0/user", json!({})), NoLogin),
        (with("/users/0/user", Value::Null), NoLogin),
        (with("/users/0", json!({"name": "hub"})), NoLogin),
        (set(with_certificate(), KEY, Value::Null), HalfCertificate),
        (set(with_certificate(), CHAIN, Value::Null), HalfCertificate),
    ];
    for (document, error) in table {
        refused(&document, error, "missing");
    }
    // What is not used may be unfinished, as long as it is not unsafe.
    for (place, value) in [
        ("/clusters/1/cluster", json!({})),
        ("/clusters/1/cluster/server", json!("https://a/b")),
        ("/clusters/1/cluster/certificate-authority-data", json!("!")),
        ("/users/1/user", json!({"token": "", "client-key-data": "!"})),
        ("/contexts/1/context", json!({"cluster": "gone"})),
    ] {
        accepted(&with(place, value), place);
    }
}

#[test]
fn there_is_one_way_to_log_in() {
    let whole = set(with_certificate(), "/users/0/user/token", json!(TOKEN));
    let chain = with(CHAIN, json!(data(pem!("client"))));
    let key = with(KEY, json!(data(pem!("p256-pkcs8"))));
    for document in [whole, chain, key] {
        refused(&document, TwoLogins, "token and certificate");
    }
    let empty = set(with_certificate(), "/users/0/user/token", json!(""));
    refused(&empty, TwoLogins, "empty token and certificate");
}

/// Holds: K11.
#[test]
fn a_token_is_what_a_header_can_carry() {
    refused(&with("/users/0/user/token", json!("")), EmptyToken, "empty");
    for token in [
        " ",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\r\nX-Remote-User: admin",
        "a\tb",
        "a\0b",
        "é",
        "a\u{200b}",
        "ｔ",
    ] {
        refused(&with("/users/0/user/token", json!(token)), BadToken, token);
    }
    accepted(
        &with("/users/0/user/token", json!("~!@#$%^&*(){}[]|\\:;\"'<>,.?/`")),
        "graphic",
    );
}

/// Holds: K4, K9.
#[test]
fn an_authority_is_a_few_certificates() {
    let good = pem!("authority");
    let many = |count: usize| json!(data(&good.repeat(count)));
    assert_eq!(accepted(&with(AUTHORITY, many(16)), "16").authorities.len(), 16);
    refused(&with(AUTHORITY, many(17)), TooManyCertificates, "17");
    let commented = format!(
        "subject=CN = test\n\n{good}\nissuer=CN = test\n\n{}",
        good.replace('\n', "\r\n")
    );
    let commented = accepted(&with(AUTHORITY, json!(data(&commented))), "with comments");
    assert_eq!(commented.authorities.len(), 2);

    let cut = good.replace("-----END CERTIFICATE-----", "");
    let empty = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let mut encoded = data(good);
    encoded.insert(64, '\n');
    for (value, what) in [
        (String::new(), "nothing"),
        (good.to_owned(), "PEM itself"),
        ("!!!!".to_owned(), "no base64"),
        (encoded, "base64 in lines"),
        (data(good).replace('=', ""), "no padding"),
        (data(""), "nothing in it"),
        (data("no PEM"), "no PEM"),
        (data(&cut), "no end"),
        (data(empty), "an empty certificate"),
        (data(&good.replace("MII", "MIJ")), "no certificate"),
        (data(pem!("p256-pkcs8")), "a key"),
        (data(&format!("{good}{}", pem!("p256-pkcs8"))), "a key too"),
        (data(&good.replace("CERTIFICATE", "X509 CRL")), "a list"),
    ] {
        refused(&with(AUTHORITY, json!(value)), BadAuthority, what);
    }
}

/// Holds: K4.
#[test]
fn a_client_certificate_is_a_chain() {
    let good = pem!("client");
    let document = |pem: &str| set(with_certificate(), CHAIN, json!(data(pem)));
    accepted(&document(&format!("{good}{}", pem!("authority"))), "two");
    refused(&document(&good.repeat(17)), TooManyCertificates, "17");
    for (pem, what) in [
        (String::new(), "nothing"),
        (good.replace("MII", "MIJ"), "no certificate"),
        (
            format!("{good}{}", good.replace("MII", "MIJ")),
            "no certificate behind it",
        ),
        (format!("{good}{}", pem!("p256-pkcs8")), "a key"),
    ] {
        refused(&document(&pem), BadCertificate, what);
    }
    refused(
        &set(with_certificate(), CHAIN, json!("!")),
        BadCertificate,
        "no base64",
    );
}

/// Holds: K4.
#[test]
fn a_key_is_one_that_tls_can_sign_with() {
    let table = [
        (
            pem!("rsa2048-pkcs1"),
            PrivateKeyEncoding::Pkcs1,
            "RSA 2048, PKCS #1",
        ),
        (pem!("rsa2048-pkcs8"), PrivateKeyEncoding::Pkcs8, "RSA 2048"),
        (pem!("rsa4096-pkcs8"), PrivateKeyEncoding::Pkcs8, "RSA 4096"),
        (pem!("p256-sec1"), PrivateKeyEncoding::Sec1, "P-256, SEC 1"),
        (
            pem!("p256-sec1-parameters"),
            PrivateKeyEncoding::Sec1,
            "P-256, SEC 1 as openssl writes it",
        ),
        (pem!("p384-sec1"), PrivateKeyEncoding::Sec1, "P-384, SEC 1"),
        (pem!("p256-pkcs8"), PrivateKeyEncoding::Pkcs8, "P-256"),
        (pem!("p384-pkcs8"), PrivateKeyEncoding::Pkcs8, "P-384"),
        (pem!("ed25519-pkcs8"), PrivateKeyEncoding::Pkcs8, "Ed25519"),
    ];
    for (pem, expected, what) in table {
        let config = accepted(&key(pem), what);
        assert!(
            matches!(config.login, ClusterCredential::Certificate { kind, .. } if kind == expected),
            "{what}"
        );
    }
    let two = format!("{}{}", pem!("p256-pkcs8"), pem!("p384-pkcs8"));
    let with_chain = format!("{}{}", pem!("p256-pkcs8"), pem!("client"));
    let swapped = pem!("p256-sec1").replace("EC PRIVATE", "PRIVATE");
    let relabelled = pem!("p256-pkcs8").replace("PRIVATE", "RSA PRIVATE");
    for (pem, what) in [
        (pem!("rsa1024-pkcs1"), "RSA 1024, PKCS #1"),
        (pem!("rsa1024-pkcs8"), "RSA 1024"),
        (pem!("rsa8192-pkcs8"), "RSA 8192"),
        (pem!("p521-sec1"), "P-521"),
        (pem!("encrypted-pkcs1"), "passphrase, PKCS #1"),
        (pem!("encrypted-pkcs8"), "passphrase, PKCS #8"),
        (pem!("client"), "a certificate"),
        (two.as_str(), "two keys"),
        (with_chain.as_str(), "a certificate too"),
        (swapped.as_str(), "SEC 1 said to be PKCS #8"),
        (relabelled.as_str(), "PKCS #8 said to be PKCS #1"),
        ("", "nothing"),
        ("no PEM", "no PEM"),
        (
            "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
            "an empty key",
        ),
    ] {
        refused(&key(pem), BadKey, what);
    }
    refused(&set(with_certificate(), KEY, json!("!")), BadKey, "no base64");
}

#[test]
fn only_what_it_means_makes_it_another() {
    let whole = accepted(&valid(), "whole");
    for (place, value) in [
        ("/contexts/0/context/namespace", json!("elsewhere")),
        ("/users/1/user/token", json!("rotated")),
        (
            "/clusters/0/cluster/server",
            json!("https://API.remote.example.:6443/"),
        ),
        ("/preferences", json!({"colors": true})),
    ] {
        assert_eq!(
            accepted(&with(place, value), place).fingerprint(),
            whole.fingerprint(),
            "{place}"
        );
    }
    let rotated = accepted(&with("/users/0/user/token", json!("rotated")), "rotated");
    assert_ne!(rotated.fingerprint(), whole.fingerprint());
    assert_eq!(
        rotated.fingerprint_without_token(),
        whole.fingerprint_without_token()
    );
    for (place, value) in [
        (
            "/clusters/0/cluster/server",
            json!("https://api.remote.example:6444"),
        ),
        ("/clusters/0/cluster/tls-server-name", json!("kubernetes")),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!(data(pem!("client"))),
        ),
    ] {
        let other = accepted(&with(place, value), place);
        assert_ne!(
            other.fingerprint_without_token(),
            whole.fingerprint_without_token(),
            "{place}"
        );
    }
}
