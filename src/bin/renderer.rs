//! The program in the Job: renders a chart and pushes it.

use std::process::ExitCode;

fn main() -> ExitCode {
    renderhub::renderer::run::main()
}
