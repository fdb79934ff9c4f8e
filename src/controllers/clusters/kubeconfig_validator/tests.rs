//! Verdicts on the keys of a Secret, and the cost of a hostile one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

fn query(key: Option<&str>) -> KubeconfigQuery {
    KubeconfigQuery {
        key: key.map(str::to_owned),
        known: None,
    }
}

fn validator(decode: KubeconfigDecoder) -> KubeconfigValidator {
    KubeconfigValidator::new(decode, Duration::from_secs(20))
}

async fn one(validator: &KubeconfigValidator, body: SecretBody, query: KubeconfigQuery) -> KubeconfigVerdict {
    let mut validated = validator.validate(body, &[query]).await.unwrap();
    validated.verdicts.pop().unwrap()
}

fn fault(verdict: &KubeconfigVerdict) -> Option<KubeconfigFault> {
    match verdict {
        KubeconfigVerdict::Invalid(fault) => Some(*fault),
        KubeconfigVerdict::Unchanged | KubeconfigVerdict::Valid(_) => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it has the type of a decoder")]
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
    let all = [None, Some("value"), Some("other"), Some("empty"), Some("none")].map(query);
    let validated = validator(by_content).validate(body, &all).await.unwrap();
    assert_eq!((validated.uid.as_str(), validated.version.as_str()), ("1", "7"));
    let faults: Vec<_> = validated.verdicts.iter().map(fault).collect();
    let missing = Some(KubeconfigFault::NoKey);
    assert_eq!(
        faults,
        [None, None, Some(KubeconfigFault::Flaw(BAD)), missing, missing]
    );
    let keys = validated.verdicts.iter().filter_map(|verdict| match verdict {
        KubeconfigVerdict::Valid(found) => Some((&*found.key.secret_uid, &*found.key.key)),
        KubeconfigVerdict::Unchanged | KubeconfigVerdict::Invalid(_) => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [("1", "value"), ("1", "value")]);
    assert!(
        validator(good)
            .validate(SecretBody::new(b"[]".to_vec()), &all)
            .await
            .is_none()
    );
}

/// Holds: K12.
#[tokio::test]
async fn only_the_same_bytes_of_the_same_secret_are_known() {
    let known = match one(&validator(good), secret("1", &[("value", b"a")]), query(None)).await {
        KubeconfigVerdict::Valid(found) => Some((found.key, found.content)),
        KubeconfigVerdict::Unchanged | KubeconfigVerdict::Invalid(_) => None,
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
        let verdict = one(&validator(good), secret(uid, &[(key, content.as_bytes())]), again).await;
        assert_eq!(
            matches!(verdict, KubeconfigVerdict::Unchanged),
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
    let validator = validator(counted);
    for uid in ["1", "2", "3"] {
        let verdict = one(&validator, secret(uid, &[("value", b"bomb")]), query(None)).await;
        assert_eq!(fault(&verdict), Some(KubeconfigFault::Flaw(BAD)));
    }
    assert_eq!(
        DECODED.load(Ordering::Relaxed),
        1,
        "the same content in another Secret"
    );
    one(&validator, secret("1", &[("value", b"other")]), query(None)).await;
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
async fn a_kubeconfig_that_takes_too_long_times_out_and_blocks_no_other() {
    /// Set once the test has seen that the kubeconfig is not waited for.
    static IS_SEEN: AtomicBool = AtomicBool::new(false);
    const LONG: Duration = Duration::from_secs(20);
    fn slow(bytes: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
        let begin = Instant::now();
        while bytes == b"slow" && !IS_SEEN.load(Ordering::SeqCst) && begin.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(10));
        }
        good(bytes)
    }
    let validator = KubeconfigValidator::new(slow, Duration::from_secs(1));
    let begin = Instant::now();
    let body = secret("1", &[("value", b"slow")]);
    let validated = validator.validate(body, &[query(None)]).await.unwrap();
    assert!(validated.is_late && fault(&validated.verdicts[0]) == Some(KubeconfigFault::Flaw(TOO_SLOW)));
    let quick = secret("2", &[("value", b"quick")]);
    let validated = validator.validate(quick, &[query(None)]).await.unwrap();
    assert!(!validated.is_late && begin.elapsed() < LONG, "it was waited for");
    IS_SEEN.store(true, Ordering::SeqCst);
    assert!(
        validator.refused().get(KubeconfigHash::of(b"slow")).is_none(),
        "it may be the machine"
    );
}

/// Holds: K9.
#[tokio::test]
async fn one_that_is_too_large_is_refused_without_being_read() {
    let megabyte = vec![b'x'; 1024 * 1024];
    let verdict = one(
        &validator(decode),
        secret("1", &[("value", &megabyte)]),
        query(None),
    )
    .await;
    let reason = fault(&verdict).map(KubeconfigFault::reason);
    assert_eq!(reason, Some(Reason::KubeconfigTooLarge));
}
