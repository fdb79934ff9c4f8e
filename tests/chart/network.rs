//! What the rendered network policies let a renderer's pod reach, worked out as Kubernetes defines it.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{HUB, RENDERING, template};

/// A pod, or an address that no pod has.
struct Place {
    address: IpAddr,
    namespace: &'static str,
    labels: &'static [(&'static str, &'static str)],
}

const RENDERER: &[(&str, &str)] = &[
    ("app.kubernetes.io/managed-by", "renderhub"),
    ("renderhub.dev/task-uid", "t1"),
];

fn outside(address: &str) -> Place {
    pod(address, "", &[])
}

fn pod(address: &str, namespace: &'static str, labels: &'static [(&'static str, &'static str)]) -> Place {
    let address = address.parse().expect("an address");
    Place {
        address,
        namespace,
        labels,
    }
}

fn selects(selector: &LabelSelector, labels: &[(&str, &str)]) -> bool {
    assert!(selector.match_expressions.is_none(), "the chart uses none");
    let wanted = selector.match_labels.iter().flatten();
    wanted
        .into_iter()
        .all(|(key, value)| labels.contains(&(key.as_str(), value.as_str())))
}

fn is_in(block: &str, address: IpAddr) -> bool {
    let (base, length) = block.split_once('/').expect("a CIDR");
    let (base, length): (IpAddr, u32) = (
        base.parse().expect("an address"),
        length.parse().expect("a length"),
    );
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or_default();
    base.is_ipv4() == address.is_ipv4() && (bits(base) ^ bits(address)) & mask == 0
}

fn is_peer(peer: &NetworkPolicyPeer, place: &Place, own_namespace: &str) -> bool {
    if let Some(IPBlock { cidr, except }) = &peer.ip_block {
        return is_in(cidr, place.address)
            && !except.iter().flatten().any(|block| is_in(block, place.address));
    }
    let name = [("kubernetes.io/metadata.name", place.namespace)];
    let is_there = match &peer.namespace_selector {
        Some(selector) => !place.namespace.is_empty() && selects(selector, &name),
        None => place.namespace == own_namespace,
    };
    is_there
        && peer
            .pod_selector
            .as_ref()
            .is_none_or(|selector| selects(selector, place.labels))
}

fn is_port(ports: Option<&Vec<NetworkPolicyPort>>, protocol: &str, number: i32) -> bool {
    let Some(ports) = ports else { return true };
    ports.iter().any(|port| {
        let is_number = match &port.port {
            Some(IntOrString::Int(own)) => *own == number,
            Some(IntOrString::String(name)) => name == "admin" && number == 8080,
            None => true,
        };
        port.protocol.as_deref().unwrap_or("TCP") == protocol && is_number
    })
}

fn policies(objects: &[Value]) -> Vec<NetworkPolicy> {
    let of_kind = objects.iter().filter(|object| object["kind"] == "NetworkPolicy");
    of_kind
        .map(|object| serde_json::from_value(object.clone()).expect("a policy"))
        .collect()
}

/// Policies that say something of a direction for a pod; without one everything is open.
fn about<'a>(all: &'a [NetworkPolicy], pod: &Place, direction: &str) -> Vec<&'a NetworkPolicy> {
    let of_pod = |policy: &&NetworkPolicy| {
        let spec = policy.spec.as_ref().expect("a spec");
        let is_own = policy.metadata.namespace.as_deref() == Some(pod.namespace);
        let selects_it = spec
            .pod_selector
            .as_ref()
            .is_none_or(|selector| selects(selector, pod.labels));
        is_own && selects_it && spec.policy_types.iter().flatten().any(|own| own == direction)
    };
    all.iter().filter(of_pod).collect()
}

