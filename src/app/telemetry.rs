//! Logs: JSON or plain, to standard error.
//!
//! Libraries log nothing at any level, trace included, and `RUST_LOG` is not read. kube logs the whole of a response that it
//! cannot decode as a warning, a Secret like any other; hyper logs headers, rustls names out of certificates. The hub logs and
//! counts what a person needs of their work itself.

use std::io::IsTerminal as _;

use tracing::Level;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::app::config::LogFormat;

/// Starts logging, once in a process.
pub fn start(format: LogFormat, level: Level) {
    // Fails only if logging was started before, and then it goes on as it does.
    _ = match format {
        LogFormat::Json => set_global_default(json(level, std::io::stderr)),
        LogFormat::Plain => set_global_default(plain(level, std::io::stderr)),
    };
}

fn filter(level: Level) -> EnvFilter {
    EnvFilter::new(format!("off,renderhub={}", level.as_str().to_lowercase()))
}

fn json<W>(level: Level, writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let base = tracing_subscriber::fmt().with_env_filter(filter(level));
    let json = base.with_writer(writer).json().flatten_event(true);
    // The innermost span is the last of the list.
    json.with_current_span(false).finish()
}

fn plain<W>(level: Level, writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let base = tracing_subscriber::fmt().with_env_filter(filter(level));
    // Colours in a file are noise, and look like an injected escape.
    base.with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// What a tenant may have as a name, if some schema should ever let it.
    const FOREIGN: &str = "x\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\u{1b}[31m\u{1b}]0;title\u{7}";

    /// Holds: E8.
    #[test]
    fn a_foreign_string_stays_within_its_line_and_colours_nothing() {
        let (page, writer) = (Page::default(), Page::default());
        let (first, second) = (page.clone(), writer.clone());
        let say = || {
            tracing::warn!(name = FOREIGN, "a word");
            tracing::warn!(name = ?FOREIGN, "a debugged word");
        };
        tracing::subscriber::with_default(json(Level::DEBUG, move || first.clone()), say);
        tracing::subscriber::with_default(plain(Level::DEBUG, move || second.clone()), say);
        for line in page.text().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["level"], "WARN");
        }
        for text in [page.text(), writer.text()] {
            assert_eq!(text.lines().count(), 2, "{text}");
            // Colours of our own need a terminal, which a test's standard error may be.
            let has_control = text.contains(['\r', '\u{7}']) || text.contains("\u{1b}]0");
            assert!(!has_control, "{text:?}");
        }
    }

    /// Holds: E8.
    #[test]
    fn libraries_say_nothing() {
        for (level, lines) in [(Level::DEBUG, 1), (Level::TRACE, 2)] {
            let page = Page::default();
            let writer = page.clone();
            tracing::subscriber::with_default(json(level, move || writer.clone()), || {
                let foreign = tracing::error_span!(target: "kube_client::client", "HTTP", url = "a name");
                let _entered = foreign.entered();
                tracing::error!(target: "kube_client::client", "the body of an answer");
                tracing::warn!(target: "kube_runtime::watcher", "the body of an answer");
                tracing::error!(target: "hyper::proto", "a header");
                tracing::error!(target: "rustls::client", "a name in a certificate");
                tracing::debug!(target: "renderhub::watch", "ours");
                tracing::trace!(target: "renderhub::watch", "fine");
            });
            let text = page.text();
            assert!(text.contains("ours") && !text.contains("a name"), "{text}");
            assert_eq!(text.lines().count(), lines, "{text}");
        }
    }

    #[test]
    fn a_line_says_what_the_spans_around_it_say_and_at_info_there_are_none() {
        for (level, spans) in [
            (Level::INFO, serde_json::Value::Null),
            (
                Level::DEBUG,
                serde_json::json!([{"name": "pass", "task": "t1", "cluster": "east"}]),
            ),
        ] {
            let page = Page::default();
            let writer = page.clone();
            tracing::subscriber::with_default(json(level, move || writer.clone()), || {
                let span =
                    tracing::debug_span!("pass", task = "t1", cluster = Some("east"), other = None::<&str>);
                span.in_scope(|| tracing::warn!("ours"));
            });
            let line: serde_json::Value = serde_json::from_str(page.text().trim()).unwrap();
            assert_eq!(
                (&line["spans"], &line["span"]),
                (&spans, &serde_json::Value::Null)
            );
        }
    }
}
