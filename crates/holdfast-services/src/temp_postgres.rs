//! A temporary Postgres, for work that must not touch the shop's. It has no network, and asks every
//! client for a password, so that a proxy may make its socket reachable. If this process is killed,
//! it ends, too (on Linux); its folder remains.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::account::Account;
use super::process::Process;
use super::programs::Programs;
use super::services_dir::ServicesDir;
use super::{postgres, sockets};

/// Rules for all connections once the password is set.
const ACCESS: &str = "local all all scram-sha-256\n";
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct TempPostgres {
    pub password: String,
    process: Process,
    folder: PathBuf,
}

/// The folder of a temporary Postgres, and one of the current user; removed with this value. Drop
/// it when no process of Postgres runs any more: a start that was given up leaves some.
#[derive(Debug)]
pub struct TempFolder {
    services_dir: ServicesDir,
    own: PathBuf,
}

impl TempFolder {
    pub fn create() -> anyhow::Result<Self> {
        let account = Account::for_services(&PathBuf::from("/nonexistent"))?;
        let own = sockets::create(None)?;
        let path = sockets::create(account.as_ref()).inspect_err(|_| sockets::remove(&own))?;
        Ok(Self { services_dir: ServicesDir::new(path, account), own })
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
    pub async fn start(TempFolder { services_dir, .. }: &TempFolder) -> anyhow::Result<Self> {
        let folder = services_dir.path.clone();
        let programs = Programs::find(services_dir).await?;

        let options = ["--no-sync"];
        let cluster = postgres::create_cluster(&programs.initdb, services_dir, &options).await?;
        let mut spec = postgres::spec(&programs.postgres, &cluster, services_dir, &folder)?;
        // Of two values the last one applies. Nothing is to survive a crash, so it does not sync.
        for setting in ["fsync=off", "shared_buffers=64MB", "max_wal_size=128MB"] {
            spec.command.args(["-c", setting]);
        }

        let mut process = Process::start(&mut spec.command, &folder.join("postgres.log"))?;
        let ready = process.wait_ready("a temporary Postgres", postgres::START_TIMEOUT, || {
            postgres::check_ready(&folder)
        });
        ready.await?;
        postgres::create_database(&folder).await?;

        // In this order: without a password nobody could open a session under the new rule.
        let password = format!("{:032x}", rand::random::<u128>());
        let mut connection = PgConnection::connect(&postgres::url(&folder, "postgres")).await?;
        let set = format!("alter role holdfast password '{password}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await?;
        let access = cluster.join("pg_hba.conf");
        std::fs::write(&access, ACCESS).context("can't write pg_hba.conf")?;
        sqlx::query("select pg_reload_conf()").execute(&mut connection).await?;
        connection.close().await?;
        Ok(Self { password, process, folder })
    }

    /// Returns its socket, to which a proxy can forward.
    pub fn socket(&self) -> PathBuf {
        sockets::postgres(&self.folder)
    }

    pub fn url(&self) -> String {
        format!("{}&password={}", postgres::url(&self.folder, "holdfast"), self.password)
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.child.id()
    }

    /// Ends it without a checkpoint: nothing of it is kept.
    pub async fn stop(mut self) {
        self.process.end(Signal::QUIT, STOP_TIMEOUT).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

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