fn may_leave(all: &[NetworkPolicy], from: &Place, to: &Place, protocol: &str, port: i32) -> bool {
    let about = about(all, from, "Egress");
    let mut rules = about.iter().flat_map(|p| {
        p.spec
            .as_ref()
            .and_then(|s| s.egress.as_ref())
            .into_iter()
            .flatten()
    });
    about.is_empty()
        || rules.any(|rule| {
            let peers = rule.to.as_ref();
            is_port(rule.ports.as_ref(), protocol, port)
                && peers.is_none_or(|peers| peers.iter().any(|peer| is_peer(peer, to, from.namespace)))
        })
}

fn may_enter(all: &[NetworkPolicy], from: &Place, to: &Place, protocol: &str, port: i32) -> bool {
    let about = about(all, to, "Ingress");
    let mut rules = about.iter().flat_map(|p| {
        p.spec
            .as_ref()
            .and_then(|s| s.ingress.as_ref())
            .into_iter()
            .flatten()
    });
    about.is_empty()
        || rules.any(|rule| {
            let peers = rule.from.as_ref();
            is_port(rule.ports.as_ref(), protocol, port)
                && peers.is_none_or(|peers| peers.iter().any(|peer| is_peer(peer, from, to.namespace)))
        })
}

/// Address, where it is, protocol, port, whether a renderer reaches it, and what it is.
const REACH: &str = "
203.0.113.5     outside     TCP 443  yes a registry
203.0.113.5     outside     TCP 5000 yes a registry on its usual port
2001:db8::5     outside     TCP 443  yes a registry by IPv6
203.0.113.5     outside     TCP 22   no  a host that is no registry
203.0.113.5     outside     UDP 443  no  QUIC
10.128.0.2      dns         UDP 53   yes DNS
10.128.0.2      dns         TCP 53   yes DNS over TCP
10.128.0.2      dns         TCP 443  no  the other ports of the DNS pod
10.128.0.3      kube-system UDP 53   no  another pod of kube-system
10.128.0.4      impostor    UDP 53   no  a tenant's pod that calls itself DNS
8.8.8.8         outside     UDP 53   no  DNS outside, a way out for data
169.254.169.254 outside     TCP 443  no  the metadata service
169.254.169.254 outside     TCP 80   no  the metadata service on its usual port
100.100.100.200 outside     TCP 443  no  another cloud's metadata service
fd00:ec2::254   outside     TCP 443  no  the metadata service by IPv6
fe80::1         outside     TCP 443  no  a link-local address
127.0.0.1       outside     TCP 443  no  the node's loopback
::1             outside     TCP 5000 no  the node's loopback by IPv6
10.96.0.1       outside     TCP 443  no  the API server by its Service
192.0.2.10      outside     TCP 443  no  the API server by its endpoint
198.51.100.9    outside     TCP 6443 no  an API server that nobody named, on its usual port
10.128.0.8      renderers   TCP 443  no  a neighbour
10.128.0.9      team-a      TCP 443  no  a tenant's pod
fd00:1::9       team-a      TCP 443  no  a tenant's pod by IPv6
";

fn place(address: &str, kind: &str) -> Place {
    match kind {
        "outside" => outside(address),
        "dns" => pod(address, "kube-system", &[("k8s-app", "kube-dns")]),
        "impostor" => pod(address, "team-a", &[("k8s-app", "kube-dns")]),
        "renderers" => pod(address, RENDERING, RENDERER),
        "kube-system" => pod(address, "kube-system", &[]),
        _ => pod(address, "team-a", &[]),
    }
}

