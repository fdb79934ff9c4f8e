//! What the catalog controller knows of the images of classes.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::pull_secrets::pull_failure::ClassPullFailure;

/// Name of a class; `None` is the hub's own renderer.
pub(super) type ClassName = Option<String>;

/// What is known of the images of all classes.
#[derive(Debug, Default)]
pub(super) struct ClassImages {
    /// The pull Secrets of each class that names any.
    pub(super) named: BTreeMap<ClassName, Vec<NamedPullSecret>>,
    /// Where the image of a class is not pulled.
    pub(super) failures: BTreeMap<ClassName, ClassPullFailure>,
    /// Classes whose Secrets are to be read.
    pub(super) unread: BTreeSet<ClassName>,
}

impl ClassImages {
    /// The pull Secrets of a class.
    pub(super) fn pull_secrets_of(&self, class: &ClassName) -> &[NamedPullSecret] {
        self.named.get(class).map(Vec::as_slice).unwrap_or_default()
    }
}
