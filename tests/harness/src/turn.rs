//! Permits for tests that keep the whole machine busy: one at a time, over all test programs.
//!
//! Two of them side by side would measure each other.

use std::fs::File;

use anyhow::{Context, Result};

/// The machine's, until it is dropped or the process ends.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    _lock: File,
}

/// Waits until no other test holds the permit.
///
/// # Errors
/// If the file system has no locks.
pub async fn turn() -> Result<Turn> {
    let taken = tokio::task::spawn_blocking(|| {
        let path = std::env::current_exe()?.with_file_name("turn");
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        file.lock().context("no lock")?;
        anyhow::Ok(file)
    });
    Ok(Turn { _lock: taken.await?? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_next_has_its_turn_when_the_last_is_over() {
        let first = turn().await.unwrap();
        let mut second = Box::pin(turn());
        let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
        assert!(early.is_err(), "two at once");
        drop(first);
        drop(second.await.unwrap());
    }
}
