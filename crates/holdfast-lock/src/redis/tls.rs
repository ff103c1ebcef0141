//! Certificates of TLS connections, and the causes of their failures.
//!
//! Guarantees: a server is trusted only with a certificate for its host name that is valid now and
//! signed by an authority of the system or of the settings. Certificates are read once: a renewed
//! one takes effect with the next [`crate::Redis`].

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::{Client, ClientTlsConfig, ConnectionAddr, RedisError, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use crate::Error;

/// The certificates of TLS connections; by default the authorities of the system.
#[derive(Clone, Default)]
pub struct TlsSettings {
    authorities: Vec<CertificateDer<'static>>,
    client: Option<ClientTlsConfig>,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// Trusts the authorities in `pem`, beside those of the system. Fails without a valid one.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, Error> {
        let certificates = read_certificates(pem)?;
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            store
                .add(certificate.clone())
                .map_err(|_| Error::InvalidSettings("a certificate is not one of an authority"))?;
        }
        self.authorities.extend(certificates);
        Ok(self)
    }

    /// Presents a certificate, with the chain that follows it, to servers that require one. Fails
    /// if one of them cannot be parsed as PEM, or the key is for another certificate.
    pub fn with_client_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let certificates = read_certificates(chain)?;
        let private_key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| Error::InvalidSettings("there is no private key in PEM"))?;

        // Built only to compare the two; redis-rs would accept any pair, and fail to connect.
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                let config = config.with_root_certificates(RootCertStore::empty());
                config.with_client_auth_cert(certificates, private_key)
            })
            .map_err(|_| Error::InvalidSettings("the key does not belong to the certificate"))?;
        self.client =
            Some(ClientTlsConfig { client_cert: chain.to_owned(), client_key: key.to_owned() });
        Ok(self)
    }

    pub(super) fn is_default(&self) -> bool {
        self.authorities.is_empty() && self.client.is_none()
    }

    /// Returns an address with the parameters of TLS. redis-rs would read the system's authorities
    /// for each connection, and only without others.
    pub(super) fn template(&self) -> Result<ConnectionAddr, RedisError> {
        // redis-rs uses the provider of the process, and panics if there is none to choose.
        if CryptoProvider::get_default().is_none() {
            let _ = ring::default_provider().install_default();
        }

        let mut pem = String::new();
        let mut store = RootCertStore::empty();
        for certificate in system_authorities().into_iter().chain(self.authorities.clone()) {
            let encoded = STANDARD.encode(&certificate);
            // The system may have certificates that rustls does not support.
            if store.add(certificate).is_ok() {
                pem +=
                    &format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
            }
        }

        let certificates =
            TlsCertificates { client_tls: self.client.clone(), root_cert: Some(pem.into_bytes()) };
        let client = Client::build_with_tls("rediss://template", certificates)?;
        Ok(client.get_connection_info().addr().clone())
    }
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(Error::InvalidSettings("there is no certificate in PEM")),
    }
}

fn system_authorities() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "some certificates of the system can't be read");
    }
    found.certs
}

/// The cause of a failed TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum TlsFailure {
    #[error("no trusted authority has signed the server's certificate")]
    UnknownAuthority,
    #[error("the server's certificate is for another host name")]
    WrongName,
    #[error("the server's certificate has expired or is not valid yet")]
    Expired,
    #[error("the server requires a client certificate")]
    ClientCertificateMissing,
    #[error("the server does not accept the client certificate")]
    ClientCertificateRejected,
    #[error("the server does not respond with TLS")]
    PlainText,
    #[error("the TLS connection failed")]
    Other,
}

impl TlsFailure {
    /// Finds a failure of TLS among the causes of an error of a client that uses rustls.
    #[doc(hidden)]
    #[must_use]
    pub fn find(error: &(dyn StdError + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(Self::classify(error));
        }

        // Both have the source of the error that they contain, not that error.
        if let Some(shared) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
            return Self::find(&**shared);
        }
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return Self::find(inner);
        }
        Self::find(error.source()?)
    }

    fn classify(error: &rustls::Error) -> Self {
        use AlertDescription as Alert;
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
            NotValidYet, NotValidYetContext, UnknownIssuer,
        };

        match error {
            rustls::Error::InvalidCertificate(cause) => match cause {
                // The second one: a trusted authority has the same name, but another key.
                UnknownIssuer | BadSignature => Self::UnknownAuthority,
                NotValidForName | NotValidForNameContext { .. } => Self::WrongName,
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
                    Self::Expired
                }
                _ => Self::Other,
            },
            rustls::Error::AlertReceived(Alert::CertificateRequired) => {
                Self::ClientCertificateMissing
            }
            rustls::Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied,
            ) => Self::ClientCertificateRejected,
            rustls::Error::InvalidMessage(_) => Self::PlainText,
            _ => Self::Other,
        }
    }
}
