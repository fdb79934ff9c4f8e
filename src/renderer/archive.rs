//! A chart as a `.tgz`, the same bytes for the same chart, and the little of it that pushing has to read.
//!
//! Reproducible: fixed order, owner, mode and time, and no time in the gzip header. The bytes also depend on the version of
//! the compressor, which `Cargo.lock` pins; a test holds the digest of one archive, so a change is seen.

use std::io::{self, Read as _, Write as _};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, Builder, EntryType, Header};

use super::chart::Chart;
use super::config::{ChartDescription, is_chart_name, is_version};

/// Largest archive in bytes that is pushed.
pub const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// 1980-01-01T00:00:00Z, the earliest time every archive format and tool can hold.
const MTIME: u64 = 315_532_800;
/// Decompressed bytes read to find `Chart.yaml`: the first entry, with its header, and the escapes of its texts.
const MAX_HEAD: u64 = 256 * 1024;

/// The archive is not a chart that `render` wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chart archive is not one that render wrote")]
pub struct NotAChart;

/// Packs a chart.
///
/// # Errors
/// Only when an entry's path cannot be stored, which chart names rule out.
pub fn pack(chart: &Chart) -> io::Result<Vec<u8>> {
    let gzip = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    let mut tar = Builder::new(gzip);
    for (path, content) in &chart.files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(MTIME);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        tar.append_data(
            &mut header,
            format!("{}/{path}", chart.meta.name),
            content.as_bytes(),
        )?;
    }
    let mut bytes = tar.into_inner()?.finish()?;
    bytes.flush()?;
    Ok(bytes)
}

/// The chart's description, from the archive's first entry.
///
/// This is all that the process with the credential reads of a file that a process with tenant input wrote: one regular
/// entry `<name>/Chart.yaml` within the first 256 KiB, lines of `key: "JSON string"` with known keys, each once.
///
/// # Errors
/// When the archive starts with anything else.
pub fn read_meta(archive: &[u8]) -> Result<ChartDescription, NotAChart> {
    let (path, text) = first_entry(archive).map_err(|_| NotAChart)?.ok_or(NotAChart)?;
    let meta = parse_meta(&text).ok_or(NotAChart)?;
    if path == format!("{}/Chart.yaml", meta.name).as_bytes() {
        Ok(meta)
    } else {
        Err(NotAChart)
    }
}

fn first_entry(archive: &[u8]) -> io::Result<Option<(Vec<u8>, String)>> {
    let mut tar = Archive::new(GzDecoder::new(archive).take(MAX_HEAD));
    let Some(entry) = tar.entries()?.next() else {
        return Ok(None);
    };
    let mut entry = entry?;
    if entry.header().entry_type() != EntryType::Regular {
        return Ok(None);
    }
    let path = entry.path_bytes().into_owned();
    let mut text = String::new();
    let read = entry.read_to_string(&mut text)?;
    Ok((entry.size() == read as u64).then_some((path, text)))
}

