//! Enforces `NetworkPolicies` on a node, as far as tests need it: no network plug-in that does so can be had as a package.
//!
//! The policies are the real objects, read from the API server and translated into rules of the node's own packet filter. What
//! this does not understand fails the test that asks for it, so that nothing passes because a rule was left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::control_plane::ControlPlane;
use crate::node::Node;
use crate::process::run;

/// Makes the filter see what one pod sends to another on the node's bridge.
const SEE_BRIDGE: &str = "echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables";

/// A pod as policies see it.
struct Peer {
    namespace: String,
    labels: BTreeMap<String, String>,
    address: String,
}

/// What the peers of a rule are looked up in.
struct Cluster {
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pods: Vec<Peer>,
}

/// Where traffic may go: an address range without others, and ports; no port is every port.
#[derive(Debug, PartialEq)]
struct Allowed {
    cidr: String,
    except: Vec<String>,
    ports: Vec<(String, u16)>,
}

impl Node {
    /// Enforces the policies of `namespace` on every pod with these labels that is made from now on; pods that run now, and those
    /// alone, are taken for pods of other namespaces without a policy.
    ///
    /// # Errors
    /// If there is no policy, if one is of a kind that is not understood, or if the machine has no `br_netfilter`.
    pub async fn enforce_policies(
        &self,
        plane: &ControlPlane,
        namespace: &str,
        labels: &[(&str, &str)],
    ) -> Result<()> {
        let client = plane.admin().client().await?;
        let all = ListParams::default();
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
        let policies = policies.list(&all).await?.items;
        let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await?;
        let pods = Api::<Pod>::all(client).list(&all).await?;
        let cluster = Cluster {
            namespaces: namespaces
                .iter()
                .map(|n| (n.name_any(), n.labels().clone()))
                .collect(),
            pods: pods.iter().filter_map(peer).collect(),
        };
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let allowed = egress(&policies, namespace, &labels.collect(), &cluster)?;
        let lane = plane.lane().context("no network for a node")?;
        let script = rules(&lane.pods(), &cluster.pods, &allowed)?;
        let mut shell = self.in_network("sh");
        shell.args(["-euc", &format!("{SEE_BRIDGE}\n{script}")]);
        run(&mut shell)
            .map(drop)
            .context("policies are not enforced (no br_netfilter? `modprobe br_netfilter`)")
    }

