//! Host and port of a server, in the one spelling that every parser reads alike.
//!
//! [`AddressPolicy`](crate::plan::remote::address::AddressPolicy) checks addresses when the hub connects, as a name may resolve
//! to another address by then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::api::names::is_dns_label;

use super::error::KubeconfigError;
use super::remote::ApiServerHost;

/// Longest DNS name.
const MAX_NAME: usize = 253;
/// Port of a URL without one.
const HTTPS_PORT: u16 = 443;
const SCHEME: &str = "https://";

/// Host and port of a server's URL, which must be `https://HOST[:PORT][/]`.
///
/// A host is a DNS name, an IPv4 address of four decimal numbers, or an IPv6 address in its shortest form in brackets.
///
/// # Errors
/// When it is anything else, or the host is the machine itself.
pub fn server(url: &str) -> Result<(ApiServerHost, u16), KubeconfigError> {
    let (scheme, rest) = url
        .split_at_checked(SCHEME.len())
        .ok_or(KubeconfigError::NotHttps)?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(KubeconfigError::NotHttps);
    }
    if rest.contains('@') {
        return Err(KubeconfigError::ServerUser);
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '\\', '?', '#']) {
        return Err(KubeconfigError::ServerPath);
    }
    let (host, port) = split(authority).ok_or(KubeconfigError::BadServer)?;
    let port = port.map_or(Some(HTTPS_PORT), canonical_port);
    match host {
        ApiServerHost::Name(name) if is_local(&name) => Err(KubeconfigError::LocalServer),
        host @ (ApiServerHost::Name(_) | ApiServerHost::Address(_)) => {
            Ok((host, port.ok_or(KubeconfigError::BadServer)?))
        }
    }
}

/// A name that a certificate can be for: a DNS name, or an address without brackets.
///
/// # Errors
/// When it is neither.
pub(super) fn certificate_name(text: &str) -> Result<ApiServerHost, KubeconfigError> {
    let name = canonical_ipv6(text).or_else(|| name_or_ipv4(text));
    name.ok_or(KubeconfigError::BadServerName)
}

/// The host, and the text after its colon.
fn split(authority: &str) -> Option<(ApiServerHost, Option<&str>)> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (address, after) = bracketed.split_once(']')?;
        let host = canonical_ipv6(address)?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    Some((name_or_ipv4(host)?, port))
}

/// An IPv6 address in its printed form; other forms of the same address, and zones, are refused.
fn canonical_ipv6(text: &str) -> Option<ApiServerHost> {
    let address: Ipv6Addr = text.parse().ok()?;
    (address.to_string() == text).then_some(ApiServerHost::Address(IpAddr::V6(address)))
}

