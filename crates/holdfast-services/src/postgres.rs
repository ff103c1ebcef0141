//! The private Postgres, without password or network. Its cluster is complete or absent, as it is
//! created under another name and then renamed, and has checksums, UTF-8 and durable commits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::time::timeout;

use super::owned::{disk_full, file};
use super::process::ChildSpec;
use super::services_dir::ServicesDir;
use holdfast_base::output::print_progress;

/// Crash recovery after a kill under load takes seconds.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Grace period: INT closes all sessions and writes a checkpoint.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Fourteen replicas with sixteen connections each, and four more beside; and some for people.
pub const MAX_CONNECTIONS: u32 = 300;

/// Returns the URL of a database, in a format that psql and sqlx accept.
pub(super) fn url(sockets: &Path, database: &str) -> String {
    // `sslmode` overrides a PGSSLMODE of the user: the socket has no TLS.
    format!(
        "postgres:///{database}?host={}&port=5432&user=holdfast&sslmode=disable",
        sockets.display()
    )
}

/// Returns whether the folder has a cluster already.
pub(super) fn has_cluster(services_dir: &ServicesDir) -> bool {
    services_dir.path.join("postgres/PG_VERSION").exists()
}

pub(super) async fn create_cluster(
    initdb: &Path,
    services_dir: &ServicesDir,
    options: &[&str],
) -> Result<PathBuf> {
    let cluster = services_dir.path.join("postgres");
    if has_cluster(services_dir) {
        return Ok(cluster);
    }

    print_progress("creating a Postgres cluster …");
    let new = services_dir.path.join("postgres.new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(file("cannot remove the half-made cluster", &new))?;
    }
    services_dir.create("postgres.new")?;

    // KILL, as what it has made when `up` dies is of no use.
    let mut command = services_dir.command(initdb, "KILL")?;
    command
        .arg("--pgdata")
        .arg(&new)
        .args(["--username=holdfast", "--encoding=UTF8", "--locale=C", "--data-checksums"])
        // Access is restricted by the mode of the sockets' folder; there is no other way in.
        .args(["--auth-local=trust", "--auth-host=reject"])
        .args(options);

    let output = command.output().await.context("cannot run initdb")?;
    if !output.status.success() {
        let bytes = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&bytes);
        // The services run in the locale C.
        if text.contains("No space left on device") {
            return Err(disk_full(&new));
        }
        bail!("initdb failed ({}):\n{}", output.status, text.trim());
    }

    fs::rename(new, &cluster).map_err(file("cannot rename into place", &cluster))?;
    Ok(cluster)
}

pub(super) fn spec(
    program: &Path,
    cluster: &Path,
    services_dir: &ServicesDir,
    sockets: &Path,
) -> Result<ChildSpec> {
    let settings = [
        "listen_addresses=",
        "port=5432",
        &format!("unix_socket_directories={}", sockets.display()),
        "unix_socket_permissions=0700",
        &format!("max_connections={MAX_CONNECTIONS}"),
        // Explicit, because all measurements of the lab depend on them.
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
        // Holds what a hot item writes in twenty seconds, so that the holder of its lock need not
        // write out a dirty page to read another. Memory is allocated on use.
        "shared_buffers=512MB",
        // The statements are short: compiling them costs more than running them.
        "jit=off",
        "logging_collector=off",
        "log_destination=stderr",
        "log_line_prefix=%m [%p] %a ",
        "log_timezone=UTC",
        "timezone=UTC",
    ];

    let mut command = services_dir.command(program, "INT")?;
    command.arg("-D").arg(cluster);
    for setting in settings {
        command.args(["-c", setting]);
    }

    Ok(ChildSpec {
        name: "Postgres".to_owned(),
        role: "postgres".to_owned(),
        program: program.to_owned(),
        command,
        signal: Signal::INT,
        grace_period: GRACE_PERIOD,
        // Immediate shutdown: the next start recovers, as after a crash.
        escalation: Signal::QUIT,
    })
}

pub(super) async fn check_ready(sockets: &Path) -> Result<(), String> {
    // A session: while Postgres recovers, it accepts connections and refuses these.
    match timeout(ATTEMPT_TIMEOUT, connect(&url(sockets, "postgres"))).await {
        Ok(Ok(connection)) => connection.close().await.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no response".to_owned()),
    }
}

pub(super) async fn create_database(sockets: &Path) -> Result<()> {
    let mut connection = connect(&url(sockets, "postgres")).await?;
    let there = sqlx::query("select from pg_database where datname = 'holdfast'")
        .fetch_optional(&mut connection)
        .await?;
    if there.is_none() {
        sqlx::query("create database holdfast").execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

/// Connects. That a new database takes seconds on a busy machine is no warning.
pub(super) async fn connect(url: &str) -> sqlx::Result<PgConnection> {
    let options = url.parse::<PgConnectOptions>()?.disable_statement_logging();
    PgConnection::connect_with(&options).await
}
