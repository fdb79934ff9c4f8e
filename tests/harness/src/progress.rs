//! Progress on the terminal for whatever takes longer than two seconds.
//!
//! On a terminal one line is updated in place; elsewhere (CI logs, a pipe) a plain line appears every 15 seconds.
//! It writes to standard error directly, past the capture of the test runner, so a slow first run is never silent.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing is shown before this much time has passed: a fast step is not worth a line.
const QUIET: Duration = Duration::from_secs(2);
/// How often the line on a terminal is updated.
const TTY_EVERY: Duration = Duration::from_secs(1);
/// How often a plain line is written where there is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(15);

/// A step that is under way; it ends when it is dropped.
#[derive(Debug)]
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts showing `what`, e.g. `building kubernetes 1.36.3`, with the seconds that have passed.
    #[must_use]
    pub fn start(what: impl Into<String>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let what = what.into();
        let thread = std::thread::spawn(move || show(&what, &stopped));
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the painter is not worth a second panic here.
            let _ = thread.join();
        }
    }
}

fn show(what: &str, stopped: &mpsc::Receiver<()>) {
    let tty = std::io::stderr().is_terminal();
    let begin = Instant::now();
    let mut wait = QUIET;
    let mut shown = false;
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        shown = true;
        let seconds = begin.elapsed().as_secs();
        wait = if tty {
            write(&format!("\r\x1b[2K{what} … {seconds} s"));
            TTY_EVERY
        } else {
            write(&format!("{what} … {seconds} s\n"));
            PLAIN_EVERY
        };
    }
    if shown {
        let clear = if tty { "\r\x1b[2K" } else { "" };
        write(&format!("{clear}{what}: {} s\n", begin.elapsed().as_secs()));
    }
}

fn write(text: &str) {
    // A closed standard error must not end a build.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
