//! Which addresses the hub connects to for a cluster.
//!
//! The hub checks every address of a name for each connection, so that it dials exactly the addresses that were checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Networks that are refused unless the platform operator allows them.
///
/// Private networks are not among them, as real clusters are there.
#[rustfmt::skip]
const REFUSED: &[IpNet] = &[
    v4([0, 0, 0, 0], 8),           // "this network"; connecting to 0.0.0.0 reaches the machine itself
    v4([127, 0, 0, 0], 8),         // loopback
    v4([169, 254, 0, 0], 16),      // link-local, and the metadata service of most clouds
    v4([100, 100, 100, 200], 32),  // metadata service of Alibaba Cloud
    v4([168, 63, 129, 16], 32),    // host of Azure's machines
    v4([192, 0, 0, 0], 24),        // protocol assignments, and the metadata service of Oracle Cloud (192.0.0.192)
    v4([192, 0, 2, 0], 24),        // documentation
    v4([198, 51, 100, 0], 24),     // documentation
    v4([203, 0, 113, 0], 24),      // documentation
    v4([192, 88, 99, 0], 24),      // relays of 6to4
    v4([224, 0, 0, 0], 4),         // multicast
    v4([240, 0, 0, 0], 4),         // reserved, and broadcast
    v6([0; 8], 96),                // unspecified, loopback, and IPv4-compatible addresses, which are no longer used
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),             // translation within a network: where the IPv4 address is, only it knows
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),                 // discarded
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),                // protocol assignments, Teredo among them
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),            // documentation
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),                // documentation
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),                // segment routing
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),                // link-local
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),                // site-local, no longer used
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),                 // multicast
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),       // metadata service of AWS
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),        // metadata service of Google Cloud
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),         // metadata service of Scaleway
];

/// Networks whose addresses carry an IPv4 address, with the place of its first byte.
#[rustfmt::skip]
const CARRIERS: &[(Ipv6Net, usize)] = &[
    (net6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), 12),         // IPv4-mapped: connected to as IPv4
    (net6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), 12),         // IPv4-translated
    (net6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), 12),      // NAT64
    (net6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), 2),          // 6to4
];

/// Which addresses may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Networks that are permitted although they are refused by default.
    pub allowed: Vec<IpNet>,
    /// Networks that are refused; they win over all others.
    pub denied: Vec<IpNet>,
}

impl AddressPolicy {
    /// Whether the hub may connect to the address. An address that contains an IPv4 address is permitted only if both are.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        self.permits_itself(address) && carried(address).is_none_or(|inner| self.permits_itself(inner.into()))
    }

    fn permits_itself(&self, address: IpAddr) -> bool {
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        !within(&self.denied) && (within(&self.allowed) || !within(REFUSED))
    }
}

/// The IPv4 address that is reached through an IPv6 address.
fn carried(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(outer) = address else { return None };
    let (_, at) = CARRIERS.iter().find(|(net, _)| net.contains(&outer))?;
    let bytes = outer.octets();
    let inner = bytes.get(*at..at + 4)?;
    <[u8; 4]>::try_from(inner).ok().map(Ipv4Addr::from)
}

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(groups: [u16; 8], prefix: u8) -> IpNet {
    IpNet::V6(net6(groups, prefix))
}

const fn net6(s: [u16; 8], prefix: u8) -> Ipv6Net {
    let address = Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    Ipv6Net::new_assert(address, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED_ONES: &str = "
        0.0.0.0 0.1.2.3 127.0.0.1 127.255.255.255 169.254.0.1 169.254.169.254 100.100.100.200 168.63.129.16
        192.0.0.1 192.0.0.192 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 224.0.0.1 239.255.255.255
        240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254
        ::ffff:0.0.0.0 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::10.0.0.1 100::1
        2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1 2001:db8::1 3fff::1 5f00::1 2002:7f00:1::
        2002:a9fe:a9fe::1 2002:0:1:: fe80::1 fe80::a9fe:a9fe febf::1 fec0::1 ff02::1 fd00:ec2::254
        fd20:ce::254 fd00:42::42
    ";
    const PERMITTED_ONES: &str = "
        1.1.1.1 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 100.100.100.201 198.18.0.1 192.0.1.1
        168.63.129.17 223.255.255.255 2606:4700::1 2001:4860::1 2001:200::1 fd00::1 fc00::1 fd00:ec2::253
        ::ffff:10.0.0.1 64:ff9b::10.0.0.1 2002:a00:1::
    ";

    fn guard(allowed: &[&str], denied: &[&str]) -> AddressPolicy {
        let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect();
        AddressPolicy {
            allowed: nets(allowed),
            denied: nets(denied),
        }
    }

    fn permits(guard: &AddressPolicy, address: &str) -> bool {
        guard.permits(address.parse().unwrap())
    }

    /// Holds: K6.
    #[test]
    fn clusters_are_not_at_special_addresses() {
        for address in REFUSED_ONES.split_whitespace() {
            assert!(!permits(&AddressPolicy::default(), address), "{address}");
        }
    }

    #[test]
    fn clusters_are_at_public_and_private_addresses() {
        for address in PERMITTED_ONES.split_whitespace() {
            assert!(permits(&AddressPolicy::default(), address), "{address}");
        }
    }

    #[test]
    fn an_operator_has_the_last_word() {
        let table: [(&[&str], &[&str], &str, bool); 17] = [
            (&["127.0.0.0/8"], &[], "127.0.0.1", true),
            (&["127.0.0.1/32"], &[], "127.0.0.2", false),
            (&["127.0.0.0/8"], &["127.0.0.1/32"], "127.0.0.1", false),
            (&["127.0.0.0/8"], &["127.0.0.1/32"], "127.0.0.2", true),
            (&[], &["10.0.0.0/8"], "10.0.0.1", false),
            (&[], &["10.0.0.0/8"], "11.0.0.1", true),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], "10.0.0.1", false),
            // An address that is carried is judged as if it were dialled itself.
            (&[], &["10.0.0.0/8"], "::ffff:10.0.0.1", false),
            (&[], &["10.0.0.0/8"], "64:ff9b::10.0.0.1", false),
            (&[], &["10.0.0.0/8"], "2002:a00:1::", false),
            (&["127.0.0.0/8"], &[], "::ffff:127.0.0.1", true),
            (&["64:ff9b::/96"], &[], "64:ff9b::127.0.0.1", false),
            (&["127.0.0.0/8"], &[], "::1", false),
            (&["::1/128"], &[], "::1", true),
            (&[], &["64:ff9b::/96"], "64:ff9b::1.1.1.1", false),
            (&["0.0.0.0/0"], &[], "169.254.169.254", true),
            (&[], &["0.0.0.0/0", "::/0"], "1.1.1.1", false),
        ];
        for (allowed, denied, address, expected) in table {
            let found = permits(&guard(allowed, denied), address);
            assert_eq!(found, expected, "{allowed:?} {denied:?} {address}");
        }
    }
}
