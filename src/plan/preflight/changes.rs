//! The findings that the hub logs while it works: those that changed since it logged them last.

use std::collections::BTreeMap;

use super::check::PreflightCheck;
use super::finding::{CheckResult, PreflightFinding};

/// The finding that was logged last, by check.
#[derive(Debug, Default)]
pub struct ReportedFindings(BTreeMap<PreflightCheck, (CheckResult, String)>);

impl ReportedFindings {
    /// Records findings; returns those that changed. At first these are what would refuse a start, because the start logged
    /// everything else; then each other verdict, and each other reason to refuse.
    pub fn take_changes<'a>(&mut self, findings: &'a [PreflightFinding]) -> Vec<&'a PreflightFinding> {
        let mut changes = Vec::new();
        for finding in findings {
            let refuses = finding.result == CheckResult::Refused;
            let is_news = match self.0.get(&finding.check) {
                None => refuses,
                Some((verdict, message)) => {
                    *verdict != finding.result || (refuses && *message != finding.message)
                }
            };
            self.0
                .insert(finding.check, (finding.result, finding.message.clone()));
            if is_news {
                changes.push(finding);
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: B10.
    #[test]
    fn a_finding_is_logged_once_and_its_end_too() {
        let check = PreflightCheck::TenantRights;
        let refused = |what: &str| PreflightFinding::refused(check, what, "");
        let mut reported = ReportedFindings::default();
        let table = [
            (PreflightFinding::ok(check, "asked for 3"), false),
            (PreflightFinding::ok(check, "asked for 4"), false),
            (refused("a may"), true),
            (refused("a may"), false),
            (refused("b may"), true),
            (PreflightFinding::ok(check, "asked for 4"), true),
            (PreflightFinding::warning(check, "x", ""), true),
            (PreflightFinding::warning(check, "y", ""), false),
        ];
        for (finding, is_news) in table {
            let found = reported.take_changes(std::slice::from_ref(&finding));
            assert_eq!(!found.is_empty(), is_news, "{finding:?}");
        }
        // A refusal in the first findings is logged; a warning was logged at the start.
        assert_eq!(
            ReportedFindings::default()
                .take_changes(&[refused("a may")])
                .len(),
            1
        );
        assert!(
            ReportedFindings::default()
                .take_changes(&[PreflightFinding::warning(check, "x", "")])
                .is_empty()
        );
    }
}
