//! Which addresses the hub connects to: none that lead back to itself, unless an administrator says so.

use std::net::IpAddr;

use ipnet::IpNet;

/// The networks an administrator named, over what is refused anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Networks that are allowed although they would be refused.
    pub allowed: Vec<IpNet>,
    /// Networks that are refused; they win.
    pub denied: Vec<IpNet>,
}

impl Guard {
    /// Whether the hub may connect to the address.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        if within(&self.denied) {
            return false;
        }
        let is_local = match address {
            IpAddr::V4(v4) => {
                v4.is_loopback()
                    || v4.is_link_local()
                    || v4.is_unspecified()
                    || v4.is_multicast()
                    || v4.is_broadcast()
            }
            IpAddr::V6(v6) => {
                v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast()
            }
        };
        !is_local || within(&self.allowed)
    }
}
