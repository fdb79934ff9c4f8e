//! The repository of an image, as the kubelet asks for it: host and path, without tag and digest.

use std::fmt;

/// Host of images whose name has none.
const DEFAULT_HOST: &str = "docker.io";
/// Its older name.
const LEGACY_HOST: &str = "index.docker.io";
/// Where images of it are whose name has one part.
const DEFAULT_PATH: &str = "library";

/// Host and path of an image, `registry.example.com:5000/team/renderer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRepository {
    host: String,
    path: String,
}

impl ImageRepository {
    /// The repository of an image's name; `None` where it has no path. The source of the rules is `ParseNormalizedNamed` of
    /// the distribution project's package `reference`, which the kubelet uses.
    #[must_use]
    pub fn of(image: &str) -> Option<Self> {
        let (name, _) = image.split_once('@').unwrap_or((image, ""));
        let (host, rest) = match name.split_once('/') {
            Some((first, rest)) if is_host(first) => (first, rest),
            _ => (DEFAULT_HOST, name),
        };
        let host = if host == LEGACY_HOST { DEFAULT_HOST } else { host };
        // A colon of the path begins the tag; one of the host was its port.
        let path = rest.rsplit_once(':').map_or(rest, |(path, _)| path);
        if path.is_empty() {
            return None;
        }
        let path = if host == DEFAULT_HOST && !path.contains('/') {
            format!("{DEFAULT_PATH}/{path}")
        } else {
            path.to_owned()
        };
        Some(Self {
            host: host.to_owned(),
            path,
        })
    }

    /// The registry's host, with its port where the name has one.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether it is in the registry of images whose name has no host.
    pub(super) fn is_of_default_host(&self) -> bool {
        // The kubelet takes every first part without a dot and a port for the name of a user.
        self.host == DEFAULT_HOST || !self.host.contains(['.', ':'])
    }
}

/// Whether the first part of an image's name is a host.
fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
}

impl fmt::Display for ImageRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_of_an_image_is_the_one_that_the_kubelet_asks_for() {
        for (image, repository) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1.36", "docker.io/library/busybox"),
            ("team/app", "docker.io/team/app"),
            ("index.docker.io/busybox:1", "docker.io/library/busybox"),
            ("docker.io/team/app@sha256:0", "docker.io/team/app"),
            ("localhost/app", "localhost/app"),
            ("localhost:5000/app:1", "localhost:5000/app"),
            ("registry.example.com/a/b:1@sha256:0", "registry.example.com/a/b"),
            ("registry.example.com:5000/a", "registry.example.com:5000/a"),
            ("[::1]:5000/a:1", "[::1]:5000/a"),
            ("Team/app", "Team/app"),
        ] {
            assert_eq!(
                ImageRepository::of(image).unwrap().to_string(),
                repository,
                "{image}"
            );
        }
        for image in ["", "registry.example.com/", ":1", "@sha256:0"] {
            assert_eq!(ImageRepository::of(image), None, "{image}");
        }
    }
}
