//! Reads the certificates for connections with TLS, and says what to change when one fails.
//!
//! Guarantees: an unusable file is reported with its name before anything connects.
//! Tests: `tests/it/tls.rs`.

use std::path::Path;

use holdfast_lock::{Error as LockError, TlsFailure, TlsSettings};

/// The names of the settings of one server, for messages.
#[derive(Debug, Clone, Copy)]
pub struct SettingNames {
    /// The address.
    pub address: &'static str,
    /// The file with the authorities that are trusted.
    pub authorities: &'static str,
    /// The file with the chain of the client certificate.
    pub chain: &'static str,
    /// The file with the private key of the client certificate.
    pub key: &'static str,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct UnusableCertificate {
    setting: String,
    why: String,
}

impl UnusableCertificate {
    fn new(setting: &str, error: LockError) -> Self {
        let why = match error {
            LockError::InvalidSettings(why) => why.to_owned(),
            error => error.to_string(),
        };
        Self { setting: setting.to_owned(), why }
    }
}

/// Reads the file that `setting` names.
pub fn read(setting: &str, file: &Path) -> Result<Vec<u8>, UnusableCertificate> {
    std::fs::read(file).map_err(|error| {
        let why = format!("can't read {}: {error}", file.display());
        UnusableCertificate { setting: setting.to_owned(), why }
    })
}

/// Parses the contents of the files.
pub fn parse(
    names: &SettingNames,
    authorities: Option<&[u8]>,
    chain: Option<&[u8]>,
    key: Option<&[u8]>,
) -> Result<TlsSettings, UnusableCertificate> {
    let mut settings = TlsSettings::default();
    if let Some(pem) = authorities {
        let unusable = |error| UnusableCertificate::new(names.authorities, error);
        settings = settings.with_authorities(pem).map_err(unusable)?;
    }
    let both = format!("{} and {}", names.chain, names.key);
    match (chain, key) {
        (None, None) => Ok(settings),
        (Some(chain), Some(key)) => settings
            .with_client_certificate(chain, key)
            .map_err(|error| UnusableCertificate::new(&both, error)),
        _ => {
            let why = "a client certificate needs both, or neither is set".to_owned();
            Err(UnusableCertificate { setting: both, why })
        }
    }
}

/// Returns what to do about a failed connection.
#[must_use]
pub fn advice(failure: TlsFailure, names: &SettingNames) -> String {
    let SettingNames { address, authorities, chain, key } = names;
    match failure {
        TlsFailure::UnknownAuthority => {
            format!("Set {authorities} to a file with the authority that signed it")
        }
        TlsFailure::WrongName => format!("Use a host in {address} that is in the certificate"),
        TlsFailure::Expired => "Renew it, or correct the clock of this machine".to_owned(),
        TlsFailure::ClientCertificateMissing => format!("Set {chain} and {key}"),
        TlsFailure::ClientCertificateRejected => {
            format!("Set {chain} and {key} to one that an authority of the server has signed")
        }
        TlsFailure::PlainText => format!("Check the port in {address}"),
        _ => "Check that the server supports TLS 1.2 or 1.3".to_owned(),
    }
}
