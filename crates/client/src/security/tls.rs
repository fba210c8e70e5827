//! TLS as the configuration asks for it: whom to trust, who we are, which name the peer must have.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, SectionKind, SliceIter};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::pki_types::{ServerName, UnixTime};

/// Certificates and keys are a few KiB, a bundle of all public authorities is a quarter of a MiB.
const LARGEST_PEM: u64 = 8 << 20;

/// How TLS is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whose signature makes a broker's certificate good. Kafka's `ssl.truststore.*`, librdkafka's `ssl.ca.location`.
    /// Default: the system's.
    pub trust: Trust,
    /// Who we are, where brokers ask for a certificate. Default: nobody.
    pub identity: Option<TlsIdentity>,
    /// The name that a broker's certificate must have, in place of the host name that it was reached under. Our own
    /// connections only: librdkafka has no such setting. Default: the host name.
    pub server_name: Option<String>,
    /// Whether a broker's certificate must be made out to its name. Kafka's `ssl.endpoint.identification.algorithm`,
    /// `https` or empty. Default: true.
    pub check_name: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self { trust: Trust::System, identity: None, server_name: None, check_name: true }
    }
}

/// Whose certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that the operating system trusts; `SSL_CERT_FILE` and `SSL_CERT_DIR` say where they are, as for
    /// OpenSSL.
    #[default]
    System,
    /// Those in this PEM file alone.
    PemFile(PathBuf),
}

/// The certificate that we show, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// A PEM file with our certificate first and then those that it was signed by. librdkafka's
    /// `ssl.certificate.location`.
    pub certificate: PathBuf,
    /// A PEM file with its private key, not encrypted. librdkafka's `ssl.key.location`.
    pub key: PathBuf,
}

/// A setting of TLS is of no use.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsSettingError {
    /// A file cannot be read.
    #[error("{setting}: cannot read {}: {source}", path.display())]
    Read {
        /// Kafka's or librdkafka's name of the setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// A file does not hold what it should.
    #[error("{setting}: {} {problem}", path.display())]
    Pem {
        /// Kafka's or librdkafka's name of the setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: PemProblem,
    },
    /// The operating system has no certificates of authorities.
    #[error(
        "the system has no CA certificates ({reason}); install them (the package ca-certificates), or name a PEM file in ssl.ca.location"
    )]
    NoSystemTrust {
        /// What the search for them says.
        reason: String,
    },
    /// Certificate and key do not go together.
    #[error("ssl.certificate.location, ssl.key.location: {} and {} cannot be used together: {reason}", certificate.display(), key.display())]
    Identity {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The server name is none.
    #[error("ssl.server.name: {name:?} is neither a host name nor an IP address")]
    ServerName {
        /// What it is.
        name: String,
    },
    /// rustls refuses the rest.
    #[error("TLS cannot be set up: {reason}")]
    Setup {
        /// Its words.
        reason: String,
    },
}

/// What is wrong with the contents of a PEM file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemProblem {
    /// It is larger than anything of its kind.
    #[error("is larger than 8 MiB; that is no PEM file of certificates or keys")]
    TooLarge,
    /// It is a Java keystore.
    #[error(
        "is a Java keystore, not PEM; export what is in it, such as with `keytool -exportcert -rfc -alias ALIAS -keystore FILE` for a certificate, or `openssl pkcs12 -in FILE -nodes` for a PKCS#12 keystore"
    )]
    Keystore,
    /// It is DER.
    #[error(
        "is binary (DER or PKCS#12), not PEM; convert it with `openssl x509 -inform der`, `openssl pkey -inform der` or `openssl pkcs12 -nodes`"
    )]
    Der,
    /// Nothing in it is what is looked for.
    #[error("holds no {wanted} in PEM form (-----BEGIN {wanted}-----)")]
    Missing {
        /// `CERTIFICATE` or `PRIVATE KEY`.
        wanted: &'static str,
    },
    /// The key is encrypted.
    #[error(
        "holds an encrypted key, and ssl.key.password is not supported; write it without a password (`openssl pkey -in FILE -out PLAIN`) into a file that only this user can read"
    )]
    Encrypted,
    /// It is cut or damaged.
    #[error("is damaged: {reason}")]
    Damaged {
        /// How.
        reason: String,
    },
}

