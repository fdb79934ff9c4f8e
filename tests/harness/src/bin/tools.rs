//! `renderhub-tools ensure` builds every program that tests use, `renderhub-tools earlier` the release that they upgrade from;
//! `renderhub-tools path NAME` prints where a program is.

use std::process::ExitCode;

use renderhub_harness::tools::{Earlier, Tools};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["ensure"] => Tools::ensure().map(|()| println!("ready: {}", Tools::names().join(", "))),
        ["earlier"] => Earlier::ensure().map(|earlier| println!("ready: {}", earlier.chart().display())),
        ["path", name] => Tools::path(name).map(|path| println!("{}", path.display())),
        _ => {
            eprintln!("usage: renderhub-tools ensure | renderhub-tools earlier | renderhub-tools path NAME");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
