//! The values of the Secrets that catalogs name, as far as there is room: a rotation reads a Secret once, and not for each copy.

use std::collections::HashMap;

use crate::kubernetes::pull_secrets::PullSecretValue;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::PullSecretContent;

/// Bytes that are kept; a value that is not is read for each copy.
const KEPT_BYTES: usize = 4 << 20;

/// Values by the Secret that they are of.
#[derive(Debug, Default)]
pub(super) struct SourceValues(HashMap<ObjectKey, (PullSecretContent, PullSecretValue)>);

impl SourceValues {
    /// Keeps a value, in the place of all others where they leave it no room.
    pub fn keep(&mut self, source: &ObjectKey, content: PullSecretContent, value: PullSecretValue) {
        self.0.remove(source);
        if self.bytes() + value.len() > KEPT_BYTES {
            self.0.clear();
        }
        self.0.insert(source.clone(), (content, value));
    }

    /// The value of this content.
    pub fn get(&self, source: &ObjectKey, content: PullSecretContent) -> Option<PullSecretValue> {
        let (kept, value) = self.0.get(source)?;
        (*kept == content).then(|| value.clone())
    }

    fn bytes(&self) -> usize {
        self.0.values().map(|(_, value)| value.len()).sum()
    }

    /// Drops what no catalog names any more.
    pub fn retain(&mut self, is_named: impl Fn(&ObjectKey) -> bool) {
        self.0.retain(|source, _| is_named(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_bound() {
        let content = |number: u8| PullSecretContent {
            kind: "kubernetes.io/dockercfg",
            key: ".dockercfg",
            digest: [number; 32],
        };
        let key = |number: u8| ObjectKey::new("olm", &number.to_string());
        let mut values = SourceValues::default();
        for number in 0..10 {
            values.keep(
                &key(number),
                content(number),
                PullSecretValue::from(vec![number; 1 << 20]),
            );
            assert!(values.bytes() <= KEPT_BYTES, "{number}");
            assert!(values.get(&key(number), content(number)).is_some());
        }
        assert!(values.get(&key(9), content(8)).is_none(), "another content");
        values.retain(|source| source.name != "9");
        assert!(values.get(&key(9), content(9)).is_none());
    }
}
