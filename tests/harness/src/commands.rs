//! Command lines of real clients, with nothing of the developer's own configuration in them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::Tools;
use crate::identity::Identity;

/// A `kubectl` that speaks as `identity`; add the words and give it to [`crate::process::run`].
///
/// # Errors
/// If the program is missing or the kubeconfig cannot be written.
pub fn kubectl(identity: &Identity) -> Result<Command> {
    let mut command = Command::new(Tools::path("kubectl")?);
    command.env("KUBECONFIG", identity.kubeconfig()?);
    Ok(command)
}

/// A `helm` whose cache, configuration and data are below `home`, which is also its working directory. It speaks to
/// no cluster until `KUBECONFIG` is set.
///
/// # Errors
/// If the program is missing.
pub fn helm(home: &Path) -> Result<Command> {
    let mut command = Command::new(Tools::path("helm")?);
    for name in ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, home);
    }
    command.env("KUBECONFIG", "/dev/null").current_dir(home);
    Ok(command)
}
