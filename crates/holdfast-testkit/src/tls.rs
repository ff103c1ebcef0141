//! A Postgres and Redis servers that accept only TLS from clients with a certificate.
//!
//! The test's own connections use sockets instead, which no network reaches.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::ports::free_ports;
use crate::topology::certificates;

/// The script that runs the servers. They end when its standard input closes, which happens when
/// the test ends, even if it is killed.
const SCRIPT: &str = include_str!("tls-servers.sh");
/// One Redis for the shop, and the nodes of `redlock`.
const REDIS_SERVERS: u16 = 4;

/// The servers of one test, or of one test binary.
pub struct TlsServers {
    pub folder: PathBuf,
    postgres_port: u16,
    redis_port: u16,
    shell: Child,
}

impl TlsServers {
    /// Starts them and waits until they respond.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-tls-").tempdir().unwrap().keep();
        certificates().write(&folder);
        let account = is_root().then(service_account);
        for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = account {
                chown(&file, Some(uid), Some(gid)).unwrap();
            }
        }
        let mut command = Command::new("sh");
        if let Some((uid, gid)) = account {
            chown(&folder, Some(uid), Some(gid)).unwrap();
            command.uid(uid).gid(gid);
        }
        let postgres_port = free_ports(1 + REDIS_SERVERS);
        let redis_port = postgres_port + 1;
        let mut shell = command
            .args(["-c", SCRIPT, "sh"])
            .args([&folder, &postgres_programs()])
            .args([postgres_port, redis_port, REDIS_SERVERS].map(|number| number.to_string()))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "see the output of the servers");
        Self { folder, postgres_port, redis_port, shell }
    }

    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}.pem", self.folder.display())
    }

    /// The URL of a database on the socket, in the format of `holdfast up`.
    pub fn socket_url(&self, database: &str) -> String {
        format!(
            "postgres:///{database}?host={}&port={}&user=holdfast&sslmode=disable",
            self.folder.display(),
            self.postgres_port
        )
    }

    pub fn bare_url(&self, database: &str) -> String {
        format!("postgres://holdfast@localhost:{}/{database}", self.postgres_port)
    }

    /// The URL of a database with all certificates.
    pub fn database_url(&self, database: &str) -> String {
        format!(
            "{}?sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
            self.bare_url(database),
            self.file("authority"),
            self.file("client"),
            self.file("client-key")
        )
    }

    pub fn redis_socket_url(&self) -> String {
        format!("redis+unix://{}/redis-0.sock", self.folder.display())
    }

    pub fn redis_url(&self) -> String {
        format!("rediss://localhost:{}", self.redis_port)
    }

    pub fn redlock_urls(&self) -> String {
        let nodes = 1..REDIS_SERVERS;
        let urls = nodes.map(|node| format!("rediss://localhost:{}", self.redis_port + node));
        urls.collect::<Vec<_>>().join(",")
    }

    /// The settings of a replica with the certificates for Redis.
    pub fn redis_settings(&self) -> [(&'static str, String); 3] {
        [
            ("HOLDFAST_REDIS_CA", self.file("authority")),
            ("HOLDFAST_REDIS_CERT", self.file("client")),
            ("HOLDFAST_REDIS_KEY", self.file("client-key")),
        ]
    }
}

impl Drop for TlsServers {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that runs Postgres for root, and its group.
fn service_account() -> (u32, u32) {
    let id = |flag, name| {
        let output = Command::new("id").args([flag, name]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().ok()
    };
    let account =
        ["postgres", "nobody"].iter().find_map(|name| Some((id("-u", name)?, id("-g", name)?)));
    account.expect("a user for Postgres")
}

fn postgres_programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let has_it = |folder: &PathBuf| Path::is_file(&folder.join("initdb"));
    folders.into_iter().find(has_it).expect("Postgres is installed; script/bootstrap installs it")
}
