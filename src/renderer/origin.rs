//! Origins: where a credential may go.
//!
//! A registry can name other addresses in three places: the realm of a token challenge, the `Location` of an upload, and a
//! redirect. Credentials and content go to the registry's own origin (scheme, host and port) only; redirects are never
//! followed, and the one exception, a token service elsewhere, has to be named by the platform beforehand.

use http::Uri;
use http::uri::Scheme;

use crate::api::oci::RegistryHost;

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

/// Whether a registry and its token service are both spoken to over plain HTTP, so that no certificate is needed.
#[must_use]
pub fn is_all_plain(plain_http: bool, token_realm: Option<&Uri>) -> bool {
    plain_http
        && !token_realm
            .and_then(Origin::of)
            .is_some_and(|realm| realm.is_https())
}

impl Origin {
    /// A registry's origin; plain HTTP only if asked for.
    #[must_use]
    pub fn of_registry(host: &RegistryHost, plain_http: bool) -> Self {
        let scheme = if plain_http { Scheme::HTTP } else { Scheme::HTTPS };
        let port = host.port().unwrap_or(default_port(&scheme));
        Self {
            scheme,
            host: host.name().to_owned(),
            port,
        }
    }

    /// The origin of an absolute http(s) address without user information; `None` for anything else.
    #[must_use]
    pub fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri
            .scheme()
            .filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))?;
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))?;
        let host: RegistryHost = authority.as_str().parse().ok()?;
        let port = host.port().unwrap_or(default_port(scheme));
        Some(Self {
            scheme: scheme.clone(),
            host: host.name().to_owned(),
            port,
        })
    }

    /// An address on this origin; `path` starts with a slash.
    ///
    /// # Errors
    /// When `path` is not a path.
    pub fn at(&self, path: &str) -> Result<Uri, http::Error> {
        let authority = format!("{}:{}", self.host, self.port);
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(authority)
            .path_and_query(path)
            .build()
    }

    /// Whether the origin is encrypted.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Where an upload goes on: `location` if it is on this origin, absolute or as a path from the root.
    #[must_use]
    pub fn resolve(&self, location: &str) -> Option<Uri> {
        if location
            .bytes()
            .any(|byte| !byte.is_ascii_graphic() || byte == b'\\')
        {
            return None;
        }
        if location.starts_with('/') && !location.starts_with("//") {
            return self.at(location).ok();
        }
        let uri: Uri = location.parse().ok()?;
        (Self::of(&uri)? == *self).then_some(uri)
    }

    /// The address of a token service that may receive the credential of a registry at this origin.
    ///
    /// Same origin, or exactly the address the platform named; https unless the registry itself is plain HTTP.
    #[must_use]
    pub fn vet_realm(&self, realm: &str, allowed: Option<&Uri>) -> Option<Uri> {
        if realm
            .bytes()
            .any(|byte| !byte.is_ascii_graphic() || byte == b'\\' || byte == b'#')
        {
            return None;
        }
        let uri: Uri = realm.parse().ok()?;
        let origin = Self::of(&uri)?;
        let named = allowed.is_some_and(|allowed| {
            Self::of(allowed).as_ref() == Some(&origin)
                && allowed.path() == uri.path()
                && allowed.query() == uri.query()
        });
        let encrypted = origin.is_https() || !self.is_https();
        ((origin == *self || named) && encrypted).then_some(uri)
    }
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTP { 80 } else { 443 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: &str, plain_http: bool) -> Origin {
        Origin::of_registry(&host.parse().unwrap(), plain_http)
    }

    #[test]
    fn a_default_port_is_the_same_as_none() {
        for (uri, host, plain_http) in [
            ("https://r.example/x", "r.example:443", false),
            ("https://R.example:443/x", "r.example", false),
            ("http://r.example:80", "r.example", true),
            ("https://[::1]:5000/", "[::1]:5000", false),
        ] {
            assert_eq!(
                Origin::of(&uri.parse().unwrap()),
                Some(origin(host, plain_http)),
                "{uri}"
            );
        }
        assert_eq!(
            origin("r.example", false).at("/v2/?a=b").unwrap().to_string(),
            "https://r.example:443/v2/?a=b"
        );
        assert_eq!(
            origin("[::1]:5", true).at("/").unwrap().to_string(),
            "http://[::1]:5/"
        );
    }

    /// Holds: O2.
    #[test]
    fn uploads_stay_on_the_origin() {
        let origin = origin("r.example", false);
        for good in [
            "/v2/a/blobs/uploads/1?_state=x%3D",
            "https://r.example/u",
            "https://r.example:443/u",
            "HTTPS://R.EXAMPLE/u",
        ] {
            assert!(origin.resolve(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "u",
            "../u",
            "//r.example/u",
            "//b.example/u",
            "http://r.example/u",
            "https://r.example:444/u",
            "https://b.example/u",
            "https://r.example.b.example/u",
            "https://r.example@b.example/u",
            "https://u:p@r.example/u",
            "ftp://r.example/u",
            "\\\\b.example\\u",
            "/\\b.example",
            "https:/b.example",
            "https://",
            "/a b",
            "/a\nb",
            "javascript:x",
        ] {
            assert_eq!(origin.resolve(bad), None, "{bad}");
        }
    }

    /// Holds: O1.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn realms_are_the_registry_or_the_one_named() {
        let registry = origin("r.example", false);
        let named: Uri = "https://auth.example/token".parse().unwrap();
        assert!(registry.vet_realm("https://r.example/token?x=y", None).is_some());
        assert!(
            registry
                .vet_realm("https://auth.example/token", Some(&named))
                .is_some()
        );
        assert!(
            registry
                .vet_realm("https://auth.example:443/token", Some(&named))
                .is_some()
        );
        for bad in [
            "",
            "/token",
            "http://r.example/token",
            "https://auth.example/token",
            "https://r.example:444/token",
            "https://u:p@r.example/token",
            "https://r.example#b.example/",
            "https://r.example\\@b.example/",
        ] {
            assert_eq!(registry.vet_realm(bad, None), None, "{bad}");
        }
        for bad in [
            "https://auth.example/other",
            "https://auth.example/token?next=b",
            "https://b.example/token",
            "http://auth.example/token",
        ] {
            assert_eq!(registry.vet_realm(bad, Some(&named)), None, "{bad}");
        }
        let plain: Uri = "http://auth.example/token".parse().unwrap();
        assert_eq!(
            registry.vet_realm("http://auth.example/token", Some(&plain)),
            None,
            "never down from https"
        );
        assert!(
            origin("r.example", true)
                .vet_realm("http://auth.example/token", Some(&plain))
                .is_some()
        );
    }
}
