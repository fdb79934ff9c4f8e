//! What becomes of the keys of a Secret, and what a hostile one costs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::super::connection_bindings::tests::config;
use super::*;

fn secret(uid: &str, data: &[(&str, &[u8])]) -> SecretBody {
    let data: HashMap<&str, String> = data
        .iter()
        .map(|(key, value)| (*key, STANDARD.encode(value)))
        .collect();
    let secret = json!({"metadata": {"uid": uid, "resourceVersion": "7"}, "data": data});
    SecretBody::new(secret.to_string().into_bytes())
}

fn asked(key: Option<&str>) -> KubeconfigQuery {
    KubeconfigQuery {
        key: key.map(str::to_owned),
        known: None,
    }
}

fn judge(decode: KubeconfigDecoder) -> KubeconfigValidator {
    KubeconfigValidator::new(decode, Duration::from_secs(20))
}

async fn one(judge: &KubeconfigValidator, body: SecretBody, asked: KubeconfigQuery) -> KubeconfigVerdict {
    let mut judged = judge.judge(body, &[asked]).await.unwrap();
    judged.verdicts.pop().unwrap()
}

fn fault(verdict: &KubeconfigVerdict) -> Option<KubeconfigFault> {
    match verdict {
        KubeconfigVerdict::Nowhere(fault) => Some(*fault),
        KubeconfigVerdict::Same | KubeconfigVerdict::Leads(_) => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for a decoder")]
fn good(_: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
    Ok(config())
}

const BAD: KubeconfigFlaw = KubeconfigFlaw {
    reason: Reason::BadKubeconfig,
    message: "it cannot be read",
};

#[tokio::test]
async fn each_key_has_a_verdict_of_its_own() {
    fn by_content(bytes: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
        if bytes == b"good" { good(bytes) } else { Err(BAD) }
    }
    let body = secret("1", &[("value", b"good"), ("other", b"bad"), ("empty", b"")]);
    let all = [None, Some("value"), Some("other"), Some("empty"), Some("none")].map(asked);
    let judged = judge(by_content).judge(body, &all).await.unwrap();
    assert_eq!((judged.uid.as_str(), judged.version.as_str()), ("1", "7"));
    let faults: Vec<_> = judged.verdicts.iter().map(fault).collect();
    let missing = Some(KubeconfigFault::NoKey);
    assert_eq!(
        faults,
        [None, None, Some(KubeconfigFault::Flaw(BAD)), missing, missing]
    );
    let keys = judged.verdicts.iter().filter_map(|verdict| match verdict {
        KubeconfigVerdict::Leads(found) => Some((&*found.key.secret_uid, &*found.key.key)),
        KubeconfigVerdict::Same | KubeconfigVerdict::Nowhere(_) => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [("1", "value"), ("1", "value")]);
    assert!(
        judge(good)
            .judge(SecretBody::new(b"[]".to_vec()), &all)
            .await
            .is_none()
    );
}

/// Holds: K12.
#[tokio::test]
async fn only_the_same_bytes_of_the_same_secret_are_known() {
    let known = match one(&judge(good), secret("1", &[("value", b"a")]), asked(None)).await {
        KubeconfigVerdict::Leads(found) => Some((found.key, found.content)),
        KubeconfigVerdict::Same | KubeconfigVerdict::Nowhere(_) => None,
    };
    let table = [
        ("1", "value", "a", true),
        ("1", "value", "b", false),
        ("2", "value", "a", false),
        ("1", "value.yaml", "a", false),
    ];
    for (uid, key, content, is_known) in table {
        let again = KubeconfigQuery {
            key: None,
            known: known.clone(),
        };
        let verdict = one(&judge(good), secret(uid, &[(key, content.as_bytes())]), again).await;
        assert_eq!(
            matches!(verdict, KubeconfigVerdict::Same),
            is_known,
            "{uid} {key} {content}"
        );
    }
}

/// Holds: K10.
#[tokio::test]
async fn what_was_refused_is_not_decoded_again() {
    static DECODED: AtomicUsize = AtomicUsize::new(0);
    fn counted(_: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
        DECODED.fetch_add(1, Ordering::Relaxed);
        Err(BAD)
    }
    let judge = judge(counted);
    for uid in ["1", "2", "3"] {
        let verdict = one(&judge, secret(uid, &[("value", b"bomb")]), asked(None)).await;
        assert_eq!(fault(&verdict), Some(KubeconfigFault::Flaw(BAD)));
    }
    assert_eq!(
        DECODED.load(Ordering::Relaxed),
        1,
        "one content, whoever brings it"
    );
    one(&judge, secret("1", &[("value", b"other")]), asked(None)).await;
    assert_eq!(DECODED.load(Ordering::Relaxed), 2);
}

#[test]
fn only_so_much_is_remembered() {
    let mut refused = RefusedKubeconfigs::default();
    let content = |n: usize| KubeconfigHash::of(&n.to_be_bytes());
    for n in 0..3 * REMEMBERED {
        refused.put(content(n), BAD);
        refused.put(content(n), BAD);
    }
    assert_eq!(
        (refused.flaws.len(), refused.order.len()),
        (REMEMBERED, REMEMBERED)
    );
    assert_eq!(refused.get(content(0)), None);
    assert_eq!(refused.get(content(3 * REMEMBERED - 1)), Some(BAD));
}

/// Holds: K9.
#[tokio::test]
async fn one_that_takes_too_long_is_given_up_and_blocks_nobody() {
    fn slow(bytes: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
        if bytes == b"slow" {
            std::thread::sleep(Duration::from_secs(5));
        }
        good(bytes)
    }
    let judge = KubeconfigValidator::new(slow, Duration::from_millis(200));
    let begin = Instant::now();
    let body = secret("1", &[("value", b"slow")]);
    let judged = judge.judge(body, &[asked(None)]).await.unwrap();
    assert!(judged.is_late && fault(&judged.verdicts[0]) == Some(KubeconfigFault::Flaw(LATE)));
    assert!(begin.elapsed() < Duration::from_secs(4), "it was waited for");
    let quick = secret("2", &[("value", b"quick")]);
    let judged = judge.judge(quick, &[asked(None)]).await.unwrap();
    assert!(!judged.is_late && begin.elapsed() < Duration::from_secs(4));
    assert!(
        judge.refused().get(KubeconfigHash::of(b"slow")).is_none(),
        "it may be the machine"
    );
}

/// Holds: K9.
#[tokio::test]
async fn one_that_is_too_large_is_refused_without_being_read() {
    let megabyte = vec![b'x'; 1024 * 1024];
    let verdict = one(&judge(decode), secret("1", &[("value", &megabyte)]), asked(None)).await;
    let reason = fault(&verdict).map(KubeconfigFault::reason);
    assert_eq!(reason, Some(Reason::KubeconfigTooLarge));
}
