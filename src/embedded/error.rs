//! Errors of `holdfast up`.
//!
//! Each message is complete on its own: what is wrong, then what to do. It does not name the place
//! in the code; the logs that it quotes do.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{program} is not installed: the package is `{package}`. Install it with `{command}`, \
         or start Holdfast with script/server, which does that"
    )]
    Missing { program: &'static str, package: String, command: String },
    #[error(
        "{} was made by Postgres {made_by}, but the installed {found}. Install \
         Postgres {made_by}, or start anew with another folder: --data FOLDER", folder.display()
    )]
    OtherVersion { folder: PathBuf, made_by: u32, found: String },
    #[error(
        "Holdfast is already running on {} (pid {pid}, {address}). Use that one, stop it with \
         `kill {pid}`, or give this one a folder and a port of its own: --data FOLDER --listen \
         127.0.0.1:PORT", data.display()
    )]
    AlreadyRunning { data: PathBuf, pid: String, address: String },
    /// The address is reachable from other machines, and the demo users' passwords are their names.
    #[error(
        "{0} can be reached from other machines, and the demo users' passwords are their names. \
         Listen on 127.0.0.1, or allow it with --demo-users-on-network"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "--listen {listen} with {replicas} replicas needs the ports {first} to {last}, and ports \
         go from 1 to 65535: choose another with --listen",
        first = listen.port(), last = u32::from(listen.port()) + u32::from(*replicas) - 1
    )]
    NoSuchPort { listen: SocketAddr, replicas: u16 },
    #[error(
        "replica {number} cannot listen on {address}: {source}. {}",
        other_address(*address, source)
    )]
    PortTaken { number: usize, address: SocketAddr, source: io::Error },
    #[error(
        "Postgres does not run as root, and there is neither a user `postgres` nor `nobody` to \
         run it as. Start Holdfast as an ordinary user"
    )]
    NoServiceAccount,
    #[error(
        "{} belongs to another user (uid {owner}). Start Holdfast as that user, or use another \
         folder: --data FOLDER", folder.display()
    )]
    OwnedByOtherUser { folder: PathBuf, owner: u32 },
    #[error(
        "other users can write to {folder}, and so replace what root trusts there. Remove their \
         permission with `chmod go-w {folder}`, or use another folder: --data FOLDER",
        folder = folder.display()
    )]
    WritableByOthers { folder: PathBuf },
    #[error(
        "{} has data of another build of Holdfast, which this one cannot upgrade: use another folder: \
         --data FOLDER",
        data.display()
    )]
    NoIdentity { data: PathBuf },
    #[error(
        "{} is a copy of {}, which is still there{}. Start that one, or make the copy of a stopped \
         shop a shop of its own with --adopt",
        data.display(), original.display(), if *is_torn { TORN } else { "" }
    )]
    Copy { data: PathBuf, original: PathBuf, is_torn: bool },
    #[error(
        "{} is a copy that was made while its shop ran, so that its database may be damaged. Restore \
         a copy of a stopped shop, or use this one as it is with --adopt", data.display()
    )]
    TornCopy { data: PathBuf },
    #[error(
        "{} is in use by the `holdfast up` that was started on {}. Stop that one first",
        external.display(), owner.display()
    )]
    ExternalInUse { external: PathBuf, owner: PathBuf },
    #[error(
        "the database of {} was in {}, which is missing or not of this shop. Restore that folder, \
         too, or start anew with another folder: --data FOLDER", data.display(), external.display()
    )]
    ExternalMissing { data: PathBuf, external: PathBuf },
    #[error(
        "{} is closed to the user that Postgres runs as (uid {uid}). Permit that user to pass \
         through the folders above it with `chmod o+x`, or move the data folder", folder.display()
    )]
    ClosedToServices { folder: PathBuf, uid: u32 },
    #[error(
        "a Postgres that this `up` has not started runs on {} (pid {pid}). Stop it with `kill -INT \
         {pid}`", cluster.display()
    )]
    UnrecordedPostgres { cluster: PathBuf, pid: i32 },
    #[error(
        "{} is not a folder. Use another one, which is created if it does not exist: --data FOLDER",
        path.display()
    )]
    NotAFolder { path: PathBuf },
    #[error(
        "no space is left for {}: free some (a new shop needs about 200 MB), or use a folder on \
         another disk: --data FOLDER", path.display()
    )]
    DiskFull { path: PathBuf },
    #[error("initdb failed ({status}):\n{output}")]
    InitDb { status: String, output: String },
    #[error("{name} ended before it was ready ({status}). The end of {}:\n{tail}", log.display())]
    Died { name: String, status: String, log: PathBuf, tail: String },
    #[error(
        "{name} is not ready after {seconds} s ({last}). The end of {}:\n{tail}", log.display()
    )]
    NotReady { name: String, seconds: u64, last: String, log: PathBuf, tail: String },
    #[error("the database could not be prepared: {0:#}")]
    Prepare(anyhow::Error),
    #[error("the database `holdfast` could not be created: {0}")]
    Database(#[from] sqlx::Error),
    #[error("{what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A failed operation of the system without a file.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

/// Of a copy whose original is still there.
const TORN: &str = ", and was made while its shop ran, so that its database may be damaged";

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Adds the path to an I/O error, whose message lacks it.
pub(super) fn file<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull => Error::DiskFull { path: path.to_owned() },
        _ => Error::File { what, path: path.to_owned(), source },
    }
}

/// Adds the failed operation to an I/O error without a file.
pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

/// Suggests another address.
fn other_address(taken: SocketAddr, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrNotAvailable {
        return "Use an address of this machine with --listen, e.g. --listen 127.0.0.1:8080"
            .to_owned();
    }
    let port = taken.port();
    let other = port.checked_add(1_000).unwrap_or(port - 1_000);
    let other = SocketAddr::new(taken.ip(), other);
    format!("Choose another first port with --listen, e.g. --listen {other}")
}