    /// Takes the pods of `namespace` for pods without a policy, those included that are made while this runs. What such a pod sends
    /// before it is seen is lost, as on a network that takes its time. It ends only with an error.
    ///
    /// # Errors
    /// If pods cannot be listed, or rules not be written.
    pub async fn spare(&self, plane: &ControlPlane, namespace: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(plane.admin().client().await?, namespace);
        let mut spared = BTreeSet::new();
        loop {
            for peer in pods.list(&ListParams::default()).await?.iter().filter_map(peer) {
                let address = peer.address;
                if !spared.insert(address.clone()) {
                    continue;
                }
                let mut shell = self.in_network("sh");
                let out = format!("iptables -I POLICY-OUT -s {address} -j RETURN");
                let into = format!("iptables -I POLICY-IN -d {address} -j RETURN");
                run(shell.args(["-euc", &format!("{out}\n{into}")]))?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn peer(pod: &Pod) -> Option<Peer> {
    Some(Peer {
        namespace: pod.namespace()?,
        labels: pod.labels().clone(),
        address: pod.status.as_ref()?.pod_ip.clone()?,
    })
}

/// What the policies let a pod with these labels reach; an error where they do not isolate it both ways.
fn egress(
    policies: &[NetworkPolicy],
    namespace: &str,
    labels: &BTreeMap<String, String>,
    cluster: &Cluster,
) -> Result<Vec<Allowed>> {
    let mut allowed = Vec::new();
    let mut isolated = (false, false);
    for policy in policies {
        let name = policy.name_any();
        let spec = policy.spec.as_ref().context("a policy without a spec")?;
        if !selects(spec.pod_selector.as_ref(), labels)? {
            continue;
        }
        let types = spec.policy_types.iter().flatten();
        isolated.0 |= types.clone().any(|t| t == "Ingress");
        isolated.1 |= types.clone().any(|t| t == "Egress");
        ensure!(
            spec.ingress.iter().flatten().next().is_none(),
            "{name} lets something in"
        );
        for rule in spec.egress.iter().flatten() {
            allowed.extend(destinations(rule, namespace, cluster).with_context(|| name.clone())?);
        }
    }
    ensure!(isolated == (true, true), "no policy isolates these pods");
    Ok(allowed)
}

fn destinations(rule: &NetworkPolicyEgressRule, namespace: &str, cluster: &Cluster) -> Result<Vec<Allowed>> {
    let ports: Vec<_> = rule.ports.iter().flatten().map(port).collect::<Result<_>>()?;
    let anywhere = || Allowed {
        cidr: "0.0.0.0/0".to_owned(),
        except: Vec::new(),
        ports: ports.clone(),
    };
    let Some(peers) = rule.to.as_ref().filter(|peers| !peers.is_empty()) else {
        return Ok(vec![anywhere()]);
    };
    let mut found = Vec::new();
    for peer in peers {
        match &peer.ip_block {
            // Nodes of tests have no IPv6.
            Some(block) if block.cidr.contains(':') => {}
            Some(block) => found.push(Allowed {
                cidr: block.cidr.clone(),
                except: block.except.clone().unwrap_or_default(),
                ports: ports.clone(),
            }),
            None => {
                for pod in &cluster.pods {
                    if is_peer(peer, pod, namespace, cluster)? {
                        found.push(Allowed {
                            cidr: format!("{}/32", pod.address),
                            ..anywhere()
                        });
                    }
                }
            }
        }
    }
    Ok(found)
}

fn is_peer(peer: &NetworkPolicyPeer, pod: &Peer, namespace: &str, cluster: &Cluster) -> Result<bool> {
    let in_namespace = match &peer.namespace_selector {
        None => pod.namespace == namespace,
        Some(selector) => {
            let labels = cluster
                .namespaces
                .get(&pod.namespace)
                .cloned()
                .unwrap_or_default();
            selects(Some(selector), &labels)?
        }
    };
    Ok(in_namespace && selects(peer.pod_selector.as_ref(), &pod.labels)?)
}

fn port(port: &NetworkPolicyPort) -> Result<(String, u16)> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
    match (&port.port, port.end_port) {
        (Some(IntOrString::Int(number)), None) => Ok((protocol, u16::try_from(*number)?)),
        _ => bail!("only a port by its number is understood"),
    }
}

fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Result<bool> {
    let Some(selector) = selector else { return Ok(true) };
    ensure!(
        selector.match_expressions.iter().flatten().next().is_none(),
        "only matchLabels are understood"
    );
    let mut wanted = selector.match_labels.iter().flatten();
    Ok(wanted.all(|(key, value)| labels.get(key) == Some(value)))
}

/// The commands: what is sent to a pod that is not known now is dropped, then what such a pod sends and no rule allows.
fn rules(pods: &str, known: &[Peer], allowed: &[Allowed]) -> Result<String> {
    let mut script = String::from("iptables -N POLICY-IN\niptables -N POLICY-OUT\n");
    for peer in known {
        writeln!(script, "iptables -A POLICY-IN -d {} -j RETURN", peer.address)?;
        writeln!(script, "iptables -A POLICY-OUT -s {} -j RETURN", peer.address)?;
    }
    writeln!(script, "iptables -A POLICY-IN -d {pods} -j DROP")?;
    for (number, rule) in allowed.iter().enumerate() {
        let chain = format!("POLICY-{number}");
        writeln!(
            script,
            "iptables -N {chain}\niptables -A POLICY-OUT -d {} -j {chain}",
            rule.cidr
        )?;
        for block in &rule.except {
            writeln!(script, "iptables -A {chain} -d {block} -j RETURN")?;
        }
        if rule.ports.is_empty() {
            writeln!(script, "iptables -A {chain} -j ACCEPT")?;
        }
        for (protocol, port) in &rule.ports {
            writeln!(
                script,
                "iptables -A {chain} -p {protocol} --dport {port} -j ACCEPT"
            )?;
        }
    }
    writeln!(script, "iptables -A POLICY-OUT -s {pods} -j DROP")?;
    // Answers to what was let through come first, so they are inserted last.
    for chain in ["FORWARD", "INPUT"] {
        for rule in [
            "-j POLICY-OUT",
            "-j POLICY-IN",
            "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        ] {
            writeln!(script, "iptables -I {chain} -i pods0 {rule}")?;
        }
    }
    Ok(script)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(spec: &Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn deny() -> NetworkPolicy {
        policy(&json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))
    }

    fn allowed(policies: &[NetworkPolicy]) -> Result<Vec<Allowed>> {
        let dns = Peer {
            namespace: "kube-system".to_owned(),
            labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
            address: "198.18.1.130".to_owned(),
        };
        let name = [("name".to_owned(), "kube-system".to_owned())].into();
        let cluster = Cluster {
            namespaces: [("kube-system".to_owned(), name)].into(),
            pods: vec![dns],
        };
        egress(
            policies,
            "rendering",
            &[("app".to_owned(), "x".to_owned())].into(),
            &cluster,
        )
    }

    #[test]
    fn policies_add_up_and_select_by_labels() {
        let egress = json!([{"to": [{"ipBlock": {"cidr": "198.18.0.0/15", "except": ["198.18.9.0/24"]}},
            {"ipBlock": {"cidr": "::/0"}}], "ports": [{"port": 443}]}]);
        let ours = policy(
            &json!({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["Egress"], "egress": egress}),
        );
        let others = policy(
            &json!({"podSelector": {"matchLabels": {"app": "y"}}, "policyTypes": ["Egress"], "egress": [{}]}),
        );
        assert_eq!(allowed(&[deny()]).unwrap(), []);
        let expected = Allowed {
            cidr: "198.18.0.0/15".to_owned(),
            except: vec!["198.18.9.0/24".to_owned()],
            ports: vec![("tcp".to_owned(), 443)],
        };
        assert_eq!(allowed(&[deny(), ours, others]).unwrap(), [expected]);
    }

    #[test]
    fn peers_by_label_are_the_pods_there_are() {
        let to = |namespace: &str| {
            policy(
                &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{
                "namespaceSelector": {"matchLabels": {"name": namespace}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }], "ports": [{"protocol": "UDP", "port": 53}]}]}),
            )
        };
        let found = allowed(&[deny(), to("kube-system")]).unwrap();
        assert_eq!((found.len(), found[0].cidr.as_str()), (1, "198.18.1.130/32"));
        assert_eq!(found[0].ports, [("udp".to_owned(), 53)]);
        assert_eq!(allowed(&[deny(), to("elsewhere")]).unwrap(), []);
    }

    #[test]
    fn what_is_not_understood_or_does_not_isolate_fails() {
        assert!(allowed(&[]).is_err());
        assert!(allowed(&[policy(&json!({"podSelector": {}, "policyTypes": ["Egress"]}))]).is_err());
        let expression = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        assert!(allowed(&[deny(), policy(&json!({"podSelector": expression}))]).is_err());
        let named = json!([{"ports": [{"port": "https"}]}]);
        assert!(allowed(&[deny(), policy(&json!({"podSelector": {}, "egress": named}))]).is_err());
        assert!(allowed(&[deny(), policy(&json!({"podSelector": {}, "ingress": [{}]}))]).is_err());
    }

    #[test]
    fn answers_come_first_and_unknown_pods_are_denied() {
        let script = rules("198.18.1.128/25", &[], &[]).unwrap();
        let last: Vec<&str> = script.lines().filter(|l| l.contains("-I FORWARD")).collect();
        assert!(last[2].contains("ESTABLISHED"), "{script}");
        assert!(
            script.contains("POLICY-OUT -s 198.18.1.128/25 -j DROP"),
            "{script}"
        );
    }
}
