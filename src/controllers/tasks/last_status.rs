//! The last status that the hub wrote of a task, compressed: it restores a forged status without a second Job.
//!
//! Statuses look much alike, so each is compressed as if the same sample had gone before it: about 220 bytes instead of 1,100,
//! most of them digests and UIDs.

use std::fmt;
use std::io::Read;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress};

use crate::api::RenderTaskStatus;
use crate::plan::task::model::Task;
use crate::plan::task::status_seal::LastStatusDigest;

/// What statuses look like. It may change between versions: nothing packed outlives the process.
const SAMPLE: &str = concat!(
    r#"{"attempts":1,"failure":{"exitCode":1,"message":"","phase":"Render"},"#,
    r#""chartURL":"oci://registry.example:5000/team/chart:1.0.0","completionTime":"2026-01-01T00:00:00Z","#,
    r#""conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the renderer Job runs","#,
    r#""observedGeneration":1,"reason":"JobFailed","status":"False","type":"JobFailed"},"#,
    r#"{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the renderer Job ran","#,
    r#""observedGeneration":1,"reason":"JobScheduled","status":"True","type":"JobScheduled"},"#,
    r#"{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the chart was pushed","#,
    r#""observedGeneration":1,"reason":"JobSucceeded","status":"True","type":"Ready"},"#,
    r#"{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the chart was pushed","#,
    r#""observedGeneration":1,"reason":"JobSucceeded","status":"True","type":"JobSucceeded"}],"#,
    r#""configSecretRef":{"apiVersion":"v1","kind":"Secret","name":"render-","namespace":"renderhub-jobs","#,
    r#""uid":"00000000-0000-4000-8000-000000000000"},"digest":"sha256:0123456789abcdef","#,
    r#""jobRef":{"apiVersion":"batch/v1","kind":"Job","name":"render-","namespace":"renderhub-jobs","uid":""},"#,
    r#""observedGeneration":1,"startTime":"2026-01-01T00:00:00Z"}"#
);

/// The last status that the hub wrote of a task.
#[derive(Clone, Debug, Default)]
pub struct LastStatus {
    pub(super) last: LastStatusDigest,
    /// Empty beside a whole task, which has the status.
    pub(super) packed: Box<[u8]>,
}

impl LastStatus {
    /// The genuine status of a task that is kept whole.
    pub fn of_whole(task: &Task) -> Self {
        Self {
            last: LastStatusDigest {
                digest: task.status_digest,
                in_doubt: false,
            },
            packed: Box::default(),
        }
    }
}

/// Compresses and decompresses statuses.
pub struct StatusCompressor {
    compress: Compress,
    /// What the sample becomes; the same each time, so it is kept once.
    sample: Box<[u8]>,
}

impl fmt::Debug for StatusCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusCompressor").finish_non_exhaustive()
    }
}

impl Default for StatusCompressor {
    fn default() -> Self {
        let mut compressor = Self {
            compress: Compress::new(Compression::default(), false),
            sample: Box::default(),
        };
        compressor.sample = compressor.begin(0).into();
        compressor
    }
}

impl StatusCompressor {
    /// The genuine status that the task carries.
    pub fn last_status(&mut self, task: &Task) -> LastStatus {
        let packed = task.status_digest.map(|_| self.pack(&task.status));
        LastStatus {
            packed: packed.unwrap_or_default(),
            ..LastStatus::of_whole(task)
        }
    }

    /// The decompressed status, without its seal.
    pub fn open(&self, packed: &LastStatus) -> RenderTaskStatus {
        let mut text = Vec::new();
        let whole = self.sample.chain(&*packed.packed);
        // Past the end of the sample there is nothing where the status says nothing.
        _ = DeflateDecoder::new(whole).read_to_end(&mut text);
        let status = text.get(SAMPLE.len()..).unwrap_or_default();
        serde_json::from_slice(status).unwrap_or_default()
    }

    fn pack(&mut self, status: &RenderTaskStatus) -> Box<[u8]> {
        let bare = RenderTaskStatus {
            seal: None,
            ..status.clone()
        };
        let text = serde_json::to_vec(&bare).unwrap_or_default();
        let mut out = self.begin(text.len());
        _ = self.compress.compress_vec(&text, &mut out, FlushCompress::Finish);
        out[self.sample.len()..].into()
    }

    /// Begins a stream with the sample, with room for as many bytes of text as can never be needed.
    fn begin(&mut self, text: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * (SAMPLE.len() + text) + 1_024);
        self.compress.reset();
        _ = self
            .compress
            .compress_vec(SAMPLE.as_bytes(), &mut out, FlushCompress::Sync);
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::api::names::TaskKind;

    use super::*;

    fn task(status: Value) -> Task {
        let meta = serde_json::from_value(json!({"name": "shop", "uid": "u1"})).unwrap();
        Task::new(TaskKind::RenderTask, &meta, json!({}), status).unwrap()
    }

    fn finished() -> Value {
        let condition = |type_: &str, reason: &str, message: &str| {
            json!({
                "type": type_, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-21T17:43:59Z", "observedGeneration": 1,
            })
        };
        let object = |api: &str, kind: &str, uid: &str| {
            json!({
                "apiVersion": api, "kind": kind, "name": "render-checkout-8c1d7fa0e233b914",
                "namespace": "renderhub-jobs", "uid": uid,
            })
        };
        json!({
            "conditions": [
                condition("JobScheduled", "JobScheduled", "the renderer Job ran"),
                condition("JobSucceeded", "JobSucceeded", "the chart was pushed"),
                condition("Ready", "JobSucceeded", "the chart was pushed"),
            ],
            "jobRef": object("batch/v1", "Job", "b3f8a1de-58c2-45a9-8a1a-6d1f0e8b9c77"),
            "configSecretRef": object("v1", "Secret", "7e0f81f4-2b0c-4e55-9e0e-3f3a3f4c1e6d"),
            "chartURL": "oci://registry.example.org/team-payments/checkout:2.4.17", "attempts": 1,
            "digest": "sha256:c7ad44cbad762a5da0a452f9e854fdc1e0e7a52a38015f23f3eab1d80b931dd4",
            "observedGeneration": 1, "startTime": "2026-11-21T17:43:23Z", "completionTime": "2026-11-21T17:43:59Z",
            "seal": "c7ad44cbad762a5da0a452f9e854fdc1e0e7a52a38015f23f3eab1d80b931dd4",
        })
    }

    #[test]
    fn a_status_is_decompressed_as_it_was_and_takes_few_bytes() {
        let mut compressor = StatusCompressor::default();
        let large = json!({"conditions": [{
            "type": "Ready", "status": "False", "reason": "Queued", "lastTransitionTime": "2026-11-21T17:43:59Z",
            "message": (0..5_000).map(|n| n.to_string()).collect::<String>(),
        }]});
        for status in [finished(), json!({"attempts": 2}), large, json!({}), Value::Null] {
            let task = task(status);
            let packed = compressor.last_status(&task);
            let opened = compressor.open(&packed);
            let expected = RenderTaskStatus {
                seal: None,
                ..task.status.clone()
            };
            assert_eq!(opened, expected);
            assert_eq!(packed.last.digest, task.status_digest);
        }
        let packed = compressor.last_status(&task(finished()));
        assert!(
            (150..250).contains(&packed.packed.len()),
            "{} bytes",
            packed.packed.len()
        );
    }

    #[test]
    fn no_status_decompresses_to_none() {
        assert_eq!(
            StatusCompressor::default().open(&LastStatus::default()),
            RenderTaskStatus::default()
        );
    }
}
