//! Opens the Redis that a setting names, with its certificates, and checks it. An error says which
//! setting to change. Tests: `tests/it/tls.rs`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use holdfast_lock::{Error, ProbeFailure, Redis};
use tokio::time::{Instant, sleep};

use holdfast_shop::tls::{self, SettingNames, UnusableCertificate};

#[derive(Debug, Clone, Default, Args)]
pub struct RedisTlsArgs {
    /// File with the authorities (PEM) that sign the certificates of Redis, beside those of the
    /// system
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_CA")]
    pub redis_ca: Option<String>,
    /// File with the client certificate (PEM) for a Redis that requires one
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_CERT")]
    pub redis_cert: Option<String>,
    /// File with the private key (PEM) of the client certificate
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_KEY")]
    pub redis_key: Option<String>,
}

const SETTINGS: SettingNames = SettingNames {
    address: "REDIS_URL",
    authorities: "HOLDFAST_REDIS_CA",
    chain: "HOLDFAST_REDIS_CERT",
    key: "HOLDFAST_REDIS_KEY",
};

/// Time for which a refusal is no failure yet: Redis may be loading its data, or its users.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);

/// Opens a connection, which is established with the first command.
pub fn open(url: &str, certificates: &RedisTlsArgs) -> anyhow::Result<Redis> {
    let RedisTlsArgs { redis_ca, redis_cert, redis_key } = certificates;
    let authorities = read(SETTINGS.authorities, redis_ca.as_deref())?;
    let chain = read(SETTINGS.chain, redis_cert.as_deref())?;
    let key = read(SETTINGS.key, redis_key.as_deref())?;
    let settings = tls::parse(&SETTINGS, authorities.as_deref(), chain.as_deref(), key.as_deref())?;
    Redis::open_with_tls(url, &settings)
        .context("the address of Redis (REDIS_URL, REDLOCK_URLS) can't be used")
}

/// Reads a file; an empty name is none.
fn read(setting: &str, file: Option<&str>) -> Result<Option<Vec<u8>>, UnusableCertificate> {
    let file = file.filter(|file| !file.is_empty());
    file.map(|file| tls::read(setting, Path::new(file))).transpose()
}

/// Fails if `probe`, which does what a lock does, finds that Redis does not respond, or refuses it
/// for ten seconds.
pub(crate) async fn check_locks(
    probe: impl AsyncFn() -> Result<(), ProbeFailure>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut is_first = true;
    loop {
        let error = match probe().await {
            Ok(()) => return Ok(()),
            Err(ProbeFailure::Locks(error)) => error,
            // Locks work, and their waiters poll: slow, but safe.
            Err(failure @ ProbeFailure::Messages(_)) => {
                tracing::warn!("{failure}. docs/SECURITY.md has the permissions to give");
                return Ok(());
            }
        };

        // A Redis that does not respond is not waited for: its address may be wrong.
        if error.refusal().is_none() || Instant::now() >= deadline {
            return Err(explain(&error));
        }

        if std::mem::take(&mut is_first) {
            tracing::warn!("{error}. Repeated for {PATIENCE:?}");
        }
        sleep(PAUSE).await;
    }
}

/// Fails if Redis does not respond, or evicts keys when it is full.
pub(crate) async fn check_eviction_policy(redis: &Redis) -> anyhow::Result<()> {
    let policy = redis.eviction_policy().await.map_err(|error| explain(&error.into()))?;
    match policy.as_deref() {
        None => tracing::warn!("Redis does not report its maxmemory-policy; it must be noeviction"),
        Some("noeviction") => {}
        Some(policy) => bail!(
            "Redis runs with maxmemory-policy {policy}: when it is full it removes locks that are \
             held. Set it to noeviction"
        ),
    }
    Ok(())
}

fn explain(error: &Error) -> anyhow::Error {
    let (Error::Unavailable(cause) | Error::Refused(cause) | Error::InvalidAddress(cause)) = error
    else {
        return error.clone().into();
    };

    if let Some(refusal) = cause.refusal() {
        let advice = refusal.advice();
        let acl = match refusal.code() {
            "NOPERM" => "; docs/SECURITY.md has the line for the ACL",
            _ => "",
        };
        return anyhow::anyhow!(
            "Redis (REDIS_URL) refuses what a lock needs: {refusal} ({cause}). What to do: \
             {advice}{acl}"
        );
    }

    let Some(failure) = cause.tls_failure() else {
        return anyhow::Error::from(cause.clone()).context(
            "Redis does not answer. Is it running, and is REDIS_URL right? It begins with rediss \
             if the server requires TLS, and only then",
        );
    };

    let advice = tls::advice(failure, &SETTINGS);
    anyhow::anyhow!("can't connect to Redis with TLS: {cause}. {advice}")
}

pub fn warn_of_plain_text<'a>(servers: impl IntoIterator<Item = &'a Redis>) {
    if servers.into_iter().any(Redis::is_plain_text_on_network) {
        tracing::warn!(
            "the connection to Redis is not encrypted: who can read or change the network can read \
             and set locks. Use addresses that begin with rediss in REDIS_URL and REDLOCK_URLS"
        );
    }
}
