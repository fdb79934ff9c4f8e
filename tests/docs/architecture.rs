//! The picture of how an event becomes a write, and the modules that the page on the architecture names.

use super::picture::Picture;
use super::{read, root};

const PAGE: &str = "docs/architecture.md";

#[test]
fn the_picture_of_the_architecture_shows_its_tables() {
    let picture = Picture {
        page: PAGE,
        heading: "From an event to a write\n",
        file: "docs/architecture.svg",
        // Rooms, and below them the servers.
        bands: &["controllers", "plan", "remote", "kubernetes", "API server"],
    };
    picture.shows_its_tables();
}

/// Whether a module of `src` has this path, or the path without the type at its end; `architecture` looks for the type.
fn is_module(path: &str) -> bool {
    let (module, last) = path.rsplit_once("::").unwrap_or(("", path));
    let path = if last.starts_with(char::is_uppercase) {
        module
    } else {
        path
    };
    let path = root().join("src").join(path.replace("::", "/"));
    path.with_extension("rs").is_file() || path.join("mod.rs").is_file()
}

#[test]
fn every_module_that_the_architecture_names_is_there() {
    let page = read(PAGE);
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains("::"))
        .collect();
    assert!(named.len() > 30, "only {} modules are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|path| !is_module(path)).collect();
    assert!(
        missing.is_empty(),
        "{PAGE} names {missing:?}, which are no modules of src"
    );
}