/// A name in lower case without the dot at its end, or an IPv4 address.
fn name_or_ipv4(text: &str) -> Option<ApiServerHost> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(ApiServerHost::Address(IpAddr::V4(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_name = name.len() <= MAX_NAME && name.split('.').all(is_dns_label);
    (is_name && !ends_in_a_number(&name)).then_some(ApiServerHost::Name(name))
}

/// Whether some parsers read the name as an address, such as `127.1`, `2130706433` or `0x7f.1`.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    last.bytes().all(|digit| digit.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hex)
}

/// RFC 6761: such a name is the machine itself, whatever a name server answers.
fn is_local(name: &str) -> bool {
    name.rsplit('.').next() == Some("localhost")
}

/// A port without sign or leading zeros.
fn canonical_port(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    (port > 0 && port.to_string() == text).then_some(port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A URL, and the host and port in it.
    type UrlCase = (&'static str, Result<(&'static str, u16), KubeconfigError>);

    #[test]
    fn a_server_is_a_host_and_a_port() {
        let table: [UrlCase; 24] = [
            ("https://api.example.com:6443", Ok(("api.example.com", 6443))),
            ("https://api.example.com", Ok(("api.example.com", 443))),
            ("https://api.example.com/", Ok(("api.example.com", 443))),
            ("HTTPS://API.Example.com.:1/", Ok(("api.example.com", 1))),
            ("https://10.0.0.1:65535", Ok(("10.0.0.1", 65535))),
            ("https://[2001:db8::1]:6443", Ok(("2001:db8::1", 6443))),
            ("https://[fd00::1]", Ok(("fd00::1", 443))),
            (
                "https://xn--bcher-kva.example",
                Ok(("xn--bcher-kva.example", 443)),
            ),
            ("https://0a.1b", Ok(("0a.1b", 443))),
            ("", Err(KubeconfigError::NotHttps)),
            ("api.example.com", Err(KubeconfigError::NotHttps)),
            ("http://api.example.com", Err(KubeconfigError::NotHttps)),
            ("https:/api.example.com/", Err(KubeconfigError::NotHttps)),
            ("https://user@h", Err(KubeconfigError::ServerUser)),
            ("https://h/k8s/clusters/c-1", Err(KubeconfigError::ServerPath)),
            ("https://h//", Err(KubeconfigError::ServerPath)),
            ("https://h?a=b", Err(KubeconfigError::ServerPath)),
            ("https://h#a", Err(KubeconfigError::ServerPath)),
            ("https://h\\a", Err(KubeconfigError::ServerPath)),
            ("https://", Err(KubeconfigError::BadServer)),
            ("https://h:", Err(KubeconfigError::BadServer)),
            ("https://a:1:2", Err(KubeconfigError::BadServer)),
            ("https://localhost:6443", Err(KubeconfigError::LocalServer)),
            ("https://a.LocalHost.", Err(KubeconfigError::LocalServer)),
        ];
        for (url, expected) in table {
            let found = server(url).map(|(host, port)| (host.to_string(), port));
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_spelling_that_readers_differ_on_is_refused() {
        let long = format!("{}.a", "a.".repeat(126));
        let plain = "
            127.1 127.0.0.01 2130706433 0x7f.1 0x7f000001 0X7F.1 a.0x 1.2.3.4. 1.2.3.4.5 [::0001]
            [0::1] [::FFFF:1.2.3.4] [fe80::1%eth0] [::1]x [::1 ::1 [1.2.3.4] a_b a..b . .a -a a-
            bücher.example %31 *
        ";
        let odd = ["a b", "a\tb", "a\n", " a", long.as_str()];
        for host in plain.split_whitespace().chain(odd) {
            let found = server(&format!("https://{host}"));
            assert_eq!(found, Err(KubeconfigError::BadServer), "{host}");
        }
        for port in ["0", "00", "065", "+1", "-1", "65536", "1x", " 1", "１"] {
            let found = server(&format!("https://h:{port}"));
            assert_eq!(found, Err(KubeconfigError::BadServer), "{port}");
        }
    }

    #[test]
    fn a_certificate_may_be_for_any_name() {
        for (text, expected) in [
            ("Kubernetes", Some("kubernetes")),
            ("localhost", Some("localhost")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("", None),
            ("[::1]", None),
            ("0::1", None),
            ("127.1", None),
            ("a:1", None),
            ("*.example.com", None),
        ] {
            let found = certificate_name(text).ok().map(|host| host.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    proptest! {
        /// A printed result parses to the same result.
        #[test]
        fn a_host_is_in_its_one_form(url in "https://[a-z0-9.:\\[\\]x-]{0,20}(:[0-9]{1,5})?/?") {
            if let Ok((host, port)) = server(&url) {
                let again = match &host {
                    ApiServerHost::Address(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
                    ApiServerHost::Name(_) | ApiServerHost::Address(_) => format!("https://{host}:{port}"),
                };
                prop_assert_eq!(server(&again), Ok((host, port)));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (server(&text), server(&format!("https://{text}")), certificate_name(&text));
        }
    }
}
