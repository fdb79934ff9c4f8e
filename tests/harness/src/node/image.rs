//! One small image that every node has: a static busybox, for the sandbox of each pod and for pods of tests.

use std::path::Path;

use anyhow::{Context, Result};

use crate::image::{Entries, Layout};

/// Writes the image into `dir`, as the tar `busybox.tar` among others; its entrypoint sleeps for ever.
pub(super) fn write(name: &str, dir: &Path) -> Result<()> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.into_iter().find(|path| Path::new(path).is_file());
    let busybox = busybox.context("no busybox: `apt-get install -y busybox-static`")?;
    let mut root = Entries::default();
    root.file("bin/busybox", 0o755, std::fs::read(busybox)?);
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
    layout.write(dir).map(drop)
}
