//! Finds the programs: `postgres`, `initdb`, and `redis-server` or `valkey-server`.
//!
//! Guarantees that `postgres` and `initdb` come from one folder, and that a cluster is opened by
//! the major version that created it. Does not check minor versions, and installs nothing:
//! `script/bootstrap` does.
//!
//! `HOLDFAST_PROGRAMS_PATH` (a list like `PATH`) replaces all the searched folders.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, Result};

#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) postgres: PathBuf,
    pub(super) initdb: PathBuf,
    pub(super) redis: PathBuf,
}

impl Programs {
    /// Finds all programs; `cluster` is the folder of the cluster, which need not exist yet.
    pub(super) fn find(cluster: &Path) -> Result<Self> {
        let folder = postgres_folder(&search_paths(), cluster)?;
        let (postgres, initdb) = (folder.join("postgres"), folder.join("initdb"));
        Ok(Self { postgres, initdb, redis: redis()? })
    }
}

pub(super) fn redis() -> Result<PathBuf> {
    find_program(&search_paths(), &["redis-server", "valkey-server"])
        .ok_or_else(|| missing("redis-server"))
}

/// Returns Postgres' folder: of the version that created the cluster, or else the first found.
fn postgres_folder(search_paths: &[PathBuf], cluster: &Path) -> Result<PathBuf> {
    let found: Vec<_> = search_paths
        .iter()
        .filter(|folder| is_program(&folder.join("postgres")) && is_program(&folder.join("initdb")))
        .collect();
    let Some(first) = found.first() else {
        return Err(missing("postgres"));
    };
    let Some(made_by) = cluster_version(cluster) else {
        return Ok(PathBuf::from(first));
    };
    let versions: Vec<_> =
        found.iter().map(|folder| major_version(&folder.join("postgres"))).collect();
    match versions.iter().position(|version| *version == Some(made_by)) {
        Some(at) => Ok(found[at].clone()),
        None => Err(Error::OtherVersion {
            folder: cluster.to_owned(),
            made_by,
            found: list_versions(versions.into_iter().flatten().collect()),
        }),
    }
}

/// Lists versions once each, for a message.
fn list_versions(versions: BTreeSet<u32>) -> String {
    let versions: Vec<_> = versions.iter().map(u32::to_string).collect();
    match versions.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("versions are {} and {last}", others.join(", "))
        }
        _ => format!("version is {}", versions.concat()),
    }
}

/// Returns the searched folders, best first.
fn search_paths() -> Vec<PathBuf> {
    if let Some(only) = env::var_os("HOLDFAST_PROGRAMS_PATH") {
        return env::split_paths(&only).collect();
    }
    let mut search_paths: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).filter(|folder| folder.is_absolute()).collect())
        .unwrap_or_default();
    // Debian keeps the servers out of PATH, in one folder per major version. Newest first.
    search_paths.extend(versions_below("/usr/lib/postgresql", "", "bin"));
    search_paths.extend(versions_below("/usr", "pgsql-", "bin"));
    for brew in ["/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"] {
        search_paths.extend(versions_below(&format!("{brew}/opt"), "postgresql@", "bin"));
        search_paths.push(PathBuf::from(format!("{brew}/opt/postgresql/bin")));
        search_paths.push(PathBuf::from(format!("{brew}/bin")));
    }
    search_paths.extend(["/usr/local/bin", "/usr/bin", "/usr/sbin"].map(PathBuf::from));
    search_paths
}

/// Returns the `<parent>/<prefix><version>/<below>` of all versions found, newest first.
fn versions_below(parent: &str, prefix: &str, below: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join(below)))
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

/// Package managers: program, command, and the packages of Postgres and Redis.
const PACKAGE_MANAGERS: [(&str, &str, [&str; 2]); 4] = [
    ("apt-get", "sudo apt-get install", ["postgresql", "redis-server"]),
    ("dnf", "sudo dnf install", ["postgresql-server", "valkey"]),
    ("pacman", "sudo pacman -S", ["postgresql", "valkey"]),
    ("apk", "sudo apk add", ["postgresql", "redis"]),
];
/// Command and packages of the package manager that is named if none of those is installed.
const HOMEBREW: (&str, [&str; 2]) = ("brew install", ["postgresql@17", "redis"]);

fn missing(program: &'static str) -> Error {
    // Searched in the usual folders, independent of `HOLDFAST_PROGRAMS_PATH`.
    let usual = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(PathBuf::from);
    let (install, [postgres, redis]) = PACKAGE_MANAGERS
        .iter()
        .find(|(manager, ..)| find_program(&usual, &[manager]).is_some())
        .map_or(HOMEBREW, |(_, install, packages)| (install, *packages));
    let package = if program == "postgres" { postgres } else { redis };
    Error::Missing { program, package: package.to_owned(), command: format!("{install} {package}") }
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

    #[test]
    fn other_version_lists_each_installed_one_once() {
        let base = env::temp_dir().join(format!("hf-programs-{}", std::process::id()));
        let folder = |version: u32| {
            let folder = base.join(version.to_string());
            fs::create_dir_all(&folder).expect("a folder");
            for name in ["postgres", "initdb"] {
                let script = format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}.1'\n");
                fs::write(folder.join(name), script).expect("a file");
                let executable = fs::Permissions::from_mode(0o755);
                fs::set_permissions(folder.join(name), executable).expect("it is ours");
            }
            folder
        };
        let search_paths = [folder(16), folder(15), folder(16), folder(15)];
        fs::write(base.join("PG_VERSION"), "14\n").expect("a file");
        let refused = |paths| postgres_folder(paths, &base).expect_err("none fits").to_string();
        let [several, one] = [refused(&search_paths), refused(&search_paths[2..3])];
        fs::remove_dir_all(&base).expect("it is ours");
        assert!(several.contains("but the installed versions are 15 and 16."), "{several}");
        assert!(one.contains("but the installed version is 16."), "{one}");
    }

    #[test]
    fn missing_program_names_package_and_install_command() {
        let error = postgres_folder(&[], Path::new("/nowhere")).expect_err("there is none");
        let message = error.to_string();
        assert!(message.contains("the package is `postgresql"), "{message}");
        assert!(message.contains("install") || message.contains("pacman -S"), "{message}");
    }
}
