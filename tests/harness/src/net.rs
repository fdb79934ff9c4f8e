//! Addresses and ports that no other world uses.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// A random loopback address other than 127.0.0.1: ports asked for here practically never meet another server's.
#[must_use]
pub fn loopback() -> IpAddr {
    let [a, b, c, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    // 127.64.0.0/10, and never an address that ends in 0 or 255.
    IpAddr::V4(Ipv4Addr::new(127, 64 | (a & 0x3f), b, 1 + c % 254))
}

/// A port that is free on `address` right now.
///
/// # Errors
/// If the address is not one of this machine's.
pub fn free_port(address: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind(SocketAddr::new(address, 0))
        .with_context(|| format!("no free port on {address}"))?;
    Ok(listener.local_addr()?.port())
}

/// Several different free ports.
pub(crate) fn free_ports<const N: usize>(address: IpAddr) -> Result<[u16; N]> {
    // All are held at once, so that no port is given twice.
    let listeners: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind(SocketAddr::new(address, 0)))
        .collect::<std::io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Whether a server accepts connections there.
pub(crate) fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

/// Fails for an address that others than this machine and its pods could reach: servers of a test are for the test.
pub(crate) fn check_private(address: IpAddr) -> Result<()> {
    let for_tests = matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 198 && v4.octets()[1] & 0xfe == 18);
    ensure!(
        address.is_loopback() || for_tests,
        "servers of a test listen on loopback or in 198.18.0.0/15, not on {address}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_tests_are_private() {
        for good in ["127.0.0.1", "127.99.3.4", "::1", "198.18.0.1", "198.19.255.1"] {
            assert!(check_private(good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "192.0.2.1",
        ] {
            assert!(check_private(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_given_together_differ() {
        let address = loopback();
        let ports: [u16; 20] = free_ports(address).unwrap();
        assert_eq!(std::collections::BTreeSet::from(ports).len(), 20);
        assert!(address.is_loopback() && !accepts(SocketAddr::new(address, ports[0])));
    }
}
