//! Which code of the hub can make a connection to an API server: all other code gets one through the write fence.

use super::within;

/// Paths that make a connection or a client, and the files that may name them; the renderer is another program.
const DOORS: &[(&str, &[&str], &str)] = &[
    (
        "kube::client::ClientBuilder",
        &["kubernetes/watch_client.rs", "kubernetes/write_fence/client.rs"],
        "clients of the loops are made with the gate at their bottom, and one sends nothing but reads",
    ),
    (
        "hyper::client",
        &["remote/connection_pool.rs"],
        "it sends nothing but bodies that ask the gate",
    ),
    (
        "hyper_util::client",
        &[
            "kubernetes/watch_client.rs",
            "kubernetes/write_fence/client.rs",
            "kubernetes/write_fence/resolver.rs",
            "kubernetes/write_fence/socket.rs",
        ],
        "it sends nothing but bodies that ask the gate, and one nothing but reads",
    ),
    (
        "hyper_timeout",
        &["kubernetes/write_fence/client.rs"],
        "no other client is made",
    ),
    (
        "hyper_rustls",
        &["kubernetes/watch_client.rs"],
        "it sends nothing but reads",
    ),
    (
        "tokio::net::TcpSocket",
        &["remote/connect.rs"],
        "it is the floor under the connections of links",
    ),
];
/// Functions that make a client without the gate; the one that there is is for what comes before there is a claim.
const MAKERS: [&str; 3] = ["Client::try_from", "Client::try_default", "Client::new"];
/// Who makes that; its field is private there.
const FIRST: &str = "app/start.rs";

/// Ways past the gate among what a file names: `path` is below `src`.
pub fn past_the_gate(path: &str, imports: &[(usize, String)]) -> Vec<String> {
    if path.starts_with("renderer") || path.starts_with("bin/") {
        return Vec::new();
    }
    let opens = |import: &str| {
        let door = DOORS.iter().find(|(door, ..)| within(import, door));
        door.is_some_and(|(_, files, _)| !files.contains(&path))
    };
    let makes = |import: &str| {
        MAKERS
            .iter()
            .any(|maker| import == *maker || import.ends_with(&format!("::{maker}")))
            && path != FIRST
    };
    imports
        .iter()
        .filter(|(_, import)| opens(import) || makes(import))
        .map(|(line, import)| format!("src/{path}:{line}: {import} leads past the gate"))
        .collect()
}

/// Whether every file that may open a door does: what is not needed is not allowed.
pub fn unused(all: &[(String, Vec<(usize, String)>)]) -> Vec<String> {
    let mut unused = Vec::new();
    for (door, files, why) in DOORS {
        assert!(why.split(' ').count() > 3, "{door}: say why");
        for file in *files {
            let named = all.iter().filter(|(path, _)| path == file);
            if !named
                .flat_map(|(_, imports)| imports)
                .any(|(_, import)| within(import, door))
            {
                unused.push(format!("{file} does not name {door}"));
            }
        }
    }
    unused
}
