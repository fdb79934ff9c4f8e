//! How the hub becomes the ServiceAccount of a task.

use clap::ValueEnum;

/// How the hub becomes the ServiceAccount of a task; a value of `--tenant-identity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IdentityMethod {
    /// By a token of ten minutes.
    #[default]
    Token,
    /// By impersonation.
    Impersonate,
}

impl IdentityMethod {
    /// The value of the flag, which the log and the metric of the mode show too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Impersonate => "impersonate",
        }
    }

    /// Its name among the settings that are less strict than the default; `None` for the default.
    #[must_use]
    pub const fn relaxed(self) -> Option<&'static str> {
        match self {
            Self::Token => None,
            Self::Impersonate => Some("tenant-identity-impersonate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_shows_the_value_of_the_flag_and_only_the_default_is_strict() {
        for method in IdentityMethod::value_variants() {
            let value = method.to_possible_value().unwrap();
            assert_eq!(value.get_name(), method.as_str());
            let is_default = *method == IdentityMethod::default();
            assert_eq!(method.relaxed().is_none(), is_default, "{method:?}");
        }
    }
}
