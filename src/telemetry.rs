//! Logs: JSON or plain, to standard error.

use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts logging. Libraries are held at warnings whatever the level: their finer logs show requests and headers.
pub fn start(format: LogFormat, level: Level) {
    let filter = EnvFilter::new(format!("warn,renderhub={}", level.as_str().to_lowercase()));
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => base.json().flatten_event(true).init(),
        LogFormat::Plain => base.init(),
    }
}
