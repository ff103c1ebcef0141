//! Finds `postgres` and `initdb`, both in one folder and of the major version that created the
//! cluster, and `redis-server` or `valkey-server`. `HOLDFAST_PROGRAMS_PATH` (a list like `PATH`)
//! replaces all the searched folders.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) postgres: PathBuf,
    pub(super) initdb: PathBuf,
    pub(super) redis: PathBuf,
}

impl Programs {
    pub(super) fn find(cluster: &Path) -> Result<Self> {
        let folder = postgres_folder(&search_paths(), cluster)?;
        let postgres = folder.join("postgres");
        Ok(Self { postgres, initdb: folder.join("initdb"), redis: redis()? })
    }
}

pub(super) fn redis() -> Result<PathBuf> {
    let programs = ["redis-server", "valkey-server"];
    find_program(&search_paths(), &programs).with_context(|| missing("redis-server", "redis"))
}

/// Returns Postgres' folder: of the version that created the cluster, or else the first found.
fn postgres_folder(search_paths: &[PathBuf], cluster: &Path) -> Result<PathBuf> {
    let mut found = search_paths
        .iter()
        .filter(|folder| is_program(&folder.join("postgres")) && is_program(&folder.join("initdb")))
        .peekable();
    let first = *found.peek().with_context(|| missing("postgres", "postgresql"))?;
    let Some(made_by) = cluster_version(cluster) else { return Ok(first.clone()) };

    let same = found.find(|folder| major_version(&folder.join("postgres")) == Some(made_by));
    let same = same.with_context(|| {
        format!(
            "{} was made by Postgres {made_by}, which is not installed. Install it, or start anew \
             with another folder: --data FOLDER",
            cluster.display()
        )
    })?;
    Ok(same.clone())
}

fn missing(program: &str, package: &str) -> String {
    format!(
        "{program} is not installed. Install the package `{package}`, as your system calls it, or \
         start Holdfast with script/server, which does that"
    )
}

fn search_paths() -> Vec<PathBuf> {
    if let Some(only) = env::var_os("HOLDFAST_PROGRAMS_PATH") {
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

fn find_program(search_paths: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    names
        .iter()
        .flat_map(|name| search_paths.iter().map(move |folder| folder.join(name)))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the major version that created the cluster; `None` if there is no cluster yet.
fn cluster_version(cluster: &Path) -> Option<u32> {
    fs::read_to_string(cluster.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// Runs `postgres --version`, which prints e.g. `postgres (PostgreSQL) 15.14 (Debian …)`.
fn major_version(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
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
