//! The whole matrix of ways in which a registry A can point at another host, for each kind of credential: B and C, which would
//! take anything and ask for more, are not even connected to, and the push ends for the enumerated reason.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::stream;
use renderhub::api::basic_auth::BasicCredential;
use renderhub::api::oci::{Digest, OciReference};
use renderhub::api::termination::TerminationReason;
use renderhub::renderer::auth::{Authenticator, TokenScope};
use renderhub::renderer::credentials::{self, CredentialSource};
use renderhub::renderer::error::{PushError, PushStep};
use renderhub::renderer::manifest::MANIFEST_TYPE;
use renderhub::renderer::origin::Origin;
use renderhub::renderer::registry::{PushOutcome, RegistryClient};
use renderhub::renderer::tls;
use renderhub::renderer::transport::{Transport, TransportLimits};
use renderhub_harness::pki::Authority;
use rustls::ClientConfig;
use tokio_rustls::TlsAcceptor;

use support::registry::{BASIC, Hostile, PASSWORD, Reply, Seen, acceptor, artifact, limits, say};

/// Pushes at a time.
const AT_ONCE: usize = 32;

// === who holds a credential, and how ===

/// A way to hold a credential, as the pusher's files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    BasicAuth,
    DockerAuth,
    DockerPair,
    DockerIdentityToken,
    Anonymous,
}

const IDENTITIES: [Identity; 5] = [
    Identity::BasicAuth,
    Identity::DockerAuth,
    Identity::DockerPair,
    Identity::DockerIdentityToken,
    Identity::Anonymous,
];

impl Identity {
    /// Whether there is anything that could be sent: identity tokens need a protocol that the pusher does not support.
    fn has_credential(self) -> bool {
        !matches!(self, Self::DockerIdentityToken | Self::Anonymous)
    }

    /// Whether there is a way through the code that only it takes; the others need not try every odd spelling.
    fn has_own_code(self) -> bool {
        matches!(
            self,
            Self::BasicAuth | Self::DockerAuth | Self::DockerIdentityToken
        )
    }

    /// Reads it from files as the pusher does.
    fn load(self, host: &str) -> Option<BasicCredential> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let entry = |entry: serde_json::Value| {
            let text = serde_json::json!({"auths": {host: entry}, "credsStore": "canary", "proxies": {"default": {"httpProxy": "http://127.0.0.2:1"}}});
            CredentialSource::DockerConfig {
                path: write("config.json", &text.to_string()),
                required: false,
            }
        };
        let source = match self {
            Self::BasicAuth => CredentialSource::Files {
                username: write("username", "canary-user"),
                password: write("password", PASSWORD),
            },
            Self::DockerAuth => entry(
                serde_json::json!({"auth": STANDARD.encode(format!("canary-user:{PASSWORD}")), "identitytoken": PASSWORD}),
            ),
            Self::DockerPair => entry(
                serde_json::json!({"username": "canary-user", "password": PASSWORD, "registrytoken": PASSWORD}),
            ),
            Self::DockerIdentityToken => {
                entry(serde_json::json!({"identitytoken": PASSWORD, "registrytoken": PASSWORD}))
            }
            Self::Anonymous => CredentialSource::None,
        };
        credentials::load(&source, &host.parse().unwrap()).unwrap()
    }
}

// === the rows ===

/// Where all of them listen: `host:port`.
#[derive(Clone, Debug)]
struct Sites {
    a: String,
    /// The attacker on another host.
    b: String,
    /// The attacker on A's host and another port.
    c: String,
    /// The scheme of all three.
    scheme: &'static str,
}

impl Sites {
    /// The scheme they are not reached by.
    fn other_scheme(&self) -> &'static str {
        if self.scheme == "http" { "https" } else { "http" }
    }
}

type Twist = Arc<dyn Fn(&Seen, usize, &Sites) -> Option<Reply> + Send + Sync>;

/// How a push is to end.
#[derive(Clone, Copy)]
enum Ends {
    /// The same for all of them.
    So(Result<PushOutcome, PushError>),
    /// For who has a credential; who has none is not let in.
    WithCredential(Result<PushOutcome, PushError>),
}

#[derive(Clone)]
struct Row {
    name: String,
    ends: Ends,
    twist: Twist,
}

