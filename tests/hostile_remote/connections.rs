//! Connections: only to the server that was meant, by an address that is allowed, and without a byte of a secret before that
//! is known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use renderhub::kubernetes::apply::{CallError, TransportStage};
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::RemoteClientError;
use renderhub::remote::client::RemoteClient;
use renderhub::remote::kubeconfig::{ApiServerHost, ClusterCredential, PrivateKeyEncoding};
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Face, Http, Reply, Shown};
use renderhub_harness::pki::{Authority, KeyPairPem};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretSlice;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{BOTH, TOKEN, config, failed, get, link, post, settings, short, while_others_work};

/// Holds: K4.
#[tokio::test]
async fn a_server_with_another_certificate_is_sent_nothing() {
    for http in BOTH {
        for shown in [Shown::OtherAuthority, Shown::OtherName, Shown::Expired] {
            let server = Hostile::start(Face { http, shown }, |_| Reply::whole(200, "{}"))
                .await
                .unwrap();
            let link = link(&server);
            while_others_work(async {
                assert_eq!(
                    failed(link.send(post(), None).await),
                    CallError::Transport(TransportStage::Tls),
                    "{shown:?}"
                );
                assert_eq!(
                    failed(link.send(get("/x"), None).await),
                    CallError::Transport(TransportStage::Tls),
                    "{shown:?}"
                );
                assert_eq!(
                    failed(link.probe().await),
                    CallError::Transport(TransportStage::Tls),
                    "{shown:?}"
                );
            })
            .await;
            assert!(server.accepted() > 0 && server.asked().is_empty(), "{shown:?}");
            assert_eq!(link.connections(), 0);
        }
    }
}

/// Holds: K4.
#[tokio::test]
async fn a_server_is_known_by_the_name_that_was_asked_for_and_no_other() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    // What the certificate is for, and whether the host alone is enough.
    for (name, is_right) in [
        (None, true),
        (Some("hostile.test"), true),
        (Some("other.test"), false),
    ] {
        let mut config = config(server.address(), server.authority());
        config.tls_server_name = name.map(|name| ApiServerHost::Name(name.to_owned()));
        let link = RemoteClient::new(&config, &settings(short())).unwrap();
        assert_eq!(link.probe().await.is_ok(), is_right, "{name:?}");
    }
}

/// Holds: K4.
#[tokio::test]
async fn plain_http_on_the_port_sees_no_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let mut all = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            _ = stream.write_all(answer.as_bytes()).await;
            _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut all)).await;
        }
        all
    });
    let authority = Authority::new("any").unwrap().pem();
    let link = RemoteClient::new(&config(address, &authority), &settings(short())).unwrap();
    let plain = CallError::Transport(TransportStage::Tls);
    assert_eq!(failed(link.send(post(), None).await), plain);
    assert_eq!(failed(link.probe().await), plain);
    let seen = served.await.unwrap();
    let text = String::from_utf8_lossy(&seen).to_lowercase();
    assert!(!seen.is_empty(), "the handshake came");
    for word in ["authorization", "bearer", TOKEN, "secrets"] {
        assert!(!text.contains(word), "{word}");
    }
}

/// Holds: K6.
#[tokio::test]
async fn an_address_that_is_refused_is_not_connected_to() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let net = |text: &str| text.parse().unwrap();
    let own = net(&format!("{}/32", server.address().ip()));
    // Loopback is refused unless it is allowed, and what is denied is refused all the same.
    for (allowed, denied, is_reached) in [
        (vec![], vec![], false),
        (vec![net("10.0.0.0/8")], vec![], false),
        (vec![net("127.0.0.0/8")], vec![own], false),
        (vec![own], vec![], true),
    ] {
        let mut settings = settings(short());
        settings.guard = Arc::new(AddressPolicy { allowed, denied });
        let link = RemoteClient::new(&config(server.address(), server.authority()), &settings).unwrap();
        assert_eq!(link.probe().await.is_ok(), is_reached);
        assert_eq!(server.accepted(), usize::from(is_reached));
    }
}

#[tokio::test]
async fn a_link_logs_in_with_a_certificate_whose_key_it_has() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let authority = Authority::new("clients").unwrap();
    let (one, other) = (
        authority.client("hub", &[]).unwrap(),
        authority.client("hub", &[]).unwrap(),
    );
    let login = |cert: &KeyPairPem, key: &KeyPairPem| {
        let key = PrivateKeyDer::from_pem_slice(key.key.as_bytes()).unwrap();
        ClusterCredential::Certificate {
            chain: vec![
                CertificateDer::from_pem_slice(cert.cert.as_bytes())
                    .unwrap()
                    .to_vec(),
            ],
            kind: PrivateKeyEncoding::Pkcs8,
            key: SecretSlice::from(key.secret_der().to_vec()),
        }
    };
    let with = |login: ClusterCredential| {
        let mut config = config(server.address(), server.authority());
        config.login = login;
        RemoteClient::new(&config, &settings(short()))
    };
    let link = with(login(&one, &one)).unwrap();
    link.probe().await.unwrap();
    assert!(!server.asked()[0].headers.contains_key("authorization"));
    assert_eq!(
        with(login(&one, &other)).unwrap_err(),
        RemoteClientError::ClientCertificate
    );
    let mut broken = login(&one, &one);
    if let ClusterCredential::Certificate { key, .. } = &mut broken {
        *key = SecretSlice::from(vec![0; 32]);
    }
    assert_eq!(with(broken).unwrap_err(), RemoteClientError::ClientCertificate);
}

#[test]
fn a_configuration_that_nothing_can_be_made_of_is_an_error() {
    let address: SocketAddr = "192.0.2.1:443".parse().unwrap();
    let authority = Authority::new("any").unwrap().pem();
    let settings = settings(short());
    let mut no_authority = config(address, &authority);
    no_authority.authorities.push(b"canary".to_vec());
    assert_eq!(
        RemoteClient::new(&no_authority, &settings).unwrap_err(),
        RemoteClientError::Authorities
    );
    let mut no_name = config(address, &authority);
    no_name.tls_server_name = Some(ApiServerHost::Name("a b".to_owned()));
    assert_eq!(
        RemoteClient::new(&no_name, &settings).unwrap_err(),
        RemoteClientError::ServerName
    );
    let mut no_token = config(address, &authority);
    no_token.login = ClusterCredential::Token("a\r\nX-Canary: 1".into());
    assert_eq!(
        RemoteClient::new(&no_token, &settings).unwrap_err(),
        RemoteClientError::Token
    );
}
