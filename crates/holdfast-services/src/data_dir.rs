//! The data folder: one `up` at a time (an exclusive `flock`, which ends with its process however
//! that ends), and the files that it provides for other processes. Contents: `up.lock`, `id`
//! (`identity.rs`), `pids` (`orphans.rs`), `env` while ready, `log/`, and `services.lock`,
//! `postgres/` and `redis/` unless they are elsewhere (`services_dir.rs`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use anyhow::{Result, bail};

use super::owned::{
    check_folder, create_data_folder, create_folder, file, open_own, read_if_exists, try_lock,
    write_private,
};

/// Attempts to lock the folder; `read_env` holds the lock for a moment.
const MAX_LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct DataDir {
    pub(super) path: PathBuf,
    _lock: File,
}

/// The addresses of a running `holdfast up`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningUp {
    pub database_url: String,
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
        let mut lock = lock_exclusively(&lock_path, &path).await?;
        // In place: a file that is renamed into it would be another one, which is not locked.
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}\n{address}\n{}", process::id(), pid_namespace()))
            .map_err(file("cannot write", &lock_path))?;

        create_folder(&path.join("log"), 0o700)?;
        check_folder(&path.join("log"))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join("log").join(format!("{name}.log"))
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
        write_private(&self.path.join("env"), text.as_bytes())
    }

    pub(super) fn remove_env(&self) {
        // One that can't be removed means nothing: the lock beside it is free.
        let _ = fs::remove_file(self.path.join("env"));
    }
}

/// Returns the addresses of the `up` of the current user that runs on this folder; `None` if none
/// is ready.
pub fn read_env(data: &Path) -> Option<RunningUp> {
    let lock = open_own(&data.join("up.lock"), OpenOptions::new().read(true)).ok()?;
    // If the lock is free, `env` was left by a killed `up`.
    if !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }

    let env = open_own(&data.join("env"), OpenOptions::new().read(true)).ok()?;
    parse_env(&io::read_to_string(env).ok()?)
}

fn parse_env(text: &str) -> Option<RunningUp> {
    Some(RunningUp {
        database_url: value_of("DATABASE_URL", text)?.to_owned(),
        redis_url: value_of("REDIS_URL", text)?.to_owned(),
        redlock_urls: split_list(value_of("REDLOCK_URLS", text)?),
        replicas: split_list(value_of("HOLDFAST_REPLICAS", text)?),
        lab: value_of("HOLDFAST_UP_LAB", text)? == "on",
    })
}

fn value_of<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    value.strip_prefix('\'')?.strip_suffix('\'')
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

async fn lock_exclusively(lock_path: &Path, data: &Path) -> Result<File> {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        if let Some(lock) = try_lock(lock_path)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_RETRY_DELAY).await;
    }

    let contents = read_if_exists(lock_path)?.unwrap_or_default();
    let holder = String::from_utf8_lossy(&contents);
    let mut holder = holder.lines();
    let pid = holder.next().unwrap_or("unknown");
    let address = holder.next().unwrap_or("address unknown");
    if holder.next().is_some_and(|namespace| namespace != pid_namespace()) {
        bail!(
            "Holdfast is already running on {} in another container, which has the same volume. \
             Use that one, stop it with `docker stop`, or give this one a volume of its own",
            data.display()
        );
    }

    bail!(
        "Holdfast is already running on {} (pid {pid}, {address}). Use that one, stop it with \
         `kill {pid}`, or give this one a folder and a port of its own: --data FOLDER --listen \
         127.0.0.1:PORT",
        data.display()
    )
}

/// Names the namespace in which this process's pid has a meaning; empty where there is only one.
fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_file_is_parsed() {
        let text = "DATABASE_URL='postgres:///holdfast?host=/tmp/x&port=5432'\n\
                    REDIS_URL='redis+unix:///tmp/x/redis.sock'\n\
                    REDLOCK_URLS=''\n\
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
