//! PgBouncer in front of a Postgres on the same machine.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::topology::{self, Daemon, free_ports};

pub struct Pooler {
    port: u16,
    _process: Daemon,
}

impl Pooler {
    /// Leads every database to the Postgres with that socket's folder, with the parameters in
    /// `target`. Returns `None` if it is not installed; see [`topology::skip`].
    pub fn start(socket: &Path, target: &str, settings: &str) -> Option<Self> {
        // Debian installs it in a folder that is not on every user's PATH.
        let elsewhere = PathBuf::from("/usr/sbin/pgbouncer");
        let found = topology::program("pgbouncer").unwrap_or(elsewhere);
        let Some(program) = Some(found).filter(|program| program.is_file()) else {
            topology::skip("no pgbouncer (script/bootstrap --tests)");
            return None;
        };

        let [port] = free_ports();
        let process = Daemon::start(&program, |folder| {
            let file = folder.join("pgbouncer.ini");
            std::fs::write(&file, configuration(port, socket, target, settings)).unwrap();
            vec![file.to_str().unwrap().to_owned()]
        });
        topology::until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { port, _process: process })
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://anyone@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

fn configuration(port: u16, socket: &Path, target: &str, settings: &str) -> String {
    let socket = socket.to_str().unwrap();
    // PgBouncer does not run as root; that user can reach the socket.
    let owner = Command::new("stat").args(["-c", "%U", socket]).output().unwrap();
    let owner = String::from_utf8(owner.stdout).unwrap();
    let user = if rustix::process::geteuid().is_root() {
        format!("user = {owner}")
    } else {
        String::new()
    };
    format!(
        "[databases]\n* = host={socket} {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\n{user}\n{settings}\n"
    )
}
