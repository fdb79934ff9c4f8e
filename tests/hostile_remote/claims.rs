//! The gate on a link: what may change something is sent only during a claim, and given up when that ends.

use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{Method, Request};
use renderhub::apply::CallError;
use renderhub::cluster::limits::LinkLimits;
use renderhub::cluster::link::{Link, LinkSettings};
use renderhub::gate::Gate;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};

use crate::claim::claimed;
use crate::support::{BOTH, config, failed, get, post, settings, short};

const WRITES: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

fn link(server: &Hostile, gate: &Gate, limits: LinkLimits) -> Link {
    let settings = LinkSettings {
        gate: gate.clone(),
        ..settings(limits)
    };
    Link::new(&config(server.address(), server.authority()), &settings).unwrap()
}

fn write(method: &Method, body: &'static str) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri("/x");
    request.body(body.as_bytes().to_vec()).unwrap()
}

/// Holds: M5.
#[tokio::test]
async fn without_a_claim_nothing_but_a_get_is_sent() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::whole(200, "{}")).await.unwrap();
        let (gate, renewed) = claimed();
        let link = link(&server, &gate, short());
        renewed.send_replace(Instant::now());
        link.send(get("/x"), None).await.unwrap();
        link.probe().await.unwrap();
        for method in WRITES {
            for body in ["{}", ""] {
                let refused = link.send(write(&method, body), None).await;
                assert_eq!(failed(refused), CallError::NoClaim, "{http:?} {method}");
            }
        }
        assert_eq!(server.counts().len(), 1, "{http:?} {:?}", server.counts());
        renewed.send_replace(Instant::now() + Duration::from_secs(60));
        for method in WRITES {
            link.send(write(&method, "{}"), None).await.unwrap();
        }
        assert_eq!(server.counts()["POST"], 1);
    }
}

/// Holds: M5.
#[tokio::test]
async fn a_write_that_waited_for_its_turn_while_the_claim_ended_is_not_sent() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let (gate, renewed) = claimed();
    // One call now, and another each second.
    let limits = LinkLimits {
        qps: 1,
        burst: 1,
        total: Duration::from_secs(30),
        ..short()
    };
    let link = link(&server, &gate, limits);
    link.send(get("/x"), None).await.unwrap();
    renewed.send_replace(Instant::now() + Duration::from_millis(200));
    let before = join_all((0..6).map(|_| link.send(get("/x"), None)));
    let write = async {
        let begin = Instant::now();
        assert_eq!(failed(link.send(post(), None).await), CallError::NoClaim);
        begin.elapsed()
    };
    let (before, waited) = tokio::join!(before, write);
    for answer in before {
        answer.unwrap();
    }
    assert!(
        waited < Duration::from_secs(4),
        "it waited for its turn all the same: {waited:?}"
    );
    // A turn later it would have come.
    link.send(get("/x"), None).await.unwrap();
    assert!(!server.counts().contains_key("POST"), "{:?}", server.counts());
}

/// Holds: M5.
#[tokio::test]
async fn a_write_under_way_is_given_up_when_the_claim_ends_and_goes_on_while_it_is_renewed() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::Never).await.unwrap();
        let (gate, renewed) = claimed();
        let patient = LinkLimits {
            total: Duration::from_secs(30),
            ..short()
        };
        let link = link(&server, &gate, patient);
        let begin = Instant::now();
        renewed.send_replace(begin + Duration::from_millis(500));
        let later = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            renewed.send_replace(begin + Duration::from_secs(1));
        };
        let (given_up, ()) = tokio::join!(link.send(post(), None), later);
        assert_eq!(failed(given_up), CallError::NoClaim);
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_secs(1) && took < Duration::from_secs(25),
            "{http:?} {took:?}"
        );
        assert_eq!(server.counts()["POST"], 1);
    }
}
