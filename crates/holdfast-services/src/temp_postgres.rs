//! A temporary Postgres, for work that must not touch the shop's. It has no network, and asks every
//! client for a password, so that a proxy may make its socket reachable. If this process is killed,
//! it ends, too (on Linux); its folder remains. Root, whom a link there could lead anywhere, writes
//! nothing in a folder of the services' account.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection as _};

use super::account::Account;
use super::owned::file;
use super::process::ServerProcess;
use super::programs::Programs;
use super::services_dir::ServicesDir;
use super::{postgres, sockets};

/// Rules for all connections until the password is set: only root and the account reach the socket.
const OPEN_ACCESS: &str = "local all all trust\n";
/// Rules for all connections once it is.
const ACCESS: &str = "local all all scram-sha-256\n";
/// Name of the folder of its socket.
const SOCKETS: &str = "sockets";
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct TempPostgres {
    pub password: String,
    process: ServerProcess,
    sockets: PathBuf,
    /// Its `pg_hba.conf`.
    pub access_rules: PathBuf,
}

/// The folders of a temporary Postgres, removed with this value. Drop it when no process of
/// Postgres runs any more: a start that was given up leaves some.
#[derive(Debug)]
pub struct TempFolder {
    /// The current user's, in which those of the cluster and of its socket are the account's.
    services_dir: ServicesDir,
    sockets: PathBuf,
    /// The current user's alone.
    own: PathBuf,
}

impl TempFolder {
    pub fn create() -> anyhow::Result<Self> {
        let account = Account::for_services(&PathBuf::from("/nonexistent"))?;
        let own = sockets::create(None)?;
        let path = sockets::create_with(0o711).inspect_err(|_| sockets::remove(&own))?;
        let sockets = path.join(SOCKETS);

        // Before anything else can fail: it removes them.
        let folder = Self { services_dir: ServicesDir::new(path, account), sockets, own };
        folder.services_dir.create(SOCKETS)?;
        Ok(folder)
    }

    /// Returns the path of a file which the account of the services cannot place: to root's writes,
    /// a link there would lead anywhere.
    pub fn own_file(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        sockets::remove(&self.own);
        sockets::remove(&self.services_dir.path);
    }
}

impl TempPostgres {
    /// Creates an empty cluster with a database `holdfast`, and waits until it answers. Must be
    /// called from the main thread, with which it ends.
    pub async fn start(folder: &TempFolder) -> anyhow::Result<Self> {
        let TempFolder { services_dir, sockets, .. } = folder;
        let programs = Programs::find(services_dir).await?;

        let options = ["--no-sync"];
        let cluster = postgres::create_cluster(&programs.initdb, services_dir, &options).await?;
        let access_rules = services_dir.path.join("pg_hba.conf");
        write_readable(&access_rules, OPEN_ACCESS)?;
        let hba_file = format!("hba_file={}", access_rules.display());
        let mut spec = postgres::spec(&programs.postgres, &cluster, services_dir, sockets)?;
        // Of two values the last one applies. Nothing is to survive a crash, so it does not sync.
        for setting in ["fsync=off", "shared_buffers=64MB", "max_wal_size=128MB", &hba_file] {
            spec.command.args(["-c", setting]);
        }

        let log = services_dir.path.join("postgres.log");
        let mut process = ServerProcess::start(&mut spec.command, &log)?;
        let ready = process.wait_ready("a temporary Postgres", postgres::START_TIMEOUT, || {
            postgres::check_ready(sockets)
        });
        ready.await?;
        postgres::create_database(sockets).await?;

        // In this order: without a password no session could be opened under the new rule.
        let password = format!("{:032x}", rand::random::<u128>());
        let mut connection = postgres::connect(&postgres::url(sockets, "postgres")).await?;
        let set = format!("alter role holdfast password '{password}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await?;
        write_readable(&access_rules, ACCESS)?;
        sqlx::query("select pg_reload_conf()").execute(&mut connection).await?;
        connection.close().await?;
        Ok(Self { password, process, sockets: sockets.clone(), access_rules })
    }

    /// Returns its socket, to which a proxy can forward.
    pub fn socket(&self) -> PathBuf {
        sockets::postgres(&self.sockets)
    }

    pub fn url(&self) -> String {
        self.url_of("holdfast")
    }

    /// Returns the URL of another database.
    pub fn url_of(&self, database: &str) -> String {
        format!("{}&password={}", postgres::url(&self.sockets, database), self.password)
    }

    /// Creates another database; `name` is an identifier.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<()> {
        let mut connection = postgres::connect(&self.url()).await?;
        let create = AssertSqlSafe(format!("create database {name}"));
        sqlx::raw_sql(create).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.child.id()
    }

    /// Ends it without a checkpoint: nothing of it is kept.
    pub async fn stop(mut self) {
        self.process.end(Signal::QUIT, STOP_TIMEOUT).await;
    }
}

/// Writes a file that the services can read under any umask.
fn write_readable(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)))
        .map_err(file("cannot write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// Returns the files and folders that the current user has in folders of another one.
    fn own_files_in_reach_of_others(folder: &Path) -> Vec<PathBuf> {
        let me = rustix::process::geteuid().as_raw();
        let owner = |path: &Path| fs::symlink_metadata(path).expect("it exists").uid();
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("it can be read").path();
            if owner(folder) != me && owner(&path) == me {
                found.push(path.clone());
            }
            if path.is_dir() && !path.is_symlink() {
                found.extend(own_files_in_reach_of_others(&path));
            }
        }
        found
    }

    /// As root, who would follow a link that the account of the services has placed there.
    #[tokio::test]
    async fn nothing_is_written_in_folders_of_the_account() {
        let folder = TempFolder::create().expect("folders");
        let postgres = TempPostgres::start(&folder).await.expect("it starts");
        let in_reach = own_files_in_reach_of_others(&folder.services_dir.path);
        assert_eq!(in_reach, Vec::<PathBuf>::new());

        // Its rules are those that were written: no session without the password.
        let without = postgres.url().replace(&postgres.password, "wrong");
        postgres::connect(&without).await.expect_err("it is wrong");
        let connection = postgres::connect(&postgres.url()).await.expect("it is right");
        connection.close().await.expect("it ends");
        postgres.stop().await;
    }

    /// As root, who would follow a link that the account of the services has placed.
    #[test]
    fn own_file_is_in_own_folder() {
        let folder = TempFolder::create().expect("folders");
        let clock = folder.own_file("clock");
        fs::write(&clock, "").expect("it is ours");
        let meta = fs::metadata(clock.parent().expect("a folder")).expect("it exists");
        assert_eq!(meta.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(meta.mode() & 0o77, 0);
        drop(folder);
        assert!(!clock.exists());
    }
}
