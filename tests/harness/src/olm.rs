//! OLM on a cluster: its controllers and its server of catalogs as processes of their own beside it.

use std::fs;

use anyhow::{Context, Result};
use kube::Client;

use crate::{Tools, apply};

/// Makes OLM's kinds, without OLM's programs: enough for tests of who writes what.
///
/// # Errors
/// If Go cannot get them, or the API server refuses one.
pub async fn apply_crds(client: &Client) -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(Tools::olm_crds()?)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::path);
    for file in files {
        let path = file.path();
        let text = fs::read_to_string(&path)?;
        apply::yaml(client, &text)
            .await
            .with_context(|| format!("in {}", path.display()))?;
    }
    Ok(())
}
