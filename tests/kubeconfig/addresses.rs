//! Every spelling of a forbidden address ends at the decoder or at the guard.

use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::kubeconfig::KubeconfigError;
use renderhub::remote::kubeconfig::KubeconfigError::*;
use renderhub::remote::kubeconfig::{ApiServerHost, server};
use serde_json::json;

use super::documents::{accepted, refused, with};

/// What becomes of a spelling.
enum Fate {
    /// The decoder refuses it.
    Refused(KubeconfigError),
    /// The decoder reads an address, and the guard refuses that.
    Address,
    /// The decoder reads this name; what it comes to is judged when it is dialled.
    Name(&'static str),
}
use Fate::{Address, Name, Refused};

#[rustfmt::skip]
const SPELLINGS: &[(&str, Fate)] = &[
    ("127.0.0.1", Address),
    ("127.0.0.1:6443", Address),
    ("127.255.255.254", Address),
    ("127.1", Refused(BadServer)),
    ("127.0.1", Refused(BadServer)),
    ("127.0.0.1.", Refused(BadServer)),
    ("127.000.000.001", Refused(BadServer)),
    ("0177.0.0.1", Refused(BadServer)),
    ("0x7f.1", Refused(BadServer)),
    ("0x7f.0x0.0x0.0x1", Refused(BadServer)),
    ("0x7f000001", Refused(BadServer)),
    ("2130706433", Refused(BadServer)),
    ("017700000001", Refused(BadServer)),
    ("%31%32%37.0.0.1", Refused(BadServer)),
    ("１２７.0.0.1", Refused(BadServer)),
    ("127。0。0。1", Refused(BadServer)),
    ("①②⑦.0.0.1", Refused(BadServer)),
    ("0.0.0.0", Address),
    ("0", Refused(BadServer)),
    ("255.255.255.255", Address),
    ("169.254.169.254", Address),
    ("2852039166", Refused(BadServer)),
    ("0xa9fea9fe", Refused(BadServer)),
    ("169.254.43518", Refused(BadServer)),
    ("100.100.100.200", Address),
    ("192.0.0.192", Address),
    ("168.63.129.16", Address),
    ("[::]", Address),
    ("[::1]", Address),
    ("[0:0:0:0:0:0:0:1]", Refused(BadServer)),
    ("[::ffff:127.0.0.1]", Address),
    ("[::ffff:a9fe:a9fe]", Refused(BadServer)),
    ("[::FFFF:169.254.169.254]", Refused(BadServer)),
    ("[::127.0.0.1]", Refused(BadServer)),
    ("[::7f00:1]", Address),
    ("[64:ff9b::a9fe:a9fe]", Address),
    ("[64:ff9b::169.254.169.254]", Refused(BadServer)),
    ("[2002:7f00:1::]", Address),
    ("[fe80::1]", Address),
    ("[fe80::1%25eth0]", Refused(BadServer)),
    ("[fe80::1%lo]", Refused(BadServer)),
    ("[fd00:ec2::254]", Address),
    ("[ff02::1]", Address),
    ("::1", Refused(BadServer)),
    ("localhost", Refused(LocalServer)),
    ("localhost.", Refused(LocalServer)),
    ("LOCALHOST:443", Refused(LocalServer)),
    ("api.localhost", Refused(LocalServer)),
    ("localhost..", Refused(BadServer)),
    ("localhost.localdomain", Name("localhost.localdomain")),
    ("kubernetes.default.svc", Name("kubernetes.default.svc")),
    ("kubernetes.default.svc.", Name("kubernetes.default.svc")),
    ("metadata.google.internal", Name("metadata.google.internal")),
    ("127.0.0.1.nip.io", Name("127.0.0.1.nip.io")),
    ("bücher.example", Refused(BadServer)),
    ("xn--bcher-kva.example", Name("xn--bcher-kva.example")),
    ("good@127.0.0.1", Refused(ServerUser)),
    ("good:pass@127.0.0.1", Refused(ServerUser)),
    ("127.0.0.1#@good.example", Refused(ServerUser)),
    ("good.example#.127.0.0.1", Refused(ServerPath)),
    ("good.example\\127.0.0.1", Refused(ServerPath)),
    ("good.example/../127.0.0.1", Refused(ServerPath)),
    ("good.example?127.0.0.1", Refused(ServerPath)),
    ("good.example\n127.0.0.1", Refused(BadServer)),
    ("good.example 127.0.0.1", Refused(BadServer)),
    ("good.example\0.127.0.0.1", Refused(BadServer)),
];

/// Holds: K6.
#[test]
fn no_spelling_leads_past_decoder_and_guard() {
    for (spelling, fate) in SPELLINGS {
        let url = format!("https://{spelling}");
        let document = with("/clusters/0/cluster/server", json!(url));
        match fate {
            Refused(error) => refused(&document, *error, spelling),
            Name(name) => {
                let host = accepted(&document, spelling).host;
                assert!(
                    matches!(&host, ApiServerHost::Name(found) if found == name),
                    "{spelling}"
                );
            }
            Address => {
                let host = accepted(&document, spelling).host;
                let ApiServerHost::Address(address) = host else {
                    panic!("{spelling} is a name")
                };
                assert!(!AddressPolicy::default().permits(address), "{spelling}");
            }
        }
    }
}

/// What other readers of URLs take for a host is what the decoder takes for it.
///
/// Holds: K6, K11.
#[test]
fn other_readers_see_the_same_host() {
    for (spelling, _) in SPELLINGS {
        let url = format!("https://{spelling}");
        let Ok((host, port)) = server(&url) else { continue };
        let uri: http::Uri = url.parse().unwrap();
        let theirs = uri.host().unwrap().trim_matches(['[', ']']).to_ascii_lowercase();
        assert_eq!(theirs.trim_end_matches('.'), host.to_string(), "{spelling}");
        assert_eq!(uri.port_u16().unwrap_or(443), port, "{spelling}");
    }
}
