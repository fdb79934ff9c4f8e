//! The OCI manifest and config of a Helm chart, the same bytes for the same chart.

use serde::Serialize;

use super::config::ChartDescription;
use crate::api::oci::Digest;

/// Media type the manifest is pushed as.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of the config blob: the chart's metadata.
const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of the only layer: the chart archive.
const LAYER_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Value of the created annotation. Helm puts the time of the push there, which would give equal charts different digests;
/// a constant keeps the annotation for those who read it and says nothing untrue about a build without a time.
const CREATED: &str = "1980-01-01T00:00:00Z";

/// Some bytes and their digest.
#[derive(Clone, Debug)]
pub struct Blob {
    /// Digest of `bytes`.
    pub digest: Digest,
    /// Content.
    pub bytes: bytes::Bytes,
}

/// Everything a push uploads.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Chart metadata as JSON.
    pub config: Blob,
    /// The chart archive.
    pub layer: Blob,
    /// The manifest that names both.
    pub manifest: Blob,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HelmConfigBlob<'a> {
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    app_version: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OciManifest<'a> {
    schema_version: u8,
    config: Descriptor<'a>,
    layers: [Descriptor<'a>; 1],
    annotations: ManifestAnnotations<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'a> {
    media_type: &'a str,
    digest: &'a Digest,
    size: usize,
}

#[derive(Serialize)]
struct ManifestAnnotations<'a> {
    #[serde(rename = "org.opencontainers.image.created")]
    created: &'a str,
    #[serde(
        rename = "org.opencontainers.image.description",
        skip_serializing_if = "is_blank"
    )]
    description: &'a str,
    #[serde(rename = "org.opencontainers.image.title")]
    title: &'a str,
    #[serde(rename = "org.opencontainers.image.version")]
    version: &'a str,
}

fn is_blank(text: &&str) -> bool {
    text.trim().is_empty()
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            digest: Digest::of(&bytes),
            bytes: bytes.into(),
        }
    }

    fn descriptor<'a>(&'a self, media_type: &'a str) -> Descriptor<'a> {
        Descriptor {
            media_type,
            digest: &self.digest,
            size: self.bytes.len(),
        }
    }
}

impl Artifact {
    /// The artifact of a chart archive.
    ///
    /// # Errors
    /// Never in practice: the structures hold strings and numbers only.
    pub fn new(meta: &ChartDescription, archive: Vec<u8>) -> serde_json::Result<Self> {
        let ChartDescription {
            name,
            description,
            version,
            app_version,
        } = meta;
        let config = HelmConfigBlob {
            name,
            version,
            description,
            api_version: "v2",
            app_version,
            kind: "application",
        };
        let config = Blob::new(serde_json::to_vec(&config)?);
        let layer = Blob::new(archive);
        let manifest = OciManifest {
            schema_version: 2,
            config: config.descriptor(CONFIG_TYPE),
            layers: [layer.descriptor(LAYER_TYPE)],
            annotations: ManifestAnnotations {
                created: CREATED,
                description,
                title: name,
                version,
            },
        };
        let manifest = Blob::new(serde_json::to_vec(&manifest)?);
        Ok(Self {
            config,
            layer,
            manifest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(description: &str) -> ChartDescription {
        ChartDescription {
            name: "c".into(),
            description: description.into(),
            version: "1.0.0+b".into(),
            app_version: "2".into(),
        }
    }

    #[test]
    fn a_manifest_as_helm_writes_it() {
        let artifact = Artifact::new(&meta("d"), b"archive".to_vec()).unwrap();
        let config = r#"{"name":"c","version":"1.0.0+b","description":"d","apiVersion":"v2","appVersion":"2","type":"application"}"#;
        assert_eq!(artifact.config.bytes, config);
        let expected = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"{CONFIG_TYPE}","digest":"{}","size":{}}},"layers":[{{"mediaType":"{LAYER_TYPE}","digest":"{}","size":7}}],"annotations":{{"org.opencontainers.image.created":"{CREATED}","org.opencontainers.image.description":"d","org.opencontainers.image.title":"c","org.opencontainers.image.version":"1.0.0+b"}}}}"#,
            Digest::of(config.as_bytes()),
            config.len(),
            Digest::of(b"archive"),
        );
        assert_eq!(artifact.manifest.bytes, expected);
        assert_eq!(artifact.manifest.digest, Digest::of(expected.as_bytes()));
    }

    #[test]
    fn equal_charts_have_equal_digests_and_blank_texts_are_left_out() {
        let digest = |description: &str| {
            Artifact::new(&meta(description), b"a".to_vec())
                .unwrap()
                .manifest
                .digest
        };
        assert_eq!(digest("d"), digest("d"));
        assert_ne!(digest("d"), digest("e"));
        let blank = Artifact::new(&meta(" "), Vec::new()).unwrap().manifest.bytes;
        assert!(!String::from_utf8_lossy(&blank).contains("description"));
    }
}
