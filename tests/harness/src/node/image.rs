//! One small image that every node has: a static busybox, for the sandbox of each pod and for pods of tests.

use std::path::Path;

use anyhow::{Context, Result};

use crate::image::{BuiltImage, Entries, Layout};

/// The machine's static busybox.
pub(super) fn busybox() -> Result<&'static Path> {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
    let found = places.into_iter().find(|path| path.is_file());
    found.context("no busybox: `apt-get install -y busybox-static`")
}

/// Writes the image into `dir`, as the tar `busybox.tar` among others; its entrypoint sleeps for ever.
pub(super) fn write(name: &str, dir: &Path) -> Result<BuiltImage> {
    let mut root = Entries::default();
    root.file("bin/busybox", 0o755, std::fs::read(busybox()?)?);
    root.file(
        "bin/sh",
        0o755,
        "#!/bin/busybox sh\nexec /bin/busybox sh \"$@\"\n",
    );
    let layout = Layout {
        name: name.to_owned(),
        entrypoint: ["/bin/busybox", "sleep", "2147483647"].map(str::to_owned).into(),
        user: "65532:65532".to_owned(),
        root,
    };
    layout.write(dir)
}