impl Row {
    /// Whether it points elsewhere in the plainest way, or does not point.
    fn is_plain(&self) -> bool {
        let spelling = self.name.rsplit(": ").next().unwrap_or_default();
        spelling == "other host" || !POINTERS.iter().any(|(name, _)| *name == spelling)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn row(
    name: impl fmt::Display,
    ends: Ends,
    twist: impl Fn(&Seen, usize, &Sites) -> Option<Reply> + Send + Sync + 'static,
) -> Row {
    Row {
        name: name.to_string(),
        ends,
        twist: Arc::new(twist),
    }
}

/// The calls of a push.
const STEPS: [(&str, PushStep); 6] = [
    ("lookup", PushStep::Lookup),
    ("blob", PushStep::Blob),
    ("open", PushStep::Open),
    ("upload", PushStep::Upload),
    ("manifest", PushStep::Manifest),
    ("verify", PushStep::Verify),
];

/// Addresses that are not A's origin, or no addresses at all.
type Pointer = fn(&Sites) -> String;

const POINTERS: [(&str, Pointer); 16] = [
    ("other host", |s| format!("{}://{}/x", s.scheme, s.b)),
    ("other port", |s| format!("{}://{}/x", s.scheme, s.c)),
    ("other scheme", |s| format!("{}://{}/x", s.other_scheme(), s.a)),
    ("other scheme and host", |s| {
        format!("{}://{}/x", s.other_scheme(), s.b)
    }),
    ("user information of A", |s| {
        format!("{}://{}@{}/x", s.scheme, s.a, s.b)
    }),
    ("user information", |s| format!("{}://u:p@{}/x", s.scheme, s.a)),
    ("network path", |s| format!("//{}/x", s.b)),
    ("three slashes", |s| format!("///{}/x", s.b)),
    ("backslashes", |s| format!("\\\\{}\\x", s.b)),
    ("slash and backslash", |s| format!("/\\{}/x", s.b)),
    ("backslash in authority", |s| {
        format!("{}://{}\\@{}/x", s.scheme, s.b, s.a)
    }),
    ("prefix of A", |s| format!("{}://{}.b.test/x", s.scheme, s.a)),
    ("one slash", |s| format!("{}:/{}/x", s.scheme, s.b)),
    ("other protocol", |s| format!("ftp://{}/x", s.b)),
    ("tab inside", |s| format!("{}://{}\t{}/x", s.scheme, s.a, s.b)),
    ("nothing", |_| String::new()),
];

/// Asks for the pair once.
fn guarded(seen: &Seen) -> Option<Reply> {
    let challenge = [("WWW-Authenticate", "Basic realm=\"x\"".to_owned())];
    (seen.authorization() != Some(BASIC)).then(|| say(401, &challenge))
}

fn challenge(text: String) -> Reply {
    say(401, &[("WWW-Authenticate", text)])
}

/// Realms elsewhere: at the first challenge, at a later one of each call, and beside others.
fn realms() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, pointer) in POINTERS {
        let ends = Ends::So(Err(PushError::Realm));
        rows.push(row(format!("realm: {name}"), ends, move |_, _, sites| {
            Some(challenge(format!(
                "Bearer realm=\"{}\",service=\"s\"",
                pointer(sites)
            )))
        }));
        let basic_first = row(format!("realm beside Basic: {name}"), ends, move |_, _, sites| {
            Some(challenge(format!(
                "Basic realm=\"x\", Bearer realm=\"{}\"",
                pointer(sites)
            )))
        });
        rows.push(basic_first);
        for (step, _) in STEPS {
            let name = format!("realm of {step} after an answer: {name}");
            // A second challenge of one call is not even read.
            let is_second = step == "lookup";
            let error = if is_second {
                PushError::Unauthorized
            } else {
                PushError::Realm
            };
            let ends = Ends::WithCredential(Err(error));
            rows.push(row(name, ends, move |seen, _, sites| {
                guarded(seen).or_else(|| {
                    let again = || challenge(format!("Bearer realm=\"{}\"", pointer(sites)));
                    (seen.step() == step).then(again)
                })
            }));
        }
    }
    // What is no address by itself is none, although a path would be one for an upload.
    for realm in [
        "/token",
        "token",
        "https:///token",
        "http://",
        "#",
        "http://127.0.0.2:1/#@127.0.0.1/",
    ] {
        rows.push(row(
            format!("realm: {realm}"),
            Ends::So(Err(PushError::Realm)),
            move |_, _, _| Some(challenge(format!("Bearer realm=\"{realm}\""))),
        ));
    }
    rows.push(row("realm: none", Ends::So(Err(PushError::Realm)), |_, _, _| {
        Some(challenge("Bearer service=\"s\"".to_owned()))
    }));
    // A Basic realm is a text for people, whatever it looks like.
    let word = row(
        "Basic realm",
        Ends::WithCredential(Ok(PushOutcome::Uploaded)),
        |seen, _, sites| {
            let text = format!("Basic realm=\"{}://{}/token\"", sites.scheme, sites.b);
            (seen.authorization() != Some(BASIC)).then(|| challenge(text))
        },
    );
    let two = row("two headers", Ends::So(Err(PushError::Realm)), |_, _, sites| {
        let bearer = format!("Bearer realm=\"{}://{}/token\"", sites.scheme, sites.b);
        Some(say(
            401,
            &[
                ("WWW-Authenticate", "Basic realm=\"x\"".into()),
                ("WWW-Authenticate", bearer),
            ],
        ))
    });
    rows.extend([word, two]);
    rows
}

