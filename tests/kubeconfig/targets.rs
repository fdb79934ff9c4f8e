//! What the fuzz targets check of any bytes; the tests replay their seeds through the same code.

use std::net::IpAddr;

use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::kubeconfig::{ApiServerHost, server};

use super::differential::same_as_kube;

/// A kubeconfig ends as a refusal or as what kube makes of it.
pub fn kubeconfig(bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            same_as_kube(text);
        }
        Err(_) => assert!(renderhub::remote::kubeconfig::decode(bytes).is_err()),
    }
}

/// The text after `https://` is refused, or a host in the one form that every reader reads as the same again.
pub fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let url = format!("https://{text}");
    let Ok((host, port)) = server(&url) else { return };
    let again = match &host {
        ApiServerHost::Address(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        host => format!("https://{host}:{port}"),
    };
    assert!(server(&again) == Ok((host.clone(), port)));
    let uri: http::Uri = url.parse().expect("others read it as well");
    let theirs = uri.host().expect("a host").to_ascii_lowercase();
    let theirs = theirs.trim_start_matches('[').trim_end_matches(']');
    assert!(theirs.strip_suffix('.').unwrap_or(theirs) == host.to_string());
    assert!(uri.port_u16().unwrap_or(443) == port);
    match host {
        ApiServerHost::Address(address) => {
            let is_special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
            assert!(!is_special || !AddressPolicy::default().permits(address));
        }
        // No reader takes the name for an address.
        ApiServerHost::Name(name) => {
            assert!(name.parse::<IpAddr>().is_err());
            assert!(name.rsplit('.').next() != Some("localhost"));
        }
    }
}
