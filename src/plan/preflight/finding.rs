//! A check and its result.

use serde::Serialize;

use super::check::PreflightCheck;
use super::facts::FactError;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// As it should be.
    Ok,
    /// The hub does not start.
    Refused,
    /// The hub starts, and says so.
    Warning,
    /// An administrator does without it.
    Skipped,
}

impl CheckResult {
    /// The verdict as a label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Warning => "warning",
            Self::Skipped => "skipped",
        }
    }
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreflightFinding {
    /// The check.
    pub check: PreflightCheck,
    /// Its result.
    #[serde(rename = "result")]
    pub result: CheckResult,
    /// What is so, for a person.
    #[serde(rename = "what")]
    pub message: String,
    /// What to do about it; empty where nothing is to be done.
    pub fix: String,
}

impl PreflightFinding {
    /// All is well.
    #[must_use]
    pub fn ok(check: PreflightCheck, message: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Ok, message, "")
    }

    /// The hub must not start.
    #[must_use]
    pub fn refused(check: PreflightCheck, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Refused, message, fix)
    }

    /// An operator should read it.
    #[must_use]
    pub fn warning(check: PreflightCheck, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, CheckResult::Warning, message, fix)
    }

    /// Not asked for.
    #[must_use]
    pub fn skipped(check: PreflightCheck) -> Self {
        let message = "not looked at, as --skip-preflight says";
        Self::new(check, CheckResult::Skipped, message, "")
    }

    fn new(
        check: PreflightCheck,
        verdict: CheckResult,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            check,
            result: verdict,
            message: message.into(),
            fix: fix.into(),
        }
    }
}

/// The finding on a fact that is not known.
pub(super) fn unknown(check: PreflightCheck, why: FactError, right: &str) -> PreflightFinding {
    let message = match why {
        FactError::Forbidden | FactError::NotAsked => format!("is not known: the hub may not {right}"),
        FactError::Unreadable => format!("is not known: the API server does not let the hub {right}"),
    };
    let without = if check.can_be_skipped() {
        format!(", or do without: --skip-preflight={check}")
    } else {
        String::new()
    };
    let fix = format!("grant it, as the chart does{without}");
    match check {
        // What only warns when it is wrong does not refuse when it is unknown.
        PreflightCheck::OwnRights | PreflightCheck::RegistryScope | PreflightCheck::Pipeline => {
            PreflightFinding::warning(check, message, fix)
        }
        _ => PreflightFinding::refused(check, message, fix),
    }
}
