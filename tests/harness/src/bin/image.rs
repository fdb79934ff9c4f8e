//! `renderhub-image PROGRAMS OUT` makes the hub's and the renderer's image from the programs in a directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use renderhub_harness::image::Image;

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [programs, out] = words.as_slice() else {
        eprintln!("usage: renderhub-image DIRECTORY-OF-PROGRAMS DIRECTORY-FOR-IMAGES");
        return ExitCode::from(2);
    };
    match build(programs, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(programs: &Path, out: &Path) -> Result<()> {
    let hub = Image::hub(programs.join("renderhub"));
    let renderer = Image::renderer(programs.join("renderhub-renderer"));
    for image in [hub, renderer] {
        let built = image.write(out)?;
        println!("{}  {}@{}", built.tar.display(), built.name, built.digest);
    }
    Ok(())
}
