//! Repeats the preflight while the hub works: a right that a tenant gets later leads to the credentials just as well. The hub
//! logs it and goes on, because stopping would take the right from no one.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::base::metrics::Metrics;
use crate::kubernetes::preflight::FactCollector;
use crate::plan::preflight::changes::ReportedFindings;
use crate::plan::preflight::{CheckResult, PreflightFinding, RUNBOOK, judge};

/// Pause between two questions about tenants' rights: at most 100 a second, one at a time, where a start asks 8 at once.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Shortest time between two checks, also where a flag sets a shorter one.
const SHORTEST: Duration = Duration::from_secs(1);

/// Looks from time to time, for ever; never, where there is no time between two looks.
pub(super) async fn run(inquiry: FactCollector, every: Duration, metrics: Metrics) {
    if every.is_zero() {
        std::future::pending::<()>().await;
    }
    let (every, mut reported) = (every.max(SHORTEST), ReportedFindings::default());
    loop {
        tokio::time::sleep(spread(every, RandomState::new().hash_one(0))).await;
        let findings = judge(&inquiry.facts().await, &inquiry.skipped);
        for finding in &findings {
            metrics.set_check_result(finding.check.as_str(), finding.result.as_str());
        }
        reported.take_changes(&findings).into_iter().for_each(log_finding);
    }
}

/// The pause before the next look: within a tenth of what was asked for, so that hubs which start together look apart.
fn spread(every: Duration, seed: u64) -> Duration {
    let thousandths = u16::try_from(seed % 1000).unwrap_or_default();
    every.mul_f64(0.9 + 0.2 * f64::from(thousandths) / 1000.0)
}

fn log_finding(finding: &PreflightFinding) {
    let (check, found, fix) = (finding.check.as_str(), &finding.message, &finding.fix);
    let page = format!("{RUNBOOK}#{check}");
    match finding.result {
        CheckResult::Refused => {
            tracing::error!(check, fix, page, "no start would be possible any more: {found}");
        }
        CheckResult::Warning => tracing::warn!(check, fix, page, "{found}"),
        CheckResult::Ok | CheckResult::Skipped => tracing::info!(check, "as it should be again: {found}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spread_around_the_time_that_was_asked_for() {
        let every = Duration::from_secs(900);
        let [shortest, longest] = [0, 999].map(|seed| spread(every, seed));
        assert_eq!(shortest, Duration::from_secs(810));
        assert!(longest > Duration::from_secs(989) && longest < Duration::from_secs(990));
    }
}
