//! Flags of several instances of one hub.

use clap::Args;

use super::SettingsError;
use crate::plan::shards::Shard;

/// Most instances that divide the namespaces of one hub.
const MAX_SHARDS: u16 = 64;

/// How many instances of this hub work at once, and which of them this one is.
#[derive(Debug, Args)]
pub struct ShardArgs {
    /// Instances that divide the namespaces of this hub among them; more than that stand by.
    #[arg(long, env = "RENDERHUB_SHARD_COUNT", default_value_t = 1)]
    pub shard_count: u16,
    /// Which of them this one is: a number from 0, or auto for the first that nobody is.
    #[arg(long, env = "RENDERHUB_SHARD_INDEX", default_value = "auto")]
    pub shard_index: String,
}

/// How many instances of this hub work at once, and which of them this one is; every value is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSettings {
    /// Instances that divide the namespaces.
    pub count: u16,
    /// Which one; `None` is the first that is free.
    pub index: Option<Shard>,
}

impl ShardArgs {
    pub(super) fn settings(&self) -> Result<ShardSettings, SettingsError> {
        let count = self.shard_count;
        if count == 0 || count > MAX_SHARDS {
            return Err(SettingsError::ShardCount);
        }
        let index = match self.shard_index.trim() {
            "auto" => None,
            number => {
                let number = number.parse().ok().filter(|number| *number < count);
                Some(Shard(number.ok_or(SettingsError::ShardIndex)?))
            }
        };
        Ok(ShardSettings { count, index })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn one_instance_works_unless_more_are_asked_for() {
        let shards = |flags: &[&str]| settings(flags).map(|settings| settings.shards);
        let found = |count, index: Option<u16>| {
            Ok(ShardSettings {
                count,
                index: index.map(Shard),
            })
        };
        assert_eq!(shards(&[]), found(1, None));
        assert_eq!(shards(&["--shard-count=3"]), found(3, None));
        assert_eq!(shards(&["--shard-count=3", "--shard-index=auto"]), found(3, None));
        assert_eq!(
            shards(&["--shard-count=3", "--shard-index= 2"]),
            found(3, Some(2))
        );
        for flags in [["--shard-count=0"], ["--shard-count=65"]] {
            assert_eq!(shards(&flags), Err(SettingsError::ShardCount));
        }
        for index in ["3", "-1", "first", ""] {
            let index = format!("--shard-index={index}");
            assert_eq!(
                shards(&["--shard-count=3", &index]),
                Err(SettingsError::ShardIndex)
            );
        }
    }
}