/// A token service on A itself that the challenge names.
fn token_realm(sites: &Sites) -> Reply {
    challenge(format!(
        "Bearer realm=\"{}://{}/token\",service=\"s\"",
        sites.scheme, sites.a
    ))
}

/// Redirects of every call, to every place that is not A, and to A itself.
fn redirects() -> Vec<Row> {
    let mut rows = Vec::new();
    let own: (&str, Pointer) = ("A itself", |s| {
        format!("{}://{}/v2/other/manifests/1", s.scheme, s.a)
    });
    let statuses = |name: &str| -> &[u16] {
        if name == "other host" {
            &[300, 301, 302, 303, 304, 305, 306, 307, 308, 399]
        } else {
            &[307]
        }
    };
    for (name, pointer) in POINTERS.into_iter().chain([own]) {
        for &status in statuses(name) {
            for (step, as_step) in STEPS {
                // A blob that is said to be elsewhere is uploaded to A once more.
                let end = if step == "blob" {
                    Ok(PushOutcome::Uploaded)
                } else {
                    Err(PushError::Redirect(as_step))
                };
                let ends = Ends::WithCredential(end);
                rows.push(row(
                    format!("{status} of {step}: {name}"),
                    ends,
                    move |seen, _, sites| {
                        let away = || say(status, &[("Location", pointer(sites))]);
                        guarded(seen).or_else(|| (seen.step() == step).then(away))
                    },
                ));
            }
            let ends = Ends::So(Err(PushError::Redirect(PushStep::Token)));
            rows.push(row(
                format!("{status} of token: {name}"),
                ends,
                move |seen, _, sites| {
                    let away = || say(status, &[("Location", pointer(sites))]);
                    Some(if seen.step() == "token" {
                        away()
                    } else {
                        token_realm(sites)
                    })
                },
            ));
            // The manifest itself is only fetched where HEAD says nothing of its digest.
            let ends = Ends::WithCredential(Err(PushError::Redirect(PushStep::Verify)));
            rows.push(row(
                format!("{status} of fetch: {name}"),
                ends,
                move |seen, _, sites| {
                    guarded(seen).or_else(|| match seen.step() {
                        "verify" => Some(say(200, &[])),
                        "fetch" => Some(say(status, &[("Location", pointer(sites))])),
                        _ => None,
                    })
                },
            ));
        }
    }
    rows
}

/// Places to go on with an upload that are not on A.
fn locations() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, pointer) in POINTERS {
        let ends = Ends::WithCredential(Err(PushError::Redirect(PushStep::Open)));
        rows.push(row(
            format!("upload location: {name}"),
            ends,
            move |seen, _, sites| {
                let away = || say(202, &[("Location", pointer(sites))]);
                guarded(seen).or_else(|| (seen.step() == "open").then(away))
            },
        ));
        // The place of something that was stored does not matter.
        for step in ["upload", "manifest"] {
            let ends = Ends::WithCredential(Ok(PushOutcome::Uploaded));
            rows.push(row(
                format!("location of what {step} stored: {name}"),
                ends,
                move |seen, _, sites| {
                    let digest = Digest::of(&seen.body).to_string();
                    let away = || {
                        say(
                            201,
                            &[("Location", pointer(sites)), ("Docker-Content-Digest", digest)],
                        )
                    };
                    guarded(seen).or_else(|| match seen.step() {
                        _ if step == "manifest" && seen.step() == "lookup" => None,
                        "upload" if step == "upload" => Some(away()),
                        _ => None,
                    })
                },
            ));
        }
    }
    rows
}

