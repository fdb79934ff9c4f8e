//! What a configuration can make the renderer do: nothing that costs more than a little, and nothing on a network.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;

use flate2::Compression;
use flate2::write::GzEncoder;
use renderhub::api::termination::{TerminationPhase, TerminationReason};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{RELEASE, Sandbox};
use support::programs;

/// Most memory in KiB that a bomb may take, program and libraries included.
const MEMORY: &str = "400000";

impl Sandbox {
    /// The renderer as an argument of another program, with the environment that it has here.
    fn under(&self, program: &str, before: &[&str], args: &[&str]) -> Command {
        let inner = self.command(args);
        let mut command = Command::new(program);
        command.args(before).arg(programs::renderer()).args(args);
        command.current_dir(self.path("")).env_clear().kill_on_drop(true);
        for (name, value) in inner.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

/// A mapping of `name` to a tower of references, each ten times as large as the one before.
fn tower(item: &str) -> String {
    let mut text = String::from("a0: &a0 {x: y}\n");
    for n in 1..12 {
        let previous = vec![item.replace('#', &(n - 1).to_string()); 10].join(", ");
        _ = writeln!(text, "a{n}: &a{n} {{{previous}}}");
    }
    text
}

fn bombs() -> Vec<(&'static str, String, TerminationReason)> {
    let aliases = |n: usize| format!("a{n}: *a#");
    let references = (0..10).map(aliases).collect::<Vec<_>>().join(", ");
    let mut release: Value = serde_json::from_str(RELEASE).unwrap();
    let wide: Value = vec![0; 200_000].into();
    release["release"]["values"] = (0..90).fold(wide, |inner, _| json!({"a": inner}));
    let deep = release.to_string();
    release["release"]["values"] = json!({"a": "x\n".repeat(1_000_000)});
    let long = release.to_string();
    vec![
        ("references", tower(&references), TerminationReason::BadConfig),
        ("merge keys", tower("<<: *a#"), TerminationReason::BadConfig),
        (
            "a list",
            format!("a: {}", "[".repeat(500_000)),
            TerminationReason::BadConfig,
        ),
        ("a mapping", "{a: ".repeat(300_000), TerminationReason::BadConfig),
        (
            "lists of lists",
            "- ".repeat(500_000),
            TerminationReason::BadConfig,
        ),
        (
            "anchors",
            (0..100_000).fold(String::new(), |mut text, n| {
                _ = writeln!(text, "k{n}: &a{n} x");
                text
            }),
            TerminationReason::BadConfig,
        ),
        ("comments", "#\n".repeat(500_000), TerminationReason::BadConfig),
        ("documents", "---\n".repeat(250_000), TerminationReason::BadConfig),
        (
            "a scalar",
            format!("a: {}", "x".repeat(1_000_000)),
            TerminationReason::BadConfig,
        ),
        (
            "a folded scalar",
            format!("a: >\n{}", "  x\n\n".repeat(200_000)),
            TerminationReason::BadConfig,
        ),
        (
            "escapes",
            format!("a: \"{}\"", "\\U0001F600".repeat(100_000)),
            TerminationReason::BadConfig,
        ),
        ("deep values", deep, TerminationReason::ChartTooLarge),
        ("long values", long, TerminationReason::ChartTooLarge),
        (
            "bytes",
            " ".repeat(64 * 1024 * 1024),
            TerminationReason::ChartTooLarge,
        ),
    ]
}

/// Holds: X3.
#[tokio::test]
async fn bombs_cost_little_and_are_named_as_what_they_are() {
    let limited = format!("ulimit -v {MEMORY}; exec \"$@\"");
    for (name, text, reason) in bombs() {
        let sandbox = Sandbox::new();
        sandbox.write("config.json", &text);
        let args = ["render", "config.json", "--out", "chart.tgz"];
        let output = sandbox
            .under("sh", &["-c", &limited, "sh"], &args)
            .output()
            .await
            .unwrap();
        let ran = sandbox.finish(output);
        let reported = ran.message.as_ref().map(|message| message.reason);
        assert_eq!(reported, Some(reason), "{name}: {}", ran.stderr);
        assert!(!sandbox.path("chart.tgz").exists(), "{name}");
    }
}

/// Holds: X1, X3.
#[tokio::test]
async fn an_archive_that_unpacks_to_more_than_all_memory_is_never_unpacked() {
    let limited = format!("ulimit -v {MEMORY}; exec \"$@\"");
    let sandbox = Sandbox::new();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..512 {
        gzip.write_all(&vec![0; 1024 * 1024]).unwrap();
    }
    std::fs::write(sandbox.path("chart.tgz"), gzip.finish().unwrap()).unwrap();
    let args = ["push", "chart.tgz", "--url=oci://127.0.0.1:1/a/shop:1.0.0"];
    let output = sandbox
        .under("sh", &["-c", &limited, "sh"], &args)
        .output()
        .await
        .unwrap();
    sandbox.finish(output).failed(
        TerminationPhase::Push,
        TerminationReason::BadArchive,
        "not one that render wrote",
    );
}

// === the network ===

/// Somewhere outside, if there were a way out.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);

/// What a network namespace counted: connections begun, datagrams sent, packets of either kind sent.
async fn counted(sandbox: &Sandbox, args: &[&str]) -> [u64; 3] {
    // Everything leads to the loopback device, so an attempt leaves a packet to be counted.
    let script =
        "ip link set lo up && ip route add default dev lo || exit 99; \"$@\"; cat /proc/net/snmp >&2";
    // Who is not root may have a network namespace inside a user namespace of its own.
    let flags = if rustix::process::getuid().is_root() {
        "-n"
    } else {
        "-rn"
    };
    let mut command = sandbox.under("unshare", &[flags, "sh", "-c", script, "sh"], args);
    let output = command.output().await.unwrap_or_else(|error| {
        panic!("cannot start unshare (missing? `apt-get install -y util-linux iproute2`): {error}")
    });
    let text = String::from_utf8(output.stderr).unwrap();
    let value = |protocol: &str, name: &str| -> u64 {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next(), lines.next());
        let (Some(names), Some(values)) = (names, values) else {
            panic!("no counters: is there `unshare` and `ip`? {text}")
        };
        let at = names.split(' ').position(|one| one == name).unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    };
    [
        value("Tcp:", "ActiveOpens"),
        value("Udp:", "OutDatagrams"),
        value("Ip:", "OutRequests"),
    ]
}

/// Holds: X4.
#[tokio::test]
async fn rendering_connects_to_no_address_that_it_reads() {
    let sandbox = Sandbox::new();
    let mut release: Value = serde_json::from_str(RELEASE).unwrap();
    let url = format!("http://{OUTSIDE}/x");
    release["release"]["values"] = json!({"valuesFrom": url, "remote": {"bases": [url]},
        "template": format!("{{{{ getHostByName \"{OUTSIDE}\" }}}}"), "<<": {"$ref": url}});
    for resource in release["release"]["input"]["resources"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        resource["repository"] = format!("{OUTSIDE}/charts/shop").into();
        resource["helm"] = json!({"name": url, "valuesTemplate": format!("{{{{ include \"{url}\" . }}}}")});
    }
    let config = release.to_string();
    sandbox.write("config.json", &config);
    let render = ["render", "config.json", "--out", "chart.tgz"];
    assert_eq!(counted(&sandbox, &render).await, [0, 0, 0]);
    let alone = std::fs::read(sandbox.path("chart.tgz")).unwrap();
    assert_eq!(
        counted(&sandbox, &["--skip-push", "config.json"]).await,
        [0, 0, 0]
    );
    // And the counters do count.
    let push = format!("--url=oci://{OUTSIDE}/a/shop:1.0.0");
    let push = ["push", "chart.tgz", "--plain-http", "--timeout=1", &push];
    let [opened, _, sent] = counted(&sandbox, &push).await;
    assert!(opened > 0 && sent > 0, "{opened} {sent}");
    // With a network the chart is the same.
    sandbox
        .run(&render)
        .await
        .succeeded(TerminationReason::Rendered, &[]);
    assert_eq!(std::fs::read(sandbox.path("chart.tgz")).unwrap(), alone);
}
