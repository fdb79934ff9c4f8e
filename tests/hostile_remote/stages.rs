//! How far a call came that brought no answer: every stage comes about, and the error names it.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use kube::{Client, Config};
use renderhub::base::metrics::Metrics;
use renderhub::kubernetes::apply::{
    ApiTransport, CallError, HubClient, OBJECT_MAX, ResponseLimit, TaskObjectClient, TransportStage, fetch,
};
use renderhub::kubernetes::write_fence;
use renderhub::remote::client::{RemoteClient, RemoteClientSettings};
use renderhub::remote::kubeconfig::ApiServerHost;
use renderhub::remote::resolve::Resolver;
use renderhub_harness::Hostile;
use renderhub_harness::dns::{Dns, Said};
use renderhub_harness::hostile::{Face, Http, Reply, Shown};
use renderhub_harness::pki::Authority;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{BOTH, CANARY, NAMESPACE, config, failed, get, hub, link, settings, short};
use ::support::claim::claimed;

/// A link as what carries the calls of a task.
#[derive(Debug)]
struct Way(RemoteClient);

impl ApiTransport for Way {
    fn send(
        &self,
        request: Request<Vec<u8>>,
        extent: ResponseLimit,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(self.0.fetch(request, None, extent))
    }
}

async fn sound(http: Http, shown: Shown) -> Hostile {
    let face = Face { http, shown };
    Hostile::start(face, |_| Reply::whole(200, CANARY)).await.unwrap()
}

/// Ends each connection after the handshake, or after so much of an answer.
async fn breaking(http: Http, begin: &'static str) -> Hostile {
    let broken = move |mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>| async move {
        if !begin.is_empty() {
            let mut request = [0; 1_024];
            _ = stream.read(&mut request).await;
            _ = stream.write_all(begin.as_bytes()).await;
            _ = stream.shutdown().await;
        }
    };
    Hostile::raw(http, broken).await.unwrap()
}

const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";

/// An address on which nothing listens.
async fn closed() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_call_to_a_cluster_tells_how_far_it_came() {
    let authority = Authority::new("any").unwrap().pem();
    let dns = Dns::start(|_| Said::Are(Vec::new())).await.unwrap();
    let mut nameless = config(closed().await, &authority);
    nameless.host = ApiServerHost::Name("none.test".to_owned());
    let resolving = RemoteClientSettings {
        resolver: Resolver::with_servers(&[dns.address()]).unwrap(),
        ..settings(short())
    };
    let nameless = RemoteClient::new(&nameless, &resolving).unwrap();
    let refused = RemoteClient::new(&config(closed().await, &authority), &settings(short())).unwrap();
    let half = breaking(Http::One, HALF).await;
    let mut seen = vec![
        (failed(nameless.probe().await), TransportStage::Resolve),
        (failed(refused.probe().await), TransportStage::Connect),
        (
            failed(link(&half).send(get("/x"), None).await),
            TransportStage::Body,
        ),
    ];
    for http in BOTH {
        let stranger = sound(http, Shown::OtherAuthority).await;
        seen.push((failed(link(&stranger).probe().await), TransportStage::Tls));
        let breaks = breaking(http, "").await;
        seen.push((
            failed(link(&breaks).send(get("/x"), None).await),
            TransportStage::Send,
        ));
        let server = sound(http, Shown::Right).await;
        let good = link(&server);
        let objects = TaskObjectClient::new(Arc::new(Way(good.clone())), None, NAMESPACE.to_owned(), hub());
        seen.push((failed(objects.get_job("render-x").await), TransportStage::Decode));
        // Longer than any address, with the host before it.
        let long = format!("/{}", "x".repeat(65_520));
        seen.push((
            failed(good.send(get(&long), None).await),
            TransportStage::Internal,
        ));
        good.close();
        seen.push((failed(good.probe().await), TransportStage::Canceled));
    }
    for (error, stage) in &seen {
        assert_eq!(*error, CallError::Transport(*stage));
        assert_eq!((error.kind(), error.stage()), ("Transport", Some(stage.as_str())));
    }
    let all = TransportStage::ALL.iter();
    assert!(
        all.clone().all(|stage| seen.iter().any(|(_, of)| of == stage)),
        "{seen:?}"
    );
}

/// A client of the hub's own API server, which trusts the authority.
fn client(url: &str, authority: Option<&str>) -> Client {
    let mut config = Config::new(url.parse().unwrap());
    config.root_cert = authority.map(|pem| {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        vec![certificate.to_vec()]
    });
    write_fence::client(&config, &claimed().0).unwrap()
}

fn of(server: &Hostile) -> Client {
    client(&format!("https://{}", server.address()), Some(server.authority()))
}

#[tokio::test]
async fn a_call_to_the_hubs_own_api_server_tells_how_far_it_came() {
    // A label of a name has 63 letters at most, so this one is asked of no name server.
    let nameless = client(&format!("http://{}.test:1", "x".repeat(64)), None);
    let refused = client(&format!("http://{}", closed().await), None);
    let stranger = sound(Http::One, Shown::OtherAuthority).await;
    let (breaks, half) = (breaking(Http::One, "").await, breaking(Http::One, HALF).await);
    let server = sound(Http::One, Shown::Right).await;
    for method in ["GET", "POST"] {
        for (client, stage) in [
            (&nameless, TransportStage::Resolve),
            (&refused, TransportStage::Connect),
            (&of(&stranger), TransportStage::Tls),
            (&of(&breaks), TransportStage::Send),
            (&of(&half), TransportStage::Body),
        ] {
            let request = Request::builder()
                .method(method)
                .uri("/x")
                .body(Vec::new())
                .unwrap();
            let error = failed(fetch(client, request, OBJECT_MAX).await);
            assert_eq!(error, CallError::Transport(stage), "{method}");
        }
    }
    let calls = HubClient::new(of(&server), Metrics::new().0, NAMESPACE.to_owned(), hub());
    let error = failed(calls.objects().get_job("render-x").await);
    assert_eq!(error, CallError::Transport(TransportStage::Decode));
}
