//! Decodes authorities, tokens, client certificates and their keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, RsaKeyPair,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use secrecy::{SecretSlice, SecretString};
use webpki::{EndEntityCert, anchor_from_trusted_cert};
use zeroize::Zeroizing;

use super::error::KubeconfigError;
use super::remote::PrivateKeyEncoding;

/// Most certificates in one field; each handshake reads all of them.
const MAX_CERTIFICATES: usize = 16;

/// A part of a PEM file.
type PemSection = (SectionKind, Vec<u8>);

/// A bearer token, of characters that are valid in every header.
///
/// # Errors
/// When it is empty, or holds anything but visible ASCII characters.
pub(super) fn token(characters: &str) -> Result<SecretString, KubeconfigError> {
    if characters.is_empty() {
        return Err(KubeconfigError::EmptyToken);
    }
    if !characters.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(KubeconfigError::BadToken);
    }
    Ok(SecretString::from(characters))
}

/// The authorities that sign a server's certificate.
///
/// # Errors
/// When they are not between one and 16 certificates in PEM, in base64.
pub(super) fn authorities(data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let authorities = certificates(data, KubeconfigError::BadAuthority)?;
    if authorities.iter().any(|der| !is_certificate(der)) {
        return Err(KubeconfigError::BadAuthority);
    }
    Ok(authorities)
}

/// A client's certificate, and its intermediate certificates.
///
/// # Errors
/// When they are not between one and 16 certificates in PEM, in base64.
pub(super) fn chain(data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let chain = certificates(data, KubeconfigError::BadCertificate)?;
    let leaf = chain.first().map(|der| CertificateDer::from(der.as_slice()));
    let is_leaf = leaf.is_some_and(|leaf| EndEntityCert::try_from(&leaf).is_ok());
    if !is_leaf || chain.iter().any(|der| !is_certificate(der)) {
        return Err(KubeconfigError::BadCertificate);
    }
    Ok(chain)
}

/// A private key that TLS can sign with.
///
/// # Errors
/// When it is not one key in PEM, in base64; is protected by a passphrase; or is of a kind or a size that is not used.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "new kinds of sections may be added, and all but these three are refused"
)]
pub(super) fn private_key(data: &str) -> Result<(PrivateKeyEncoding, SecretSlice<u8>), KubeconfigError> {
    let pem = decoded(data).ok_or(KubeconfigError::BadKey)?;
    let mut sections = PemSection::pem_slice_iter(&pem);
    let Some(Ok((section, der))) = sections.next() else {
        return Err(KubeconfigError::BadKey);
    };
    let der = Zeroizing::new(der);
    let kind = match section {
        SectionKind::RsaPrivateKey => PrivateKeyEncoding::Pkcs1,
        SectionKind::EcPrivateKey => PrivateKeyEncoding::Sec1,
        SectionKind::PrivateKey => PrivateKeyEncoding::Pkcs8,
        _ => return Err(KubeconfigError::BadKey),
    };
    if sections.next().is_some() || !can_sign(kind, &der) {
        return Err(KubeconfigError::BadKey);
    }
    // A copy of exactly its size: shrinking would leave the key behind in freed memory.
    Ok((kind, SecretSlice::from(der.as_slice().to_vec())))
}

/// The certificates of a field that holds nothing else.
fn certificates(data: &str, unreadable: KubeconfigError) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let pem = decoded(data).ok_or(unreadable)?;
    let mut found = Vec::new();
    for section in PemSection::pem_slice_iter(&pem) {
        let Ok((SectionKind::Certificate, der)) = section else {
            return Err(unreadable);
        };
        if found.len() == MAX_CERTIFICATES {
            return Err(KubeconfigError::TooManyCertificates);
        }
        found.push(der);
    }
    if found.is_empty() {
        return Err(unreadable);
    }
    Ok(found)
}

/// Decodes base64; the bytes are wiped, as any field may hold a key by mistake.
fn decoded(data: &str) -> Option<Zeroizing<Vec<u8>>> {
    BASE64.decode(data).ok().map(Zeroizing::new)
}

fn is_certificate(der: &[u8]) -> bool {
    anchor_from_trusted_cert(&CertificateDer::from(der)).is_ok()
}

/// Whether it is a key of RSA (2048 to 4096 bits), P-256, P-384 or Ed25519.
fn can_sign(kind: PrivateKeyEncoding, der: &[u8]) -> bool {
    match kind {
        PrivateKeyEncoding::Pkcs1 => RsaKeyPair::from_der(der).is_ok(),
        PrivateKeyEncoding::Sec1 => CURVES.iter().any(|curve| {
            let wrapped = curve.wrap(der);
            wrapped.is_some_and(|pkcs8| curve.is_key(&pkcs8))
        }),
        PrivateKeyEncoding::Pkcs8 => {
            RsaKeyPair::from_pkcs8(der).is_ok()
                || CURVES.iter().any(|curve| curve.is_key(der))
                || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).is_ok()
        }
    }
}

/// An elliptic curve of ECDSA.
struct Curve {
    algorithm: &'static EcdsaSigningAlgorithm,
    /// Start of a PKCS #8 key of the curve, after its length: version and algorithm.
    prefix: &'static [u8],
}

static CURVES: [Curve; 2] = [
    Curve {
        algorithm: &ECDSA_P256_SHA256_ASN1_SIGNING,
        prefix: b"\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
    },
    Curve {
        algorithm: &ECDSA_P384_SHA384_ASN1_SIGNING,
        prefix: b"\x02\x01\x00\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22",
    },
];

impl Curve {
    fn is_key(&self, pkcs8: &[u8]) -> bool {
        EcdsaKeyPair::from_pkcs8(self.algorithm, pkcs8, &SystemRandom::new()).is_ok()
    }

    /// Wraps a SEC 1 key as PKCS #8, the only encoding that ring reads.
    fn wrap(&self, sec1: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let key = header(0x04, sec1.len())?;
        let all = header(0x30, self.prefix.len() + key.len() + sec1.len())?;
        let parts = [all.as_slice(), self.prefix, &key, sec1];
        let mut pkcs8 = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum()));
        for part in parts {
            pkcs8.extend_from_slice(part);
        }
        Some(pkcs8)
    }
}

/// Tag and length of a value in DER; `None` for one that is longer than any key of these curves.
fn header(tag: u8, length: usize) -> Option<Vec<u8>> {
    let short = u8::try_from(length).ok()?;
    Some(if short < 0x80 {
        vec![tag, short]
    } else {
        vec![tag, 0x81, short]
    })
}
