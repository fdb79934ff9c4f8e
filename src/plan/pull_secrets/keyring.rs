//! Which entries of a docker config the kubelet tries for an image.
//!
//! The rules are the kubelet's own, `pkg/credentialprovider/keyring.go` of Kubernetes 1.36: a key is a host, with globs in its parts,
//! perhaps a port and perhaps a path, which must be how the image's path begins.

use super::image_repository::ImageRepository;

/// The key of entries for images whose name has no host.
const DEFAULT_KEY: &str = "index.docker.io";

/// Whether the kubelet tries the entry under this key for an image.
#[must_use]
pub fn is_tried(key: &str, image: &ImageRepository) -> bool {
    let Some(key) = normalized(key) else { return false };
    if image.is_of_default_host() && key == DEFAULT_KEY {
        return true;
    }
    // The kubelet parses what it made of the key once more.
    let (glob, target) = (HostAndPath::parse(&key), HostAndPath::parse(&image.to_string()));
    glob.zip(target)
        .is_some_and(|(glob, target)| glob.covers(&target))
}

/// The key without its scheme, and without the path of the registry's protocol.
fn normalized(key: &str) -> Option<String> {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let HostAndPath { host, path } = HostAndPath::parse(bare.unwrap_or(key))?;
    let is_protocols = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if is_protocols { path.split_at(3).1 } else { &path };
    Some(if path == "/" { host } else { host + path })
}

/// A URL as Go's `net/url` reads it, without what the kubelet does not look at.
#[derive(Debug, PartialEq, Eq)]
struct HostAndPath {
    host: String,
    path: String,
}

impl HostAndPath {
    /// Reads a URL without its scheme; `None` where Go refuses it.
    fn parse(text: &str) -> Option<Self> {
        if text.chars().any(|c| c.is_ascii_control()) {
            return None;
        }
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let text = text.split_once('?').map_or(text, |(text, _)| text);
        let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        is_legal_host(host).then_some(())?;
        Some(Self {
            host: host.to_owned(),
            path: percent_decoded(path)?,
        })
    }

    /// Whether a target is among those that this glob means.
    fn covers(&self, target: &Self) -> bool {
        let ((host, port), (target_host, target_port)) =
            (host_and_port(&self.host), host_and_port(&target.host));
        let is_same_length = host.split('.').count() == target_host.split('.').count();
        let mut parts = host.split('.').zip(target_host.split('.'));
        port == target_port
            && is_same_length
            && target.path.starts_with(&self.path)
            && parts.all(|(glob, part)| matches(glob.as_bytes(), part.as_bytes()))
    }
}

/// Whether Go takes this for the host of a URL.
fn is_legal_host(host: &str) -> bool {
    let is_legal =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c);
    let after = match host.strip_prefix('[') {
        // An address in brackets ends with the last one.
        Some(rest) => match rest.rsplit_once(']') {
            Some((_, after)) => after,
            None => return false,
        },
        None if host.contains(['[', ']']) => return false,
        None => match host.rfind(':') {
            Some(colon) => host.split_at(colon).1,
            None => "",
        },
    };
    let is_port = |port: &str| port.chars().all(|c| c.is_ascii_digit());
    host.chars().all(is_legal) && (after.is_empty() || after.strip_prefix(':').is_some_and(is_port))
}

/// Go's `net.SplitHostPort`, and all of the host where that refuses it.
fn host_and_port(host: &str) -> (&str, &str) {
    let Some((name, port)) = host.rsplit_once(':') else {
        return (host, "");
    };
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return (address, port);
    }
    if name.contains([':', '[', ']']) || port.contains(['[', ']']) {
        (host, "")
    } else {
        (name, port)
    }
}

fn percent_decoded(path: &str) -> Option<String> {
    let mut parts = path.split('%');
    let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        decoded.extend(rest.as_bytes());
    }
    // What is no text is no path of an image either.
    String::from_utf8(decoded).ok()
}

