//! What is told of findings while the hub works: what changed since it was told last.

use std::collections::BTreeMap;

use super::check::PreflightCheck;
use super::finding::{CheckResult, PreflightFinding};

/// What was told last of each check.
#[derive(Debug, Default)]
pub struct ReportedFindings(BTreeMap<PreflightCheck, (CheckResult, String)>);

impl ReportedFindings {
    /// Takes in findings; those that are news. At first these are what would refuse a start, because a hub that works has told
    /// everything else; then each other verdict, and each other reason to refuse.
    pub fn take_changes<'a>(&mut self, findings: &'a [PreflightFinding]) -> Vec<&'a PreflightFinding> {
        let mut news = Vec::new();
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
                news.push(finding);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: B10.
    #[test]
    fn a_finding_is_told_once_and_its_end_too() {
        let check = PreflightCheck::TenantRights;
        let refused = |what: &str| PreflightFinding::refused(check, what, "");
        let mut told = ReportedFindings::default();
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
            let found = told.take_changes(std::slice::from_ref(&finding));
            assert_eq!(!found.is_empty(), is_news, "{finding:?}");
        }
        // What refuses the first look is told, what warns was told before the start.
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