/// Holds: R4.
#[tokio::test]
async fn a_renderer_reaches_registries_and_dns_and_nothing_else() -> Result<()> {
    let blocked = "networkPolicy.blockedCIDRs={10.96.0.1/32,192.0.2.10/32,10.128.0.0/9,fd00:1::/32}";
    let policies = policies(&template(&[blocked]).await?);
    let renderer = pod("10.128.0.7", RENDERING, RENDERER);
    for line in REACH.trim().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, kind, protocol, port, verdict, ..] = words[..] else {
            unreachable!("{line}")
        };
        let reached = may_leave(
            &policies,
            &renderer,
            &place(address, kind),
            protocol,
            port.parse()?,
        );
        assert_eq!(reached, verdict == "yes", "{line}");
    }
    // A pod that was made there by hand reaches nothing at all.
    let stray = pod("10.128.0.9", RENDERING, &[("app", "stray")]);
    assert!(!may_leave(&policies, &stray, &outside("203.0.113.5"), "TCP", 443));
    for from in [
        pod("10.128.0.8", RENDERING, RENDERER),
        pod("10.128.0.9", "team-a", &[]),
        outside("203.0.113.5"),
    ] {
        assert!(
            !may_enter(&policies, &from, &renderer, "TCP", 8080),
            "nothing comes in"
        );
    }
    Ok(())
}

#[tokio::test]
async fn named_registries_are_the_only_ones_and_dns_is_where_it_is_said_to_be() -> Result<()> {
    let sets = [
        "networkPolicy.registries.to[0].ipBlock.cidr=203.0.113.0/24",
        "networkPolicy.registries.ports={8443}",
        "networkPolicy.dns.to[0].ipBlock.cidr=169.254.20.10/32",
    ];
    let policies = policies(&template(&sets).await?);
    let renderer = pod("10.128.0.7", RENDERING, RENDERER);
    for (to, protocol, port, expected) in [
        ("203.0.113.5", "TCP", 8443, true),
        ("203.0.113.5", "TCP", 443, false),
        ("198.51.100.5", "TCP", 8443, false),
        ("169.254.20.10", "UDP", 53, true),
        ("169.254.20.11", "UDP", 53, false),
    ] {
        assert_eq!(
            may_leave(&policies, &renderer, &outside(to), protocol, port),
            expected,
            "{to} {port}"
        );
    }
    Ok(())
}

/// The pod of the hub.
fn hub(objects: &[Value]) -> Result<Place> {
    let labels = &super::of_kind(objects, "Deployment")?["spec"]["selector"]["matchLabels"];
    let expected = json!({
        "app.kubernetes.io/name": "renderhub", "app.kubernetes.io/instance": "renderhub",
        "app.kubernetes.io/component": "hub",
    });
    ensure!(*labels == expected, "{labels}");
    let labels = &[
        ("app.kubernetes.io/name", "renderhub"),
        ("app.kubernetes.io/instance", "renderhub"),
        ("app.kubernetes.io/component", "hub"),
    ];
    Ok(pod("10.128.0.5", HUB, labels))
}

#[tokio::test]
async fn the_hub_answers_on_its_admin_port_only() -> Result<()> {
    let open = template(&[]).await?;
    let tenant = pod("10.128.0.9", "team-a", &[]);
    let (hub, policies) = (hub(&open)?, policies(&open));
    assert!(may_enter(&policies, &tenant, &hub, "TCP", 8080));
    assert!(!may_enter(&policies, &tenant, &hub, "TCP", 9090));
    assert!(
        may_leave(&policies, &hub, &outside("192.0.2.10"), "TCP", 6443),
        "the hub needs its API server"
    );
    Ok(())
}

/// Address, where it is, protocol, port, whether a hub with bounds reaches it, and what it is.
const REACH_OF_HUB: &str = "
203.0.113.5     outside     TCP 443  yes an API server, or a registry
203.0.113.5     outside     TCP 6443 yes an API server on its usual port
192.0.2.10      outside     TCP 6443 yes its own
2001:db8::5     outside     TCP 6443 yes an API server by IPv6
203.0.113.5     outside     TCP 5000 yes a registry on its usual port
203.0.113.5     outside     TCP 22   no  something else
203.0.113.5     outside     UDP 443  no  QUIC
10.128.0.2      dns         UDP 53   yes DNS
8.8.8.8         outside     UDP 53   no  DNS outside
169.254.169.254 outside     TCP 443  no  the metadata service
fd00:ec2::254   outside     TCP 6443 no  the metadata service by IPv6
127.0.0.1       outside     TCP 6443 no  the node's loopback
";