/// Upload locations that would need a base to be resolved against, which the protocol does not give.
fn relative_locations() -> Vec<Row> {
    let relative = |location: &'static str| {
        let ends = Ends::WithCredential(Err(PushError::Redirect(PushStep::Open)));
        row(format!("upload location: {location}"), ends, move |seen, _, _| {
            let away = || say(202, &[("Location", location.to_owned())]);
            guarded(seen).or_else(|| (seen.step() == "open").then(away))
        })
    };
    ["u", "../u", "?u", "#u", "@127.0.0.2/u", ":1/u"]
        .map(relative)
        .into()
}

/// Headers that lead elsewhere in other clients.
fn hints() -> Vec<Row> {
    let ends = Ends::WithCredential(Ok(PushOutcome::Uploaded));
    let mut rows = Vec::new();
    for (step, _) in STEPS {
        rows.push(row(format!("hints of {step}"), ends, move |seen, _, sites| {
            if seen.step() != step {
                return guarded(seen);
            }
            let url = format!("{}://{}/next", sites.scheme, sites.b);
            let hints = |more: Vec<(&'static str, String)>| {
                let mut all = vec![
                    ("Link", format!("<{url}>; rel=\"next\"")),
                    (
                        "Alt-Svc",
                        format!("http/1.1=\"{}\"; ma=3600, h2=\"{}\"", sites.b, sites.b),
                    ),
                    ("Refresh", format!("0; url={url}")),
                    ("Content-Location", url.clone()),
                    ("OCI-Subject", url.clone()),
                    ("Docker-Distribution-Api-Version", url.clone()),
                    ("Set-Cookie", format!("a=b; Domain={}", sites.b)),
                ];
                all.extend(more);
                all
            };
            guarded(seen).or_else(|| match seen.step() {
                "open" => Some(say(
                    202,
                    &hints(vec![("Location", "/v2/team-a/shop/blobs/uploads/1".into())]),
                )),
                "blob" => Some(say(404, &hints(Vec::new()))),
                _ => None,
            })
        }));
    }
    rows
}

