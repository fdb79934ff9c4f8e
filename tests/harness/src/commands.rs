//! The command line of kubectl, with nothing of the developer's own configuration in it; for helm see [`crate::helm`].

use std::process::Command;

use anyhow::Result;

use crate::Tools;
use crate::identity::Identity;

/// A `kubectl` with the credentials of `identity`; add the arguments and give it to [`crate::process::run`].
///
/// # Errors
/// If the program is missing or the kubeconfig cannot be written.
pub fn kubectl(identity: &Identity) -> Result<Command> {
    let mut command = Command::new(Tools::path("kubectl")?);
    command.env("KUBECONFIG", identity.kubeconfig()?);
    Ok(command)
}
