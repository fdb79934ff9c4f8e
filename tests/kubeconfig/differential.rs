//! Whatever the hub accepts, a stock client takes for the very same connection.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::FutureExt as _;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use renderhub::remote::kubeconfig::{
    ApiServerHost, ClusterCredential, PrivateKeyEncoding, RemoteConfig, decode,
};
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use secrecy::ExposeSecret as _;

/// Fails if the text is accepted and kube refuses it, or reads another connection from it. Returns whether it is accepted.
#[track_caller]
pub fn same_as_kube(text: &str) -> bool {
    let Ok(ours) = decode(text.as_bytes()) else {
        return false;
    };
    let theirs = Kubeconfig::from_yaml(text).expect("kube reads it");
    let mut options = KubeConfigOptions::default();
    if theirs.current_context.as_deref().is_none_or(str::is_empty) {
        // Only kube asks for the name of the only context.
        assert_eq!(theirs.contexts.len(), 1);
        options.context = Some(theirs.contexts[0].name.clone());
    }
    let theirs = Config::from_custom_kubeconfig(theirs, &options);
    let theirs = theirs.now_or_never().expect("nothing is waited for");
    compare(&ours, &theirs.expect("kube takes it"));
    true
}

/// Fails where two connections differ.
#[track_caller]
fn compare(ours: &RemoteConfig, theirs: &Config) {
    let url = &theirs.cluster_url;
    assert_eq!(url.scheme_str(), Some("https"));
    let host = url.host().unwrap();
    assert_eq!(
        plain(&ours.host),
        plain_text(host.trim_start_matches('[').trim_end_matches(']'))
    );
    assert_eq!(ours.port, url.port_u16().unwrap_or(443));
    assert!(["", "/"].contains(&url.path()) && url.query().is_none());
    assert_eq!(
        ours.tls_server_name.as_ref().map(plain),
        theirs.tls_server_name.as_deref().map(plain_text)
    );
    assert_eq!(Some(&ours.authorities), theirs.root_cert.as_ref());
    assert!(!theirs.accept_invalid_certs);
    login(&ours.login, &theirs.auth_info);
}

#[track_caller]
fn login(ours: &ClusterCredential, theirs: &AuthInfo) {
    let token = theirs
        .token
        .as_ref()
        .map(|token| token.expose_secret().to_owned());
    match ours {
        ClusterCredential::Token(ours) => assert_eq!(Some(ours.expose_secret()), token.as_deref()),
        ClusterCredential::Certificate { chain, kind, key } => {
            assert_eq!(token, None);
            let certificates = theirs.client_certificate_data.as_deref().map(sections).unwrap();
            let certificates: Vec<Vec<u8>> = certificates.into_iter().map(|(_, der)| der).collect();
            assert_eq!(*chain, certificates);
            let key_data = theirs.client_key_data.as_ref().unwrap();
            let expected = match kind {
                PrivateKeyEncoding::Pkcs1 => SectionKind::RsaPrivateKey,
                PrivateKeyEncoding::Sec1 => SectionKind::EcPrivateKey,
                PrivateKeyEncoding::Pkcs8 => SectionKind::PrivateKey,
            };
            let keys = sections(key_data.expose_secret());
            assert_eq!(keys, [(expected, key.expose_secret().to_vec())]);
        }
    }
    let ours_is_token = matches!(ours, ClusterCredential::Token(_));
    assert_eq!(theirs.client_certificate_data.is_none(), ours_is_token);
    assert_eq!(theirs.client_key_data.is_none(), ours_is_token);
    let has_no_other_way = matches!(
        theirs,
        AuthInfo {
            username: None,
            password: None,
            token_file: None,
            client_certificate: None,
            client_key: None,
            impersonate: None,
            impersonate_uid: None,
            impersonate_groups: None,
            impersonate_user_extra: None,
            auth_provider: None,
            exec: None,
            ..
        }
    );
    assert!(has_no_other_way);
}

fn sections(data: &str) -> Vec<(SectionKind, Vec<u8>)> {
    let pem = BASE64.decode(data).unwrap();
    <(SectionKind, Vec<u8>)>::pem_slice_iter(&pem)
        .map(Result::unwrap)
        .collect()
}

fn plain(host: &ApiServerHost) -> String {
    host.to_string()
}

/// Names are the same in either case, with a dot at the end or without.
fn plain_text(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}
