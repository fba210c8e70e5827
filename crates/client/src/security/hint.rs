//! What to do about a TLS handshake that failed. It is the first thing that goes wrong on a new cluster.

use std::error::Error;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// What to do about `error`, if it is rustls's or holds one of rustls's.
pub(crate) fn tls_hint(error: &(dyn Error + 'static)) -> Option<String> {
    find(error).and_then(hint)
}

/// The error of rustls inside `error`: tokio-rustls and hyper wrap it in an I/O error.
pub(crate) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    // An I/O error's `source` is that of the error inside it, not that error.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match inner {
        Some(inner) => find(inner),
        None => error.source().and_then(|source| find(source)),
    }
}

fn hint(error: &rustls::Error) -> Option<String> {
    let hint = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => {
                "nobody who is trusted signed the certificate: ssl.ca.location must name a PEM file with the CA that did \
                 (without it the system's CAs are trusted)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is made out to another name (its subjectAltName counts, not its CN): use that name in \
                 bootstrap.servers and the brokers' advertised.listeners, or set ssl.server.name, or an empty \
                 ssl.endpoint.identification.algorithm to check no name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired; renew it on the broker, and compare this machine's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet; compare this machine's clock"
            }
            CertificateError::Other(_) => {
                "if the certificate was made to be a CA, it cannot be a broker's: the broker needs one signed by it"
            }
            _ => return None,
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "the broker wants a client certificate: set ssl.certificate.location and ssl.key.location"
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied => {
                "the broker does not accept the client certificate: see ssl.certificate.location and the CAs that the \
                 broker trusts; a broker that wants one and got none may say so too"
            }
            AlertDescription::HandshakeFailure => {
                "the broker and this client have no cipher suite in common (TLS 1.2 or later is spoken), or the broker \
                 wants a client certificate: ssl.certificate.location and ssl.key.location"
            }
            AlertDescription::ProtocolVersion => "the broker speaks no TLS 1.2 or later",
            _ => return None,
        },
        rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => {
            "what answers does not speak TLS: use the broker's TLS port, or set security.protocol to PLAINTEXT or \
             SASL_PLAINTEXT"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_cause_is_found_inside_an_io_error() {
        let rustls = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let error = io::Error::new(io::ErrorKind::InvalidData, rustls);
        assert!(tls_hint(&error).unwrap().contains("ssl.certificate.location"));
        assert_eq!(tls_hint(&io::Error::from(io::ErrorKind::UnexpectedEof)), None);
    }
}