/// Responses that are not true, or of a kind that was not asked for.
fn lies() -> Vec<Row> {
    let other = Digest::of(b"other").to_string();
    let mut rows = Vec::new();
    for (step, status, error) in [
        ("lookup", 200, PushError::TagConflict),
        ("manifest", 201, PushError::DigestMismatch),
        ("verify", 200, PushError::DigestMismatch),
        ("verify", 404, PushError::DigestMismatch),
    ] {
        for type_ in [
            "application/vnd.oci.image.index.v1+json",
            "text/html",
            MANIFEST_TYPE,
            "",
        ] {
            let other = other.clone();
            let ends = Ends::WithCredential(Err(error));
            rows.push(row(
                format!("{status} of {step} lies as {type_}"),
                ends,
                move |seen, _, _| {
                    let lie = [
                        ("Docker-Content-Digest", other.clone()),
                        ("Content-Type", type_.to_owned()),
                    ];
                    guarded(seen).or_else(|| (seen.step() == step).then(|| say(status, &lie)))
                },
            ));
        }
    }
    // The same bytes under another media type are another thing to every reader; the digest alone decides here.
    let ends = Ends::WithCredential(Ok(PushOutcome::AlreadyExists));
    rows.push(row("the manifest as something else", ends, |seen, _, _| {
        let digest = artifact("a").manifest.digest.to_string();
        let typed = [
            ("Docker-Content-Digest", digest),
            ("Content-Type", "text/html".into()),
        ];
        guarded(seen).or_else(|| (seen.step() == "lookup").then(|| say(200, &typed)))
    }));
    let ends = Ends::WithCredential(Err(PushError::TagConflict));
    rows.push(row("an index that names the manifest", ends, |seen, _, sites| {
        let digest = artifact("a").manifest.digest;
        let index = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[{{\"digest\":\"{digest}\",\"urls\":[\"{}://{}/\"]}}]}}",
            sites.scheme, sites.b
        );
        guarded(seen).or_else(|| match (seen.step(), seen.method()) {
            ("lookup", _) => Some(say(200, &[])),
            ("fetch", _) => Some(Reply::Say(200, Vec::new(), index.into_bytes())),
            _ => None,
        })
    }));
    rows
}

/// Answers of a token service that point elsewhere.
fn tokens() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, pointer) in POINTERS {
        let ends = Ends::So(Err(PushError::Unauthorized));
        rows.push(row(
            format!("a challenge of the token service: {name}"),
            ends,
            move |seen, _, sites| {
                let more = || challenge(format!("Bearer realm=\"{}\"", pointer(sites)));
                Some(if seen.step() == "token" {
                    more()
                } else {
                    token_realm(sites)
                })
            },
        ));
        let ends = Ends::So(Err(PushError::Realm));
        rows.push(row(
            format!("a token is not enough: {name}"),
            ends,
            move |seen, _, sites| {
                let body = br#"{"token":"t","access_token":"u","refresh_token":"v","expires_in":1}"#.to_vec();
                Some(match (seen.step(), seen.authorization()) {
                    ("token", _) => Reply::Say(200, Vec::new(), body),
                    (_, None) => token_realm(sites),
                    // Another challenge for a later call leads away.
                    ("lookup", Some("Bearer t")) => say(404, &[]),
                    _ => challenge(format!("Bearer realm=\"{}\"", pointer(sites))),
                })
            },
        ));
    }
    rows
}

// === the run ===

/// One push of an identity against a registry that does as the row says.
struct World {
    a: Hostile,
    b: Hostile,
    c: Hostile,
    is_tls: bool,
}

impl World {
    async fn start(row: &Row, tls: Option<&TlsAcceptor>) -> Self {
        // They take whatever comes, and ask for a credential.
        let greedy = |seen: &Seen, _: usize| {
            (seen.authorization().is_none()).then(|| challenge("Basic realm=\"b\"".into()))
        };
        let b = Hostile::start_at("127.0.0.2", tls.cloned(), greedy).await;
        let c = Hostile::start_at("127.0.0.1", tls.cloned(), greedy).await;
        let (is_tls, twist) = (tls.is_some(), row.twist.clone());
        let elsewhere = (b.address.to_string(), c.address.to_string());
        let a = Hostile::start_at("127.0.0.1", tls.cloned(), move |seen, before| {
            let sites = Sites {
                a: seen.headers["host"].clone(),
                b: elsewhere.0.clone(),
                c: elsewhere.1.clone(),
                scheme: if is_tls { "https" } else { "http" },
            };
            twist(seen, before, &sites)
        })
        .await;
        Self { a, b, c, is_tls }
    }

    async fn push(&self, identity: Identity, trust: ClientConfig) -> Result<PushOutcome, PushError> {
        let reference: OciReference = format!("{}/team-a/shop:1.0.0", self.a.address).parse().unwrap();
        let auth = Authenticator {
            origin: Origin::of_registry(&reference.host, !self.is_tls),
            repository: reference.repository,
            credential: identity.load(reference.host.as_str()),
            token_realm: None,
            access: TokenScope::Push,
        };
        // Nothing here hangs, so no call needs an end of its own; a broken connection is tried again at once.
        let limits = TransportLimits {
            call: TransportLimits::default().call,
            ..limits()
        };
        let mut registry = RegistryClient::new(Transport::new(trust, limits), auth);
        registry.push(&reference.tag, &artifact("a")).await
    }

