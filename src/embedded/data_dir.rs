//! The data folder: one `up` at a time, and the files that it provides for other processes.
//!
//! Guarantees that two `up` never work on one folder (an exclusive `flock`, which ends with its
//! process however that ends), that `env` is complete whenever it is visible, and that only its
//! owner can read it. No guarantees on a network file system without `flock`.
//!
//! Contents: `up.lock`, `pids` (`orphans.rs`), `env` while ready, `log/`, `postgres/`, `redis/`.
//! If the user that Postgres runs as has no access to root's folder, the last two are elsewhere,
//! and the file `services` contains their path.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::account::Account;
use super::error::{Error, Result, file};
use super::owned::{check_folder, check_path, open_own};
use super::print_progress;
use super::process::tied_command;

/// Attempts to lock the folder; `read_env` holds the lock for a moment.
const MAX_LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The data folder, locked until dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Folder of the services' data, and the account they run as.
#[derive(Debug, Clone)]
pub(super) struct ServicesDir {
    pub(super) path: PathBuf,
    pub(super) account: Option<Account>,
}

/// The addresses of a running `holdfast up`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningUp {
    /// In a format that psql and sqlx accept.
    pub database_url: String,
    /// In the format of redis-rs.
    pub redis_url: String,
    pub redlock_urls: Vec<String>,
    pub replicas: Vec<String>,
    pub lab: bool,
}

impl DataDir {
    /// Creates the folder if necessary and locks it; a second `up` reports `address`.
    pub(super) async fn open(path: &Path, address: &str) -> Result<Self> {
        let path = create_data_folder(path)?;
        let lock_path = path.join("up.lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock =
            open_own(&lock_path, &mut options).map_err(file("cannot open", &lock_path))?;
        lock_exclusively(&mut lock, &lock_path, &path).await?;
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}\n{address}", std::process::id()))
            .map_err(file("cannot write", &lock_path))?;
        create_folder(&path.join("log"), 0o700)?;
        check_folder(&path.join("log"))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join("log").join(format!("{name}.log"))
    }

    /// Finds or creates the folder of the services' data.
    pub(super) fn services_dir(&self) -> Result<ServicesDir> {
        if let Some(text) = read_if_exists(&self.path.join("services"))? {
            let external_path = PathBuf::from(text.trim());
            check_folder(&external_path)?;
            let account = Account::for_services(&external_path.join("postgres"))?;
            return prepare_services_dir(external_path, account);
        }
        let account = Account::for_services(&self.path.join("postgres"))?;
        let services_dir = prepare_services_dir(self.path.clone(), account)?;
        match &services_dir.account {
            Some(account) if !account.can_write_to(&self.path.join("redis"))? => {
                self.move_to_var_lib(account)
            }
            _ => Ok(services_dir),
        }
    }

    /// Places the services' data in `/var/lib`, and writes the path to the file `services`: for
    /// root with a data folder that is closed to others, e.g. in `/root`.
    fn move_to_var_lib(&self, account: &Account) -> Result<ServicesDir> {
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let path = PathBuf::from(format!("/var/lib/holdfast-{name}"));
        // It exists, but no `services` refers to it: its data folder was removed.
        if path.exists() {
            print_progress(&format!("removing {}: its data folder is gone", path.display()));
            fs::remove_dir_all(&path).map_err(file("cannot remove", &path))?;
        }
        for empty in ["postgres", "redis"] {
            let _ = fs::remove_dir(self.path.join(empty));
        }
        // Root's, so that the services' user can replace nothing in it that root trusts.
        create_folder(&path, 0o711)?;
        print_progress(&format!(
            "{} is closed to the user that Postgres runs as: its data is kept in {}",
            self.path.display(),
            path.display()
        ));
        write_private(&self.path.join("services"), &format!("{}\n", path.display()))?;
        prepare_services_dir(path, Some(account.clone()))
    }

    pub(super) fn write_env(&self, running: &RunningUp) -> Result<()> {
        let text = format!(
            "DATABASE_URL='{}'\nREDIS_URL='{}'\nREDLOCK_URLS='{}'\nHOLDFAST_REPLICAS='{}'\n\
             HOLDFAST_UP_LAB='{}'\n",
            running.database_url,
            running.redis_url,
            running.redlock_urls.join(","),
            running.replicas.join(","),
            // Not HOLDFAST_LAB: sourcing this file must not turn on the lab of another shop.
            if running.lab { "on" } else { "off" },
        );
        write_private(&self.path.join("env"), &text)
    }

