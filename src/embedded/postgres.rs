//! The private Postgres: a cluster that is created once, without password or network.
//!
//! Guarantees a cluster that is complete or absent (it is created under another name, then
//! renamed), with checksums, UTF-8 and durable commits: what a shop needs, and honest measurements.
//! Does not upgrade a cluster to another major version; is not tuned for a large machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{Connection, PgConnection};
use tokio::process::Command;
use tokio::time::timeout;

use super::data_dir::{ServicesDir, create_folder};
use super::error::{Error, Result, file, system};
use super::print_progress;
use super::spawner::{ChildEnvironment, ChildSpec, ShutdownPolicy, set_minimal_environment};

/// Timeout of a start; crash recovery after a kill under load takes seconds.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a connection attempt; a socket answers at once or not at all.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Grace period: INT closes all sessions and writes a checkpoint.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Sixteen replicas with sixteen connections each, and some for people, audits and tests.
const MAX_CONNECTIONS: u32 = 300;
/// Locales that sort by code point; macOS lacks the first.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// Returns the URL of a database, in a format that psql and sqlx accept.
pub(super) fn url(sockets: &Path, database: &str) -> String {
    // `sslmode` overrides a PGSSLMODE of the user: the socket has no TLS.
    format!(
        "postgres:///{database}?host={}&port=5432&user=holdfast&sslmode=disable",
        sockets.display()
    )
}

pub(super) async fn create_cluster(initdb: &Path, services_dir: &ServicesDir) -> Result<PathBuf> {
    let cluster = services_dir.path.join("postgres");
    if cluster.join("PG_VERSION").exists() {
        return Ok(cluster);
    }
    print_progress("making a Postgres cluster …");
    let new = services_dir.path.join("postgres.new");
    let mut failure = None;
    for locale in LOCALES {
        if new.exists() {
            fs::remove_dir_all(&new).map_err(file("cannot remove the half-made cluster", &new))?;
        }
        create_folder(&new, 0o700)?;
        if let Some(account) = &services_dir.account {
            account.chown(&new)?;
        }
        failure = run_initdb(initdb, &new, locale, services_dir).await?;
        if failure.is_none() {
            break;
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    fs::rename(&new, &cluster).map_err(file("cannot rename into place", &new))?;
    Ok(cluster)
}

/// Runs initdb. `Some` is a failure inside initdb, which another locale may avoid.
async fn run_initdb(
    initdb: &Path,
    folder: &Path,
    locale: &str,
    services_dir: &ServicesDir,
) -> Result<Option<Error>> {
    let mut command = Command::new(initdb);
    set_minimal_environment(&mut command);
    command
        .arg("--pgdata")
        .arg(folder)
        .args(["--username=holdfast", "--encoding=UTF8", "--data-checksums"])
        // Access is restricted by the mode of the sockets' folder; there is no other way in.
        .args(["--auth-local=trust", "--auth-host=reject"])
        .arg(format!("--locale={locale}"))
        .kill_on_drop(true)
        .process_group(0);
    if let Some(account) = &services_dir.account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(system("cannot run initdb"))?;
    if output.status.success() {
        return Ok(None);
    }
    let output_bytes = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_bytes).trim().to_owned();
    let status = output.status.to_string();
    Ok(Some(Error::Helper { what: "making the cluster with initdb", status, output: output_text }))
}

pub(super) fn spec(
    program: &Path,
    cluster: &Path,
    services_dir: &ServicesDir,
    sockets: &Path,
    log: PathBuf,
) -> ChildSpec {
    let settings = [
        "listen_addresses=".to_owned(),
        "port=5432".to_owned(),
        format!("unix_socket_directories={}", sockets.display()),
        "unix_socket_permissions=0700".to_owned(),
        format!("max_connections={MAX_CONNECTIONS}"),
        // Explicit, because all measurements of the lab depend on them.
        "fsync=on".to_owned(),
        "full_page_writes=on".to_owned(),
        "synchronous_commit=on".to_owned(),
        // Holds what a hot item writes in twenty seconds, so that the holder of its lock need not
        // write out a dirty page to read another. Memory is allocated on use.
        "shared_buffers=512MB".to_owned(),
        // The statements are short: compiling them costs more than running them.
        "jit=off".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        "log_line_prefix=%m [%p] %a ".to_owned(),
        "log_timezone=UTC".to_owned(),
        "timezone=UTC".to_owned(),
    ];
    let mut args = vec!["-D".into(), cluster.into()];
    args.extend(settings.iter().flat_map(|setting| ["-c".into(), setting.into()]));
    ChildSpec {
        name: "Postgres".to_owned(),
        role: "postgres".to_owned(),
        program: program.to_owned(),
        args,
        environment: ChildEnvironment::Minimal,
        account: services_dir.account.clone(),
        log,
        shutdown: ShutdownPolicy {
            signal: Signal::INT,
            signal_name: "INT",
            grace_period: GRACE_PERIOD,
            // Immediate shutdown: the next start recovers, as after a crash.
            escalation: Signal::QUIT,
        },
    }
}

pub(super) async fn check_ready(sockets: &Path) -> std::result::Result<(), String> {
    match timeout(ATTEMPT_TIMEOUT, connect(sockets)).await {
        Ok(Ok(connection)) => connection.close().await.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

pub(super) async fn create_database(sockets: &Path) -> Result<()> {
    let mut connection = connect(sockets).await?;
    let there = sqlx::query("select from pg_database where datname = 'holdfast'")
        .fetch_optional(&mut connection)
        .await?;
    if there.is_none() {
        sqlx::query("create database holdfast").execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

async fn connect(sockets: &Path) -> sqlx::Result<PgConnection> {
    PgConnection::connect(&url(sockets, "postgres")).await
}
