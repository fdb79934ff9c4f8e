//! The pull Secrets that classes name: read when they change, and what was found published with the class. Nothing of them is kept.

use std::time::Instant;

use super::class_images::ClassName;
use super::state::CatalogController;
use crate::api::RendererClassSpec;
use crate::controllers::pull_copies::read_copy;
use crate::kubernetes::apply::{CallError, HubClient};
use crate::plan::pull_secrets::named::{self, NamedPullSecret};
use crate::plan::pull_secrets::pull_failure::{PullReport, after_report};

impl CatalogController {
    /// Has the pull Secrets of a class read, and forgets what was said of its image.
    pub(super) fn forget_image(&mut self, class: &str) {
        let class = Some(class.to_owned());
        self.images.failures.remove(&class);
        self.images.shown.retain(|(shown, _), _| *shown != class);
        self.images.named.remove(&class);
        self.images.unread.insert(class);
    }

    /// Has the pull Secrets read of each class that names this one.
    pub(super) fn handle_pull_secret(&mut self, secret: Option<&str>) {
        let Some(secret) = secret else { return };
        let names_it =
            |spec: &RendererClassSpec| spec.image_pull_secrets.iter().any(|named| named.name == secret);
        let classes: Vec<ClassName> = self
            .stores
            .classes
            .matching(names_it)
            .into_iter()
            .map(Some)
            .collect();
        self.images.unread.extend(classes);
        if names_it(&self.fallback) {
            self.images.unread.insert(None);
        }
    }

    /// Has the pull Secrets of all classes read.
    pub(super) fn handle_all_pull_secrets(&mut self) {
        let classes: Vec<ClassName> = self.stores.classes.names().cloned().map(Some).collect();
        self.images.unread.extend(classes);
        self.images.unread.insert(None);
    }

    /// Reads the pull Secrets that are due; those that a failed call leaves open are read later.
    pub(super) async fn read_pull_secrets(&mut self) {
        for class in std::mem::take(&mut self.images.unread) {
            let spec = self.spec_of(&class);
            let names_any = spec.is_some_and(|spec| !spec.image_pull_secrets.is_empty());
            let read = match spec.filter(|_| names_any) {
                None => Ok(Vec::new()),
                Some(spec) => {
                    let namespace = self.pull_secret_namespace.as_deref();
                    read_named(&self.hub_client, namespace, spec).await
                }
            };
            match read {
                Ok(named) => self.keep_named(class, named),
                Err(error) => {
                    tracing::warn!(
                        class = class.as_deref().unwrap_or("none, so the hub's own"),
                        kind = error.kind(),
                        stage = error.stage(),
                        "the pull Secrets of this class are not read yet; the hub tries again"
                    );
                    self.images.unread.insert(class);
                }
            }
        }
    }

    fn spec_of(&self, class: &ClassName) -> Option<&RendererClassSpec> {
        match class {
            None => Some(&self.fallback),
            Some(name) => self.stores.classes.get(name)?.spec.as_ref(),
        }
    }

    fn keep_named(&mut self, class: ClassName, named: Vec<NamedPullSecret>) {
        // What was read is written even where it is as before: the condition was not while it was unread.
        self.stores.classes.due.extend(class.clone());
        if self.images.pull_secrets_of(&class) == named {
            return;
        }
        self.has_changed = true;
        if class.is_none() {
            self.report_own_renderer(&named);
        }
        self.images.named.insert(class, named);
    }

    /// The hub's own renderer has no object with conditions, so the log says what is wrong.
    fn report_own_renderer(&self, named: &[NamedPullSecret]) {
        let said = named::condition(&self.fallback.image, named);
        if let Some(said) = said.filter(|said| !said.status) {
            let reason = said.reason.as_str();
            tracing::warn!(
                reason,
                why = said.message,
                "the pull Secrets of the hub's own renderer cannot all be used"
            );
        }
    }

    /// Records that the image of a class is not pulled, or is again.
    pub(super) fn handle_pull_report(&mut self, report: &PullReport) {
        let class = report.class.clone();
        let Some(image) = self.spec_of(&class).map(|spec| spec.image.clone()) else {
            return;
        };
        let known = self.images.failures.get(&class).cloned();
        let next = after_report(known.clone(), report);
        if next == known || !self.images.record(&class, next.clone(), Instant::now()) {
            return;
        }
        let named = self.images.pull_secrets_of(&class);
        let name = class.as_deref().unwrap_or("none, so the hub's own");
        if let Some(failure) = &next {
            let why = failure.message(&image, named);
            tracing::warn!(class = name, why, "a node does not pull the image of a class");
        } else {
            tracing::info!(class = name, "the image of a class is pulled again");
        }
        self.has_changed = true;
        self.stores.classes.due.extend(class);
    }
}

/// Reads the pull Secrets that a class names; they are in `namespace`.
async fn read_named(
    hub_client: &HubClient,
    namespace: Option<&str>,
    spec: &RendererClassSpec,
) -> Result<Vec<NamedPullSecret>, CallError> {
    let mut all: Vec<NamedPullSecret> = Vec::new();
    for name in named::names(spec) {
        let by_hand = hub_client.objects().get_secret_metadata(name).await?;
        let copy = read_copy(hub_client, namespace, spec, name).await?;
        all.push(NamedPullSecret {
            name: name.to_owned(),
            copy: copy.map(|copy| copy.id().clone()),
            is_by_hand: by_hand.is_some(),
        });
    }
    Ok(all)
}
