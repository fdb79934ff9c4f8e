//! Values of flags from text.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::SettingsError;
use crate::api::names::is_dns_label;
use crate::api::{PullPolicy, PullSecretEntries};

/// The value of a flag that must be a DNS label.
pub(super) fn label(flag: &'static str, value: &str) -> Result<String, SettingsError> {
    let value = value.to_owned();
    if is_dns_label(&value) {
        Ok(value)
    } else {
        Err(SettingsError::NotALabel { flag, value })
    }
}

/// The parts of a comma-separated list, without spaces, empty parts and repetitions.
pub(super) fn trimmed(list: &[String]) -> Vec<String> {
    let parts = list
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty());
    parts
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

pub(super) fn pull_policy(text: &str) -> Result<PullPolicy, String> {
    match text {
        "Always" => Ok(PullPolicy::Always),
        "IfNotPresent" => Ok(PullPolicy::IfNotPresent),
        "Never" => Ok(PullPolicy::Never),
        _ => Err("must be Always, IfNotPresent or Never".to_owned()),
    }
}

pub(super) fn pull_secret_entries(text: &str) -> Result<PullSecretEntries, String> {
    match text {
        "Needed" => Ok(PullSecretEntries::Needed),
        "All" => Ok(PullSecretEntries::All),
        _ => Err("must be Needed or All".to_owned()),
    }
}

pub(super) fn level(text: &str) -> Result<tracing::Level, String> {
    match text {
        "error" => Ok(tracing::Level::ERROR),
        "warn" => Ok(tracing::Level::WARN),
        "info" => Ok(tracing::Level::INFO),
        "debug" => Ok(tracing::Level::DEBUG),
        "trace" => Ok(tracing::Level::TRACE),
        _ => Err("must be error, warn, info, debug or trace".to_owned()),
    }
}

/// A whole number with a unit: ms, s, m or h.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number
        .parse()
        .map_err(|_| "must be a whole number with a unit, such as 90s or 5m")?;
    let seconds = |per: u64| number.checked_mul(per).map(Duration::from_secs);
    let time = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        _ => return Err("must end in ms, s, m or h".to_owned()),
    };
    time.filter(|time| *time <= Duration::from_secs(30 * 86_400))
        .ok_or_else(|| "must be at most 720h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_is_thirty_days_at_most() {
        for (text, expected) in [
            ("500ms", Some(Duration::from_millis(500))),
            ("90s", Some(Duration::from_secs(90))),
            ("720h", Some(Duration::from_secs(30 * 86_400))),
            ("2592000000ms", Some(Duration::from_secs(30 * 86_400))),
            ("721h", None),
            ("2592000001ms", None),
            ("18446744073709551615h", None),
            ("90", None),
            ("5d", None),
            ("", None),
        ] {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
    }
}