fn parse_meta(text: &str) -> Option<ChartDescription> {
    let keys = [
        "apiVersion",
        "appVersion",
        "description",
        "name",
        "type",
        "version",
    ];
    let mut values: [Option<String>; 6] = Default::default();
    for line in text.lines() {
        let (key, value) = line.split_once(": ")?;
        let slot = &mut values[keys.iter().position(|known| *known == key)?];
        if slot.replace(serde_json::from_str(value).ok()?).is_some() {
            return None;
        }
    }
    let [api, app_version, description, name, kind, version] = values;
    let (name, version) = (name?, version?);
    let own = api? == "v2" && kind? == "application" && is_chart_name(&name) && is_version(&version);
    let meta = ChartDescription {
        name,
        description: description.unwrap_or_default(),
        version,
        app_version: app_version.unwrap_or_default(),
    };
    own.then_some(meta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::oci::Digest;
    use crate::renderer::config::ChartConfig;
    use proptest::prelude::*;
    use serde_json::json;

    fn chart(name: &str, description: &str) -> Chart {
        let config = json!({"type": "bootstrap", "bootstrap": {
            "chart": {"name": name, "version": "1.0.0", "appVersion": "1", "description": description}, "input": {"userdata": {"a": 1}}}});
        Chart::render(&ChartConfig::parse(config.to_string().as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_same_chart_is_the_same_bytes() {
        let chart = chart("c", "d");
        assert_eq!(pack(&chart).unwrap(), pack(&chart).unwrap());
        // If this changes, equal charts of two renderer versions are a TagConflict: say so in the changelog.
        assert_eq!(
            Digest::of(&pack(&chart).unwrap()).as_str(),
            "sha256:6f2baa667dd7afd0f0f323b8361359e3650e9aa41f2ef44aefb06000bbc9d4e3"
        );
    }

    /// Holds: X1.
    #[test]
    fn entries_are_plain_files_below_the_chart_name() {
        let long = "n".repeat(250);
        for name in ["c", &long] {
            let bytes = pack(&chart(name, "d")).unwrap();
            let mut tar = Archive::new(GzDecoder::new(&bytes[..]));
            let mut paths = Vec::new();
            for entry in tar.entries().unwrap() {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!(
                    (
                        header.mode().unwrap(),
                        header.mtime().unwrap(),
                        header.uid().unwrap()
                    ),
                    (0o644, MTIME, 0)
                );
                assert_eq!(header.entry_type(), EntryType::Regular);
                paths.push(entry.path().unwrap().to_str().unwrap().to_owned());
            }
            let expected = [
                "Chart.yaml",
                "values.yaml",
                "templates/release.yaml",
                ".helmignore",
            ];
            assert_eq!(paths, expected.map(|path| format!("{name}/{path}")));
        }
    }

    fn tgz(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut tar = Builder::new(GzBuilder::new().write(Vec::new(), Compression::fast()));
        for (path, kind, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            if *kind == EntryType::Symlink {
                header
                    .set_link_name("/etc/renderer/credentials/config.json")
                    .unwrap();
            }
            tar.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    const META: &str = "apiVersion: \"v2\"\nname: \"c\"\ntype: \"application\"\nversion: \"1.0.0\"\n";

    /// Holds: X1.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn only_what_render_writes_is_read() {
        let file = EntryType::Regular;
        assert!(read_meta(&tgz(&[("c/Chart.yaml", file, META)])).is_ok());
        let with = |line: &str| format!("{META}{line}\n");
        for text in [
            String::new(),
            with("name: \"d\""),
            with("dependencies: \"x\""),
            with("description: x"),
            with("description: 'x'"),
            with("description: [\"x\"]"),
            with("- x"),
            with("description: \"x\" # y"),
            META.replace("v2", "v1"),
            META.replace("application", "library"),
            META.replace("\"c\"", "\"../c\""),
            META.replace("1.0.0", "x"),
            META.replace("name: \"c\"\n", ""),
            META.replace("version: \"1.0.0\"\n", ""),
        ] {
            assert_eq!(
                read_meta(&tgz(&[("c/Chart.yaml", file, &text)])),
                Err(NotAChart),
                "{text}"
            );
        }
        for path in ["Chart.yaml", "d/Chart.yaml", "c/x/Chart.yaml", "c/values.yaml"] {
            assert_eq!(
                read_meta(&tgz(&[(path, file, META), ("c/Chart.yaml", file, META)])),
                Err(NotAChart),
                "{path}"
            );
        }
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Directory,
            EntryType::Fifo,
        ] {
            assert_eq!(
                read_meta(&tgz(&[("c/Chart.yaml", kind, "")])),
                Err(NotAChart),
                "{kind:?}"
            );
        }
        for bytes in [
            &b""[..],
            b"x",
            &tgz(&[]),
            &tgz(&[("c/Chart.yaml", file, META)])[..30],
        ] {
            assert_eq!(read_meta(bytes), Err(NotAChart));
        }
        let bomb = " ".repeat(1 << 20);
        assert_eq!(read_meta(&tgz(&[("c/Chart.yaml", file, &bomb)])), Err(NotAChart));
    }

    proptest! {
        #[test]
        fn what_was_packed_is_read(description in any::<String>()) {
            let chart = chart("my-chart", &description);
            prop_assert_eq!(read_meta(&pack(&chart).unwrap()).unwrap(), chart.meta);
        }

        /// Holds: X1.
        #[test]
        fn no_name_leads_out_of_the_archive(name in "[a-z./\\\\~\\x00 %2e]{1,12}") {
            let config = json!({"type": "bootstrap", "bootstrap": {"chart": {"name": name, "version": "1.0.0"}, "input": {}}});
            if let Ok(config) = ChartConfig::parse(config.to_string().as_bytes()) {
                let bytes = pack(&Chart::render(&config).unwrap()).unwrap();
                let mut tar = Archive::new(GzDecoder::new(&bytes[..]));
                for entry in tar.entries().unwrap() {
                    let entry = entry.unwrap();
                    let path = entry.path().unwrap().into_owned();
                    let is_plain = |part: std::path::Component| matches!(part, std::path::Component::Normal(_));
                    prop_assert!(path.components().all(is_plain), "{}", path.display());
                    prop_assert_eq!(path.components().next().unwrap().as_os_str().to_str(), Some(name.as_str()));
                    prop_assert_eq!(entry.header().entry_type(), EntryType::Regular);
                }
            }
        }

        /// Holds: X1.
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..200, byte in any::<u8>()) {
            let _ = read_meta(&bytes);
            let mut archive = tgz(&[("c/Chart.yaml", EntryType::Regular, META)]);
            let at = at % archive.len();
            archive[at] = byte;
            let _ = read_meta(&archive);
        }
    }
}
