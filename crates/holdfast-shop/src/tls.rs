//! Reads the certificates for connections with TLS, and says what to change when one fails. Tests:
//! `tests/it/tls.rs`.

use std::path::Path;

use holdfast_lock::{Error as LockError, TlsFailure, TlsSettings};

#[derive(Debug, Clone, Copy)]
pub struct SettingNames {
    pub address: &'static str,
    pub authorities: &'static str,
    pub chain: &'static str,
    pub key: &'static str,
}

#[derive(Debug, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct UnusableCertificate {
    setting: String,
    why: String,
}

pub fn read(setting: &str, file: &Path) -> Result<Vec<u8>, UnusableCertificate> {
    std::fs::read(file).map_err(|error| {
        let why = format!("can't read {}: {error}", file.display());
        UnusableCertificate { setting: setting.to_owned(), why }
    })
}

pub fn parse(
    names: &SettingNames,
    authorities: Option<&[u8]>,
    chain: Option<&[u8]>,
    key: Option<&[u8]>,
) -> Result<TlsSettings, UnusableCertificate> {
    let mut settings = TlsSettings::default();
    if let Some(pem) = authorities {
        settings =
            settings.with_authorities(pem).map_err(|error| unusable(names.authorities, error))?;
    }

    let both = format!("{} and {}", names.chain, names.key);
    match (chain, key) {
        (None, None) => Ok(settings),
        (Some(chain), Some(key)) => {
            settings.with_client_certificate(chain, key).map_err(|error| unusable(&both, error))
        }
        _ => {
            let why = "a client certificate needs both, or neither is set";
            Err(unusable(&both, LockError::InvalidSettings(why)))
        }
    }
}

fn unusable(setting: &str, error: LockError) -> UnusableCertificate {
    let why = match error {
        // Without the words “invalid settings”, which would not be the user's.
        LockError::InvalidSettings(why) => why.to_owned(),
        error => error.to_string(),
    };
    UnusableCertificate { setting: setting.to_owned(), why }
}

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
