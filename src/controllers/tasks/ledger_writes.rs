//! Changes of the ledger that wait to be written: one write at a time, and what failed is written again, with what is newer.

use crate::plan::remote::ledger::LedgerChanges;

/// Entries of the ledger that are not written yet, and whether some are being written.
#[derive(Debug, Default)]
pub struct LedgerWrites {
    unwritten: LedgerChanges,
    is_writing: bool,
}

impl LedgerWrites {
    /// Changes the ledger, sooner or later.
    pub fn add(&mut self, changes: LedgerChanges) {
        self.unwritten.extend(changes);
    }

    /// The changes to be written now, if there are any; the next ones after [`Self::end`].
    pub fn take(&mut self) -> Option<LedgerChanges> {
        if self.unwritten.is_empty() || self.is_writing {
            return None;
        }
        self.is_writing = true;
        Some(std::mem::take(&mut self.unwritten))
    }

    /// A write ended; the changes of one that failed are written again, but for those with a newer one of the same key.
    pub fn end(&mut self, failed: Option<LedgerChanges>) {
        self.is_writing = false;
        let newer = std::mem::replace(&mut self.unwritten, failed.unwrap_or_default());
        self.unwritten.extend(newer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, value: &str) -> LedgerChanges {
        LedgerChanges::from([(key.to_owned(), Some(value.to_owned()))])
    }

    #[test]
    fn one_write_is_made_at_a_time_and_a_failed_one_replaces_nothing_newer() {
        let mut writes = LedgerWrites::default();
        assert_eq!(writes.take(), None);
        writes.add(change("a", "old"));
        writes.add(change("b", "old"));
        let failed = writes.take().unwrap();
        writes.add(change("a", "new"));
        assert_eq!(writes.take(), None, "one is under way");
        writes.end(Some(failed));
        let mut both = change("a", "new");
        both.extend(change("b", "old"));
        assert_eq!(writes.take(), Some(both));
        writes.end(None);
        assert_eq!(writes.take(), None);
    }
}
