//! TLS to Postgres: checks the certificates that `DATABASE_URL` names, and explains failures.
//!
//! Guarantees: with `sslrootcert`, the server is verified also where `sslmode` is `require`, as in
//! libpq, or `prefer`. The files are read again for each connection, so that renewed ones take
//! effect. Tests: `tests/it/tls.rs`.

use std::net::IpAddr;
use std::path::Path;

use futures_util::FutureExt as _;
use holdfast_lock::TlsFailure;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::address;
use super::error::Error;
use super::pool::Pool;
use crate::tls::{self, SettingNames, UnusableCertificate};

const SETTINGS: SettingNames = SettingNames {
    address: "DATABASE_URL",
    authorities: "sslrootcert in DATABASE_URL",
    chain: "sslcert in DATABASE_URL",
    key: "sslkey in DATABASE_URL",
};

/// Checks the certificates of the URL, or of libpq's variables; sqlx would report an unreadable one
/// without its name, and accept a file without any.
pub(super) fn check_certificates(
    url: &str,
    options: PgConnectOptions,
) -> Result<PgConnectOptions, UnusableCertificate> {
    let mode = options.get_ssl_mode();
    if is_plain(mode) {
        return Ok(options);
    }

    // All names that sqlx knows for a parameter.
    let authorities = parameter(url, &["sslrootcert", "ssl-root-cert", "ssl-ca"], "PGSSLROOTCERT");
    let authorities = read_or_inline(SETTINGS.authorities, authorities)?;
    let chain = parameter(url, &["sslcert", "ssl-cert"], "PGSSLCERT");
    let chain = read_or_inline(SETTINGS.chain, chain)?;
    let key = parameter(url, &["sslkey", "ssl-key"], "PGSSLKEY");
    let key = read_or_inline(SETTINGS.key, key)?;
    tls::parse(&SETTINGS, authorities.as_deref(), chain.as_deref(), key.as_deref())?;

    // sqlx would accept any certificate, although the user names who may sign it.
    if authorities.is_some() && matches!(mode, PgSslMode::Prefer | PgSslMode::Require) {
        return Ok(options.ssl_mode(PgSslMode::VerifyCa));
    }
    Ok(options)
}

/// Returns the last value of a parameter of the URL, or else that of libpq's variable.
fn parameter(url: &str, names: &[&str], variable: &str) -> Option<String> {
    let value = address::parameters(url).filter(|(name, _)| names.contains(&name.as_ref())).last();
    let value = value.map(|(_, value)| value.into_owned());
    // An empty variable is none, as everywhere.
    value.or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
}

/// Reads a file, unless the value itself is PEM, which sqlx accepts too.
fn read_or_inline(
    setting: &str,
    value: Option<String>,
) -> Result<Option<Vec<u8>>, UnusableCertificate> {
    let Some(value) = value else { return Ok(None) };
    if value.trim_start().starts_with("-----BEGIN") {
        return Ok(Some(value.into_bytes()));
    }
    tls::read(setting, Path::new(&value)).map(Some)
}

/// Returns whether connections of this mode never use TLS; sqlx never does for `allow`.
fn is_plain(mode: PgSslMode) -> bool {
    matches!(mode, PgSslMode::Disable | PgSslMode::Allow)
}

/// Explains the error of a connection attempt; `None` if TLS is not the cause.
pub(super) fn explain(error: &sqlx::Error) -> Option<Error> {
    if let Some(failure) = TlsFailure::find(error) {
        let advice = tls::advice(failure, &SETTINGS);
        return Some(Error::Tls { cause: format!("{failure} ({error})"), advice });
    }

    let advice = match error {
        sqlx::Error::Tls(_) => {
            "Set ssl = on at the server, or sslmode=disable in DATABASE_URL if nothing else can \
             read the network"
        }
        // These words are in English only.
        sqlx::Error::Database(refusal) if refusal.message().contains("client certificate") => {
            "Set sslcert and sslkey in DATABASE_URL"
        }
        _ => return None,
    };

    Some(Error::Tls { cause: error.to_string(), advice: advice.to_owned() })
}

pub async fn warn_of_plain_text(pool: &Pool) -> Result<(), Error> {
    if is_plain_text_on_network(pool).await? {
        tracing::warn!(
            "the connection to Postgres is not encrypted: who can read or change the network can \
             read and change everything in the database. Set sslmode=verify-full in DATABASE_URL"
        );
    }
    Ok(())
}

async fn is_plain_text_on_network(pool: &Pool) -> Result<bool, Error> {
    let options = pool.connect_options();
    let host = options.get_host().trim_matches(['[', ']']);
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    // A host that is a path is the folder of a socket.
    if options.get_socket().is_some() || host.starts_with('/') || host == "localhost" || is_loopback
    {
        return Ok(false);
    }

    let mode = options.get_ssl_mode();
    if !matches!(mode, PgSslMode::Prefer) {
        return Ok(is_plain(mode));
    }

    // The server decides.
    let query = "select not ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let read = pool.read(move |db| sqlx::query_scalar(query).fetch_one(db).boxed());
    Ok(read.await.map_err(|(_, error)| error)?.0)
}