/// The certificates in a PEM file, in order.
pub(crate) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemProblem> {
    let mut certificates = Vec::new();
    for section in sections(bytes)? {
        if let (SectionKind::Certificate, der) = section {
            certificates.push(CertificateDer::from(der));
        }
    }
    if certificates.is_empty() { Err(PemProblem::Missing { wanted: "CERTIFICATE" }) } else { Ok(certificates) }
}

/// The first private key in a PEM file.
pub(crate) fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, PemProblem> {
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    // PKCS#8's form of it, and the older one with its header `Proc-Type: 4,ENCRYPTED` (RFC 1421).
    if contains(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(b"4,ENCRYPTED") {
        return Err(PemProblem::Encrypted);
    }
    for section in sections(bytes)? {
        match section {
            (SectionKind::PrivateKey, der) => return Ok(PrivatePkcs8KeyDer::from(der).into()),
            (SectionKind::RsaPrivateKey, der) => return Ok(PrivatePkcs1KeyDer::from(der).into()),
            (SectionKind::EcPrivateKey, der) => return Ok(PrivateSec1KeyDer::from(der).into()),
            _ => {}
        }
    }
    Err(PemProblem::Missing { wanted: "PRIVATE KEY" })
}

fn sections(bytes: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, PemProblem> {
    match bytes {
        [0xfe, 0xed, 0xfe, 0xed, ..] => return Err(PemProblem::Keystore),
        // A SEQUENCE longer than 127 bytes.
        [0x30, 0x81..=0x84, ..] => return Err(PemProblem::Der),
        _ => {}
    }
    SliceIter::new(bytes).collect::<Result<_, pem::Error>>().map_err(|error| {
        // Not its `Debug`: the text of a line may be part of a key.
        let reason = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no end",
            pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
            pem::Error::Base64Decode(_) => "what stands between BEGIN and END is not base64",
            _ => "it cannot be read as PEM",
        };
        PemProblem::Damaged { reason: reason.to_owned() }
    })
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsSettingError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_PEM + 1).read_to_end(&mut bytes));
    read.map_err(|source| TlsSettingError::Read { setting, path: path.to_owned(), source: Arc::new(source) })?;
    if bytes.len() as u64 > LARGEST_PEM {
        return Err(TlsSettingError::Pem { setting, path: path.to_owned(), problem: PemProblem::TooLarge });
    }
    Ok(bytes)
}

impl Trust {
    /// The certificates themselves. `setting` names the setting that names the file.
    pub(crate) fn certificates(&self, setting: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsSettingError> {
        match self {
            Self::PemFile(path) => certificates(&read(setting, path)?).map_err(|problem| TlsSettingError::Pem {
                setting,
                path: path.clone(),
                problem,
            }),
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
                    return Err(TlsSettingError::NoSystemTrust { reason });
                }
                Ok(found.certs)
            }
        }
    }

    fn roots(&self, setting: &'static str) -> Result<RootCertStore, TlsSettingError> {
        let mut roots = RootCertStore::empty();
        for (at, certificate) in self.certificates(setting)?.into_iter().enumerate() {
            match (roots.add(certificate), self) {
                (Ok(()), _) => {}
                // A system may have one that is too old to be parsed; the others stand.
                (Err(_), Self::System) => {}
                (Err(error), Self::PemFile(path)) => {
                    let reason = format!("certificate {} cannot be parsed: {error}", at + 1);
                    let problem = PemProblem::Damaged { reason };
                    return Err(TlsSettingError::Pem { setting, path: path.clone(), problem });
                }
            }
        }
        Ok(roots)
    }

    /// What an HTTPS client needs.
    pub(crate) fn https(&self, setting: &'static str) -> Result<rustls::ClientConfig, TlsSettingError> {
        let roots = self.roots(setting)?;
        Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, TlsSettingError> {
    rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(setup)
}

fn setup(error: impl std::fmt::Display) -> TlsSettingError {
    TlsSettingError::Setup { reason: error.to_string() }
}

impl TlsSettings {
    /// Reads the files and makes what connections to brokers need.
    pub(crate) fn brokers(&self) -> Result<rustls::ClientConfig, TlsSettingError> {
        let roots = Arc::new(self.trust.roots("ssl.ca.location")?);
        self.name()?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(setup)?;
        let verifier: Arc<dyn ServerCertVerifier> =
            if self.check_name { verifier } else { Arc::new(AnyName { chain: verifier }) };
        // Not as dangerous as the name says: the chain of signatures is checked either way.
        let builder = builder()?.dangerous().with_custom_certificate_verifier(verifier);
        let Some(TlsIdentity { certificate, key }) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(&read("ssl.certificate.location", certificate)?).map_err(|problem| {
            TlsSettingError::Pem { setting: "ssl.certificate.location", path: certificate.clone(), problem }
        })?;
        let private = private_key(&read("ssl.key.location", key)?).map_err(|problem| TlsSettingError::Pem {
            setting: "ssl.key.location",
            path: key.clone(),
            problem,
        })?;
        builder.with_client_auth_cert(chain, private).map_err(|error| {
            let reason = match error {
                rustls::Error::InconsistentKeys(_) => "the key is not that of the (first) certificate".to_owned(),
                error => error.to_string(),
            };
            TlsSettingError::Identity { certificate: certificate.clone(), key: key.clone(), reason }
        })
    }

    /// The name that every broker must have, if one is set.
    pub(crate) fn name(&self) -> Result<Option<ServerName<'static>>, TlsSettingError> {
        let Some(name) = &self.server_name else { return Ok(None) };
        match ServerName::try_from(name.clone()) {
            Ok(server_name) => Ok(Some(server_name)),
            Err(_) => Err(TlsSettingError::ServerName { name: name.clone() }),
        }
    }
}

