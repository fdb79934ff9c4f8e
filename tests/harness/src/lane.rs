//! A piece of network for one node: a namespace of its own, tied to this machine by one cable.
//!
//! ```text
//! this machine                         the node's network namespace
//! renderhubN 198.18.N.1/30 ──cable── uplink 198.18.N.2/30, pods 198.18.N.128/25, Services 198.19.N.0/24
//! ```
//!
//! Pods reach servers of a test at 198.18.N.1. The node has a route to 198.18.0.0/15 (kept for tests of networks by
//! RFC 2544) and none to anywhere else, and this machine forwards nothing that comes from the cable, so no packet of
//! a pod leaves the machine. When the process that holds the namespace dies, the kernel removes it, cable, bridge,
//! routes and packet filter rules with it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{Process, run};
use crate::tools::{NODE_PACKAGES, ensure_packages};
use crate::{rundir, wait_for};

/// Lanes 0…254; 255 is left for control planes without a node.
const LANES: u8 = 255;

/// The network of one node.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u8,
    holder: Process,
}

impl Lane {
    /// Takes a lane that no other process on this machine has.
    pub(crate) async fn take(dir: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("a node needs root: run the test as root");
        }
        ensure_packages(&NODE_PACKAGES)?;
        let mut hold = Command::new("unshare");
        hold.args(["--net", "--", "sleep", "infinity"]);
        let holder = Process::spawn("the node's network", &hold, &dir.join("network.log"))?;
        let here = std::fs::read_link("/proc/self/ns/net")?;
        let there = namespace_of(&holder);
        wait_for("a network namespace", Duration::from_secs(20), async || {
            holder.check_running()?;
            let entered = std::fs::read_link(&there)? != here;
            Ok(entered.then_some(()))
        })
        .await?;
        let lane = Self {
            number: lay_cable(holder.pid())?,
            holder,
        };
        lane.configure()?;
        Ok(lane)
    }

    /// This machine's address, as pods and the node see it.
    pub(crate) fn host(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, self.number, 1))
    }

    /// The node's address.
    pub(crate) fn node(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, self.number, 2))
    }

    /// Where pods get their addresses from.
    pub(crate) fn pods(&self) -> String {
        format!("198.18.{}.128/25", self.number)
    }

    /// Where Services get theirs from.
    pub(crate) fn services(&self) -> String {
        format!("198.19.{}.0/24", self.number)
    }

    /// The namespace, for `nsenter --net=…`.
    pub(crate) fn namespace(&self) -> PathBuf {
        namespace_of(&self.holder)
    }

    fn link(&self) -> String {
        link(self.number)
    }

    fn configure(&self) -> Result<()> {
        let (link, host, node, pods) = (self.link(), self.host(), self.node(), self.pods());
        for (setting, value) in [
            ("ipv4/conf/{}/forwarding", "0"),
            ("ipv6/conf/{}/disable_ipv6", "1"),
        ] {
            let path = format!("/proc/sys/net/{}", setting.replace("{}", &link));
            // A kernel without IPv6 has no such file, and nothing to switch off.
            if Path::new(&path).exists() {
                std::fs::write(&path, value).with_context(|| format!("cannot write {path}"))?;
            }
        }
        ip(&format!("address add {host}/30 dev {link}"))?;
        ip(&format!("link set {link} up"))?;
        ip(&format!("route add {pods} via {node}"))?;
        self.ip_inside("link set lo up")?;
        self.ip_inside(&format!("address add {node}/30 dev uplink"))?;
        self.ip_inside("link set uplink up")?;
        self.ip_inside(&format!("route add 198.18.0.0/15 via {host}"))
    }

    fn ip_inside(&self, words: &str) -> Result<()> {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.namespace().display()))
            .arg("--")
            .arg("ip");
        run(command.args(words.split(' '))).map(drop)
    }
}

fn namespace_of(holder: &Process) -> PathBuf {
    PathBuf::from(format!("/proc/{}/ns/net", holder.pid()))
}

fn link(number: u8) -> String {
    format!("renderhub{number}")
}

fn ip(words: &str) -> Result<()> {
    run(Command::new("ip").args(words.split(' '))).map(drop)
}

/// Lays the cable into the namespace of `pid`. The kernel refuses a name that exists, which makes the name the lock.
fn lay_cable(pid: u32) -> Result<u8> {
    let start = u8::from_str_radix(&rundir::random_hex(1)?, 16)?;
    let mut last = None;
    for step in 0..LANES {
        let number = u8::try_from((u16::from(start) + u16::from(step)) % u16::from(LANES))?;
        if Path::new("/sys/class/net").join(link(number)).exists() {
            continue;
        }
        match ip(&format!(
            "link add {} type veth peer name uplink netns {pid}",
            link(number)
        )) {
            Ok(()) => return Ok(number),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("all {LANES} networks for nodes are taken")))
}