    pub(super) fn remove_env(&self) {
        let _ = fs::remove_file(self.path.join("env"));
    }
}

/// Returns the addresses of the `up` of the current user that runs on this folder; `None` if none
/// is ready.
pub fn read_env(data: &Path) -> Option<RunningUp> {
    let open = |name| open_own(&data.join(name), OpenOptions::new().read(true)).ok();
    let lock = open("up.lock")?;
    // If the lock is free, `env` was left by a killed `up`.
    if !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    parse_env(&io::read_to_string(open("env")?).ok()?)
}

fn parse_env(text: &str) -> Option<RunningUp> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(line.strip_prefix('\'')?.strip_suffix('\'')?.to_owned())
    };
    Some(RunningUp {
        database_url: value("DATABASE_URL")?,
        redis_url: value("REDIS_URL")?,
        redlock_urls: split_list(&value("REDLOCK_URLS").unwrap_or_default()),
        replicas: split_list(&value("HOLDFAST_REPLICAS")?),
        lab: value("HOLDFAST_UP_LAB").is_none_or(|lab| lab == "on"),
    })
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

async fn lock_exclusively(lock: &mut File, lock_path: &Path, data: &Path) -> Result<()> {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY_DELAY).await,
            Err(TryLockError::Error(error)) => return Err(file("cannot lock", lock_path)(error)),
        }
    }
    let mut text = String::new();
    let read = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
    read.map_err(file("cannot read", lock_path))?;
    let mut lines = text.lines();
    let mut next = |otherwise: &str| lines.next().unwrap_or(otherwise).to_owned();
    let (pid, address) = (next("unknown"), next("address unknown"));
    Err(Error::AlreadyRunning { data: data.to_owned(), pid, address })
}

fn prepare_services_dir(path: PathBuf, account: Option<Account>) -> Result<ServicesDir> {
    create_folder(&path, 0o700)?;
    let services_dir = ServicesDir { path, account };
    services_dir.create("redis")?;
    Ok(services_dir)
}

impl ServicesDir {
    /// Returns the command of a service, which runs as the services' account in an environment that
    /// is the same on every machine: a `PGDATA` or a locale of the user must not reach it.
    pub(super) fn command(&self, program: &Path, death_signal: &str) -> Command {
        let mut command = tied_command(program, death_signal);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
        if let Some(account) = &self.account {
            // The standard library also drops the supplementary groups when root becomes a user.
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Creates the data folder of a service, if necessary.
    pub(super) fn create(&self, name: &str) -> Result<()> {
        let folder = self.path.join(name);
        create_folder(&folder, 0o700)?;
        match &self.account {
            Some(account) => account.chown(&folder),
            None => Ok(()),
        }
    }
}

/// Returns the text of a file; `None` if it does not exist.
pub(super) fn read_if_exists(path: &Path) -> Result<Option<String>> {
    match open_own(path, OpenOptions::new().read(true)).and_then(io::read_to_string) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file("cannot read", path)(error)),
    }
}

/// Creates a data folder, if necessary, and returns its path without symbolic links. Rejects a
/// folder of another user. As root, the services' user must be able to traverse it.
pub(super) fn create_data_folder(path: &Path) -> Result<PathBuf> {
    check_path(path)?;
    create_folder(path, if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 })?;
    let path = fs::canonicalize(path).map_err(file("cannot find", path))?;
    check_folder(&path)?;
    Ok(path)
}

/// Creates a folder with this mode; an existing folder keeps its own.
fn create_folder(path: &Path, mode: u32) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(file("cannot make the folder", path))
}

/// Writes a file that only its owner can read, atomically.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, path))
        .map_err(file("cannot write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_file_is_parsed() {
        let text = "DATABASE_URL='postgres:///holdfast?host=/tmp/x&port=5432'\n\
                    REDIS_URL='redis+unix:///tmp/x/redis.sock'\n\
                    HOLDFAST_REPLICAS='http://127.0.0.1:1,http://127.0.0.1:2'\n\
                    HOLDFAST_UP_LAB='off'\n";
        let read = parse_env(text).expect("it is whole");
        assert_eq!(read.database_url, "postgres:///holdfast?host=/tmp/x&port=5432");
        assert_eq!(read.redis_url, "redis+unix:///tmp/x/redis.sock");
        assert_eq!(read.replicas, ["http://127.0.0.1:1", "http://127.0.0.1:2"]);
        assert!(!read.lab);
        assert_eq!(parse_env("DATABASE_URL='x'\n"), None);
    }
}