/// Checks the chain of signatures, the times and the purpose, and not the name: what an empty
/// `ssl.endpoint.identification.algorithm` asks for.
#[derive(Debug)]
struct AnyName {
    chain: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};

        // rustls looks at the name after all else has been found good.
        match self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_are_found_among_other_sections_and_text() {
        let pem = format!(
            "subject=x\n{CERTIFICATE}-----BEGIN PRIVATE KEY-----\nAAEC\n-----END PRIVATE KEY-----\n{CERTIFICATE}"
        );
        assert_eq!(certificates(pem.as_bytes()).unwrap().len(), 2);
        assert_eq!(private_key(pem.as_bytes()).unwrap().secret_der(), [0, 1, 2]);
    }

    #[test]
    fn what_is_not_pem_is_called_what_it_is() {
        assert_eq!(certificates(b"\xfe\xed\xfe\xed\0\0"), Err(PemProblem::Keystore));
        assert_eq!(certificates(b"\x30\x82\x01\x02"), Err(PemProblem::Der));
        assert_eq!(certificates(b""), Err(PemProblem::Missing { wanted: "CERTIFICATE" }));
        assert_eq!(private_key(CERTIFICATE.as_bytes()).unwrap_err(), PemProblem::Missing { wanted: "PRIVATE KEY" });
        let cut = certificates(b"-----BEGIN CERTIFICATE-----\nAAEC\n").unwrap_err();
        assert!(cut.to_string().contains("no end"), "{cut}");
    }

    #[test]
    fn encrypted_keys_are_refused_by_name_and_with_the_command_that_helps() {
        for pem in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAEC\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAEC\n-----END RSA PRIVATE KEY-----\n",
        ] {
            let problem = private_key(pem.as_bytes()).unwrap_err();
            assert_eq!(problem, PemProblem::Encrypted);
            assert!(problem.to_string().contains("openssl pkey"), "{problem}");
        }
    }

    #[test]
    fn a_file_that_is_missing_is_named_with_its_setting() {
        let settings = TlsSettings { trust: Trust::PemFile("no/such.pem".into()), ..TlsSettings::default() };
        let error = settings.brokers().unwrap_err().to_string();
        assert!(error.contains("ssl.ca.location") && error.contains("no/such.pem"), "{error}");
    }

    #[test]
    fn a_server_name_that_is_none_is_refused() {
        let named = |name: &str| TlsSettings { server_name: Some(name.to_owned()), ..TlsSettings::default() };
        assert!(named("kafka.internal").name().unwrap().is_some());
        assert!(named("10.0.0.1").name().unwrap().is_some());
        assert!(named("a b").name().unwrap_err().to_string().contains("ssl.server.name"));
    }
}
