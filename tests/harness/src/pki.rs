//! A certificate authority per server, made in memory: everything here is verified, nothing is switched off.

use std::net::IpAddr;

use anyhow::{Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// The arc of `organizationName`; the only way to have it twice in one subject.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// A private key and what was signed for it, both as PEM.
#[derive(Clone)]
pub struct KeyPairPem {
    /// The certificate.
    pub cert: String,
    /// Its private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for KeyPairPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key never reaches a test's output.
        f.debug_struct("KeyPairPem").finish_non_exhaustive()
    }
}

/// A certificate authority with a fresh key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one, called `name` in its certificate.
    ///
    /// # Errors
    /// If the system has no random numbers to give.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        })
    }

    /// The authority's own certificate, as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server under these names and addresses.
    ///
    /// # Errors
    /// If a name is no DNS name.
    pub fn server(&self, names: &[&str], addresses: &[IpAddr]) -> Result<KeyPairPem> {
        let params = server_params(names, addresses)?;
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The same, but over since the year 2000.
    ///
    /// # Errors
    /// If a name is no DNS name.
    pub fn expired_server(&self, names: &[&str], addresses: &[IpAddr]) -> Result<KeyPairPem> {
        let mut params = server_params(names, addresses)?;
        params.not_before = rcgen::date_time_ymd(1999, 1, 1);
        params.not_after = rcgen::date_time_ymd(2000, 1, 1);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client: Kubernetes reads the common name as the user, the organisations as the groups.
    ///
    /// # Errors
    /// If there are more than two groups, which this encoding cannot hold.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<KeyPairPem> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        let types = [
            DnType::OrganizationName,
            DnType::CustomDnType(ORGANIZATION.to_vec()),
        ];
        if groups.len() > types.len() {
            bail!("a client certificate holds at most {} groups", types.len());
        }
        for (kind, group) in types.into_iter().zip(groups) {
            params.distinguished_name.push(kind, *group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<KeyPairPem> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(KeyPairPem {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn server_params(names: &[&str], addresses: &[IpAddr]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
    params
        .subject_alt_names
        .extend(addresses.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, names.first().copied().unwrap_or("server"));
    Ok(params)
}

/// A key for signing `ServiceAccount` tokens: (private, public), as PEM.
pub(crate) fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