#[tokio::test]
async fn a_hub_with_bounds_reaches_api_servers_registries_and_dns_and_nothing_else() -> Result<()> {
    let objects = template(&["clusters.egress.enabled=true"]).await?;
    let (hub, all) = (hub(&objects)?, policies(&objects));
    for line in REACH_OF_HUB.trim().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, kind, protocol, port, verdict, ..] = words[..] else {
            unreachable!("{line}")
        };
        let reached = may_leave(&all, &hub, &place(address, kind), protocol, port.parse()?);
        assert_eq!(reached, verdict == "yes", "{line}");
    }
    let named = template(&[
        "clusters.egress.enabled=true",
        "clusters.egress.to[0].ipBlock.cidr=198.51.100.0/24",
        "clusters.egress.ports={16443}",
    ])
    .await?;
    let all = policies(&named);
    for (to, port, expected) in [
        ("198.51.100.9", 16443, true),
        ("198.51.100.9", 6443, false),
        ("203.0.113.5", 16443, false),
    ] {
        assert_eq!(
            may_leave(&all, &hub, &outside(to), "TCP", port),
            expected,
            "{to} {port}"
        );
    }
    Ok(())
}

/// As for a renderer's pod.
#[tokio::test]
async fn where_no_dns_is_named_a_hub_with_bounds_asks_none() -> Result<()> {
    let objects = template(&["clusters.egress.enabled=true", "networkPolicy.dns.to=null"]).await?;
    let (hub, all) = (hub(&objects)?, policies(&objects));
    for protocol in ["UDP", "TCP"] {
        assert!(!may_leave(&all, &hub, &outside("203.0.113.5"), protocol, 53));
    }
    assert!(may_leave(&all, &hub, &outside("203.0.113.5"), "TCP", 6443));
    Ok(())
}

/// The pod that copies pull Secrets asks its API server and DNS, and no registry.
#[tokio::test]
async fn what_copies_pull_secrets_answers_on_its_admin_port_and_is_bounded_where_the_hub_is() -> Result<()> {
    let labels = &[
        ("app.kubernetes.io/name", "renderhub"),
        ("app.kubernetes.io/instance", "renderhub"),
        ("app.kubernetes.io/component", "pull-secrets"),
    ];
    let own = pod("10.128.0.6", HUB, labels);
    let tenant = pod("10.128.0.9", "team-a", &[]);
    let dns = place("10.128.0.2", "dns");
    let of = async |more: &[&str]| -> Result<Vec<NetworkPolicy>> {
        Ok(policies(
            &template(&[super::pull_secrets::ON, more].concat()).await?,
        ))
    };
    let all = of(&[]).await?;
    assert!(may_enter(&all, &tenant, &own, "TCP", 8080));
    assert!(!may_enter(&all, &tenant, &own, "TCP", 9090));
    assert!(may_leave(&all, &own, &outside("192.0.2.10"), "TCP", 16443));
    let all = of(&["clusters.egress.enabled=true"]).await?;
    for (to, protocol, port, expected) in [
        (&outside("192.0.2.10"), "TCP", 6443, true),
        (&outside("10.96.0.1"), "TCP", 443, true),
        (&outside("2001:db8::5"), "TCP", 6443, true),
        (&dns, "UDP", 53, true),
        (&outside("203.0.113.5"), "TCP", 5000, false),
        (&outside("169.254.169.254"), "TCP", 443, false),
        (&outside("8.8.8.8"), "UDP", 53, false),
        (&tenant, "TCP", 8080, false),
    ] {
        let reached = may_leave(&all, &own, to, protocol, port);
        assert_eq!(reached, expected, "{} {protocol} {port}", to.address);
    }
    let all = of(&["networkPolicy.hub=false"]).await?;
    assert!(may_enter(&all, &tenant, &own, "TCP", 9090), "as the hub's");
    Ok(())
}
