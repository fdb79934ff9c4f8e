//! What is told of findings while the hub works: what changed since it was told last.

use std::collections::BTreeMap;

use super::{Check, Finding, Verdict};

/// What was told last of each check.
#[derive(Debug, Default)]
pub struct Told(BTreeMap<Check, (Verdict, String)>);

impl Told {
    /// Takes in findings; those that are news. At first these are what would refuse a start, because a hub that works has told
    /// everything else; then each other verdict, and each other reason to refuse.
    pub fn news<'a>(&mut self, findings: &'a [Finding]) -> Vec<&'a Finding> {
        let mut news = Vec::new();
        for finding in findings {
            let refuses = finding.verdict == Verdict::Refused;
            let is_news = match self.0.get(&finding.check) {
                None => refuses,
                Some((verdict, message)) => {
                    *verdict != finding.verdict || (refuses && *message != finding.message)
                }
            };
            self.0
                .insert(finding.check, (finding.verdict, finding.message.clone()));
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
        let check = Check::TenantRights;
        let refused = |what: &str| Finding::refused(check, what, "");
        let mut told = Told::default();
        let table = [
            (Finding::ok(check, "asked for 3"), false),
            (Finding::ok(check, "asked for 4"), false),
            (refused("a may"), true),
            (refused("a may"), false),
            (refused("b may"), true),
            (Finding::ok(check, "asked for 4"), true),
            (Finding::warning(check, "x", ""), true),
            (Finding::warning(check, "y", ""), false),
        ];
        for (finding, is_news) in table {
            let found = told.news(std::slice::from_ref(&finding));
            assert_eq!(!found.is_empty(), is_news, "{finding:?}");
        }
        // What refuses the first look is told, what warns was told before the start.
        assert_eq!(Told::default().news(&[refused("a may")]).len(), 1);
        assert!(
            Told::default()
                .news(&[Finding::warning(check, "x", "")])
                .is_empty()
        );
    }
}
