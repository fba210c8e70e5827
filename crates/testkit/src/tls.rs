//! A certificate authority that lives for one run, and what it signs, as PEM files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
    dir: TempDir,
}

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM, PKCS#8.
    pub key: PathBuf,
    /// Key and certificate in one file, as Kafka's PEM keystore wants them.
    pub both: PathBuf,
}

/// How long a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Now.
    Good,
    /// No more.
    Expired,
}

impl Authority {
    /// A new one, called `name`. Its files are removed with it.
    pub fn new(name: &str) -> Self {
        let dir = TempDir::with_prefix("tidegate-ca-").unwrap_or_else(|error| panic!("a directory: {error}"));
        let key = KeyPair::generate().unwrap_or_else(|error| panic!("a key: {error}"));
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let signed = params.self_signed(&key).unwrap_or_else(|error| panic!("a certificate: {error}"));
        let certificate = dir.path().join("ca.pem");
        write(&certificate, &signed.pem());
        Self { issuer: Issuer::new(params, key), certificate, dir }
    }

    /// Its own certificate, PEM.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// A certificate for these host names and IP addresses, good for servers and clients. `file` names its files.
    pub fn sign(&self, file: &str, names: &[&str], validity: Validity) -> Identity {
        let key = KeyPair::generate().unwrap_or_else(|error| panic!("a key: {error}"));
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap_or_else(|error| panic!("names: {error}"));
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if validity == Validity::Expired {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let signed = params.signed_by(&key, &self.issuer).unwrap_or_else(|error| panic!("a certificate: {error}"));
        let path = |end: &str| self.dir.path().join(format!("{file}{end}"));
        let identity = Identity { certificate: path(".pem"), key: path("-key.pem"), both: path("-both.pem") };
        write(&identity.certificate, &signed.pem());
        write(&identity.key, &key.serialize_pem());
        write(&identity.both, &format!("{}{}", key.serialize_pem(), signed.pem()));
        identity
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