/// Go's `filepath.Match` for one part of a host: `*` is the only glob that can be in it.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    match glob {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skipped| matches(rest, text.split_at(skipped).1)),
        [first, rest @ ..] => text
            .split_first()
            .is_some_and(|(f, text)| f == first && matches(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tried(key: &str, image: &str) -> bool {
        is_tried(key, &ImageRepository::of(image).unwrap())
    }

    #[expect(clippy::too_many_lines, reason = "one line a case")]
    #[test]
    fn a_key_is_a_host_with_globs_perhaps_a_port_and_perhaps_a_path() {
        for (key, image, expected) in [
            ("registry.example.com", "registry.example.com/team/app:1", true),
            ("registry.example.com", "other.example.com/team/app:1", false),
            ("https://registry.example.com", "registry.example.com/a", true),
            ("http://registry.example.com/v1/", "registry.example.com/a", true),
            ("https://registry.example.com/v2/", "registry.example.com/a", true),
            ("registry.example.com/v2", "registry.example.com/a", false),
            ("registry.example.com/team", "registry.example.com/team/app", true),
            ("registry.example.com/te", "registry.example.com/team/app", true),
            (
                "registry.example.com/v2/team",
                "registry.example.com/team/app",
                true,
            ),
            (
                "registry.example.com/other",
                "registry.example.com/team/app",
                false,
            ),
            ("*.example.com", "registry.example.com/a", true),
            ("*.example.com", "a.b.example.com/a", false),
            ("*.example.com", "example.com/a", false),
            ("reg*.example.com", "registry.example.com/a", true),
            ("r*y.*.com", "registry.example.com/a", true),
            ("[a-r]egistry.example.com", "registry.example.com/a", false),
            ("regi[r-t]try.example.com", "registry.example.com/a", false),
            ("registry.example.com:5000", "registry.example.com:5000/a", true),
            ("registry.example.com:5000", "registry.example.com/a", false),
            ("registry.example.com", "registry.example.com:5000/a", false),
            ("*.example.com:5000", "registry.example.com:5000/a", true),
            ("*.example.com:*", "registry.example.com:5000/a", false),
            ("user@registry.example.com", "registry.example.com/a", true),
            ("registry.example.com?x", "registry.example.com/a", true),
            ("registry.example.com/%74eam", "registry.example.com/team/a", true),
            ("https://index.docker.io/v1/", "busybox", true),
            ("index.docker.io", "docker.io/team/app", true),
            ("docker.io", "busybox:1", true),
            ("docker.io/team", "busybox", false),
            ("index.docker.io", "registry.example.com/a", false),
            ("", "registry.example.com/a", false),
            ("registry.example.com:port", "registry.example.com/a", false),
            ("registry example.com", "registry.example.com/a", false),
        ] {
            assert_eq!(tried(key, image), expected, "{key} for {image}");
        }
    }

    /// Keys, images and answers of the kubelet's own code: a `BasicDockerKeyring` of Kubernetes 1.36.3 with one entry under the key was
    /// asked for the name that its `ParseImageName` makes of the image.
    #[test]
    fn the_kubelets_own_code_answers_the_same() {
        let cases = include_str!("golden/keyring.tsv");
        for case in cases.lines() {
            let mut parts = case.split('\t');
            let mut next = || parts.next().unwrap();
            let (key, image, answer) = (next(), next(), next());
            assert_eq!(tried(key, image).to_string(), answer, "{key} for {image}");
        }
        assert_eq!(cases.lines().count(), 400);
    }

    proptest! {
        #[test]
        fn a_host_is_tried_for_its_own_images_and_no_text_panics(
            host in "[a-z]{1,9}\\.[a-z]{2,9}(:[0-9]{2,4})?", path in "[a-z]{1,9}(/[a-z]{1,9}){0,2}", any in ".{0,60}",
        ) {
            let image = format!("{host}/{path}:1");
            for key in [host.clone(), format!("https://{host}/v1/"), format!("{host}/{path}")] {
                prop_assert!(tried(&key, &image), "{}", key);
            }
            let other = format!("other{host}");
            prop_assert!(!tried(&other, &image));
            let _ = tried(&any, &image);
        }
    }
}