    /// What holds whatever a registry does.
    fn check(&self, row: &Row, identity: Identity) {
        // No other program has a reason to connect to B's address; C's port may be an old one of another program.
        assert_eq!(
            self.b.connections(),
            0,
            "{row:?} as {identity:?}: {:?}",
            self.b.seen()
        );
        let is_ours = |seen: &Seen| {
            let agent = seen.headers.get("user-agent");
            agent.is_none_or(|agent| agent.starts_with("renderhub")) || seen.authorization().is_some()
        };
        let seen: Vec<_> = self.c.seen().into_iter().filter(is_ours).collect();
        assert!(seen.is_empty(), "{row:?} as {identity:?}: {seen:?}");
        for seen in self.a.seen() {
            let place = format!("{row:?} as {identity:?}: {}", seen.line);
            let target = seen.target();
            assert!(["HEAD", "GET", "POST", "PUT"].contains(&seen.method()), "{place}");
            assert!(
                !target.contains("mount") && !target.contains("from=") && !target.contains("_catalog"),
                "{place}"
            );
            assert!(
                !seen.headers.contains_key("cookie") && !seen.headers.contains_key("referer"),
                "{place}"
            );
            let allowed = match seen.authorization() {
                None => true,
                Some(BASIC) => identity.has_credential(),
                Some(other) => other == "Bearer t" && seen.step() != "token",
            };
            assert!(allowed, "{place}");
            let type_ = seen.headers.get("content-type").map(String::as_str);
            match seen.step() {
                "manifest" => assert_eq!(type_, Some(MANIFEST_TYPE), "{place}"),
                "upload" => assert_eq!(type_, Some("application/octet-stream"), "{place}"),
                _ => assert!(seen.body.is_empty(), "{place}"),
            }
            assert!(
                !String::from_utf8_lossy(&seen.body).contains("\"urls\""),
                "{place}"
            );
        }
    }
}

async fn run(rows: &[Row], tls: Option<&TlsAcceptor>, trust: &ClientConfig) {
    let all: Vec<_> = rows
        .iter()
        .flat_map(|row| IDENTITIES.map(|identity| (row, identity)))
        .filter(|(row, identity)| identity.has_own_code() || row.is_plain())
        .collect();
    let wanted = all.len();
    let all = all.into_iter();
    let pushes = all.map(|(row, identity)| async move {
        let world = World::start(row, tls).await;
        let outcome = world.push(identity, trust.clone()).await;
        let expected = match row.ends {
            Ends::WithCredential(_) | Ends::So(Err(PushError::Unauthorized | PushError::Forbidden))
                if !identity.has_credential() =>
            {
                Err(PushError::CredentialRequired)
            }
            Ends::So(ends) | Ends::WithCredential(ends) => ends,
        };
        assert_eq!(outcome, expected, "{row:?} as {identity:?}");
        if let Err(error) = outcome {
            // It is reported by a reason of a closed list.
            assert!(TerminationReason::ALL.contains(&error.reason()) && !error.reason().is_success());
            assert!(!format!("{error} {error:?}").contains("127.0.0."), "{error}");
        }
        assert!(
            !world.a.seen().is_empty(),
            "{row:?} as {identity:?}: A was never asked"
        );
        world.check(row, identity);
    });
    let ended = stream::iter(pushes).buffer_unordered(AT_ONCE).count().await;
    assert_eq!(ended, wanted);
}

/// Holds: O1, O2, O3, O4, O5, O6, C8.
#[tokio::test]
async fn no_registry_sends_a_credential_or_a_chart_elsewhere() {
    let rows = [
        realms(),
        redirects(),
        locations(),
        relative_locations(),
        hints(),
        lies(),
        tokens(),
    ]
    .concat();
    assert!(rows.len() > 400, "only {} rows", rows.len());
    run(&rows, None, &tls::no_tls().unwrap()).await;
}

/// Holds: O1, O2, O3, O5.
#[tokio::test]
async fn no_registry_with_tls_leads_out_of_it_or_elsewhere() {
    let authority = Authority::new("matrix").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let trust = tls::client_config(&[file.path()]).unwrap();
    // Handshakes take long in a build without optimisation, so one row of each kind has to do: those that differ by TLS.
    let mut rows = [realms(), redirects(), locations(), hints(), tokens()].concat();
    rows.retain(|row| {
        let differs = ["other host", "other scheme", "network path"];
        let is_one = [
            "307 of",
            "realm:",
            "realm of open",
            "upload location",
            "token",
            "hints of open",
            "fetch",
        ];
        differs.iter().any(|name| row.name.ends_with(name))
            && is_one.iter().any(|name| row.name.contains(name))
    });
    assert!(rows.len() > 30, "only {} rows", rows.len());
    run(&rows, Some(&acceptor(&authority)), &trust).await;
}
