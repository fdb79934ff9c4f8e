//! Files: read with a limit and without following a last symbolic link; written whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Why a file cannot be read or written; a closed list, since an I/O error's text may hold a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is no such file, or no such directory.
    #[error("no such file or directory")]
    NotFound,
    /// The process may not.
    #[error("permission denied")]
    Denied,
    /// A directory, symbolic link, pipe, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// More bytes than the limit.
    #[error("file is too large")]
    TooLarge,
    /// Anything else.
    #[error("input/output error")]
    Other,
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        // What opening a link gives when links are not followed, and what opening a socket gives.
        if [Errno::LOOP, Errno::NXIO]
            .map(|e| Some(e.raw_os_error()))
            .contains(&error.raw_os_error())
        {
            return Self::NotRegular;
        }
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::IsADirectory => Self::NotRegular,
            _ => Self::Other,
        }
    }
}

/// Reads a file that a trusted program wrote: links are followed, as Kubernetes mounts its volumes by links.
///
/// # Errors
/// When the file cannot be read, is not a regular file, or is larger than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    read_with(path, limit, OFlags::empty())
}

/// Reads a file in a directory that an untrusted program can write to: the last component must not be a link.
///
/// # Errors
/// As [`read`], and when the file is a symbolic link.
pub fn read_untrusted(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    read_with(path, limit, OFlags::NOFOLLOW)
}

fn read_with(path: &Path, limit: u64, flags: OFlags) -> Result<Vec<u8>, FileError> {
    // Without NONBLOCK, opening a pipe without a writer waits for ever.
    let flags = (flags | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    if metadata.len() > limit {
        return Err(FileError::TooLarge);
    }
    // The file may still grow: the limit holds for what is read, not for what was announced.
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(FileError::TooLarge)
    } else {
        Ok(bytes)
    }
}

/// Writes a file so that it is there whole or not at all.
///
/// # Errors
/// When the directory cannot be written to.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".chart-")
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Writes the termination message; a missing file is fine where the path is the default one and this is no pod.
///
/// # Errors
/// When the file is there and cannot be written.
pub fn write_message(path: &Path, text: &str, create: bool) -> Result<(), FileError> {
    let opened = OpenOptions::new()
        .write(true)
        .truncate(true)
        .create(create)
        .open(path);
    match opened.and_then(|mut file: File| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !create => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Holds: R1, X1.
    #[test]
    fn untrusted_files_are_regular_small_and_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "abc").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_untrusted(&at("socket"), 3), Err(FileError::NotRegular));
        assert_eq!(read_untrusted(&at("file"), 3).unwrap(), b"abc");
        assert_eq!(read_untrusted(&at("file"), 2), Err(FileError::TooLarge));
        assert_eq!(read_untrusted(&at("link"), 3), Err(FileError::NotRegular));
        assert_eq!(read_untrusted(&at("loop"), 3), Err(FileError::NotRegular));
        assert_eq!(read_untrusted(&at("pipe"), 3), Err(FileError::NotRegular));
        assert_eq!(read_untrusted(dir.path(), 3), Err(FileError::NotRegular));
        assert_eq!(read_untrusted(&at("none"), 3), Err(FileError::NotFound));
        assert_eq!(
            read_untrusted(Path::new("/dev/null"), 3),
            Err(FileError::NotRegular)
        );
        assert_eq!(
            read_untrusted(Path::new("/proc/self/environ"), 0),
            Err(FileError::TooLarge),
            "announces no size"
        );
        assert_eq!(
            read(&at("link"), 3).unwrap(),
            b"abc",
            "Kubernetes mounts Secrets by links"
        );
    }

    #[test]
    fn a_file_is_written_whole_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.tgz");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(
            write_atomically(Path::new("/nonexistent/x"), b""),
            Err(FileError::NotFound)
        );
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(write_atomically(&dir.path().join("d"), b"").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_message_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        write_message(&path, "x", false).unwrap();
        assert!(!path.exists());
        write_message(&path, "long text", true).unwrap();
        write_message(&path, "short", false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
    }
}
