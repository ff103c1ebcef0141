//! The folder of the services' data: the data folder, or one in `/var/lib`.
//!
//! For root with a data folder that is closed to the account that Postgres runs as, e.g. in
//! `/root`, the services' data is in `/var/lib/holdfast-ID`. Guarantees that it is used only with
//! the data folder of that id (`identity.rs`), by one `up` at a time, and never created anew once
//! it has existed. What is not provably of this shop is neither used nor removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;
use uuid::Uuid;

use super::account::Account;
use super::error::{Error, Result, file};
use super::identity::{FolderId, Identity, Origin};
use super::owned::{check_folder, create_folder, open_own};
use super::print_progress;
use super::process::tied_command;

/// Name of the record in the data folder.
const IDENTITY: &str = "id";
/// Name of the same record beside external data.
const OWNER: &str = "owner";
/// Name of the file there that a running `up` locks.
const LOCK: &str = "lock";
/// Files of a running shop, besides Postgres' own. In a copy, they show that it may be torn.
const TRACES: [&str; 2] = ["pids", "env"];

/// Folder of the services' data, and the account they run as.
#[derive(Debug)]
pub(super) struct ServicesDir {
    pub(super) path: PathBuf,
    pub(super) account: Option<Account>,
    /// External data that this start has created. Dropped before its lock.
    _new: Option<NewExternal>,
    /// Of external data.
    _lock: Option<File>,
}

/// A folder of external data that this start has created, and the record that names it. Dropping
/// it removes both again if the start failed before a cluster was in the folder.
#[derive(Debug)]
struct NewExternal {
    path: PathBuf,
    record: PathBuf,
}

impl Drop for NewExternal {
    fn drop(&mut self) {
        if fs::symlink_metadata(self.path.join("postgres")).is_ok() {
            return;
        }
        // Only files of this start, and empty folders. First the record: without it, no later start
        // looks for the folder.
        for file in [self.record.clone(), self.path.join(OWNER), self.path.join(LOCK)] {
            let _ = fs::remove_file(file);
        }
        for folder in [self.path.join("postgres.new"), self.path.join("redis"), self.path.clone()] {
            let _ = fs::remove_dir(folder);
        }
    }
}

impl ServicesDir {
    /// A folder that exists and belongs to the account.
    pub(super) fn new(path: PathBuf, account: Option<Account>) -> Self {
        Self { path, account, _new: None, _lock: None }
    }

    /// Finds or creates the folder for this data folder, which is locked. `adopt` accepts a copy.
    pub(super) fn open(data: &Path, adopt: bool) -> Result<Self> {
        match Identity::read(&data.join(IDENTITY))? {
            None => Self::create_new(data),
            Some(identity) if identity.external.is_none() => {
                Self::open_internal(data, identity, adopt)
            }
            Some(identity) => Self::open_external(data, &identity, adopt),
        }
    }

    /// Gives an identity to a data folder without data.
    fn create_new(data: &Path) -> Result<Self> {
        for of_earlier_version in ["postgres/PG_VERSION", "services"] {
            if fs::symlink_metadata(data.join(of_earlier_version)).is_ok() {
                return Err(Error::NoIdentity { data: data.to_owned() });
            }
        }
        let mut identity = Identity {
            id: Uuid::new_v4(),
            folder: folder_id(data)?,
            external: None,
            path: data.to_owned(),
        };
        let services_dir = match Self::prepare(data.to_owned()) {
            Err(Error::ClosedToServices { .. }) => Self::create_external(data, &mut identity)?,
            prepared => prepared?,
        };
        // Last: it says that the data exists.
        identity.write(&data.join(IDENTITY))?;
        Ok(services_dir)
    }

    fn create_external(data: &Path, identity: &mut Identity) -> Result<Self> {
        for empty in ["postgres", "redis"] {
            let _ = fs::remove_dir(data.join(empty));
        }
        let path = external_path(identity.id);
        print_progress(&format!(
            "{} is closed to the user that Postgres runs as: its data is kept in {}",
            data.display(),
            path.display()
        ));
        // Root's, so that the services' user can replace nothing in it that root trusts.
        create_folder(&path, 0o711)?;
        let new = NewExternal { path: path.clone(), record: data.join(IDENTITY) };
        identity.external = Some(folder_id(&path)?);
        identity.write(&path.join(OWNER))?;
        Ok(Self { _lock: try_lock(&path)?, _new: Some(new), ..Self::prepare(path)? })
    }

    fn open_internal(data: &Path, mut identity: Identity, adopt: bool) -> Result<Self> {
        let origin = identity.origin(folder_id(data)?, data);
        let is_torn = is_torn(data, data);
        if origin == Origin::CopyOfPresent {
            if !adopt {
                return Err(Error::Copy {
                    data: data.to_owned(),
                    original: identity.path,
                    is_torn,
                });
            }
            identity.id = Uuid::new_v4();
        }
        if origin == (Origin::Moved { is_copy: true }) && is_torn && !adopt {
            return Err(Error::TornCopy { data: data.to_owned() });
        }
        claim(data, &identity, origin, &[data.join(IDENTITY)])?;
        Self::prepare(data.to_owned())
    }

    fn open_external(data: &Path, identity: &Identity, adopt: bool) -> Result<Self> {
        let path = external_path(identity.id);
        let missing = || Error::ExternalMissing { data: data.to_owned(), external: path.clone() };
        fs::symlink_metadata(&path).map_err(|_| missing())?;
        check_folder(&path)?;
        // Before the record is read: the holder may change it.
        let lock = try_lock(&path)?;
        let owner = Identity::read(&path.join(OWNER))?;
        let owner = owner.filter(|owner| owner.id == identity.id).ok_or_else(missing)?;
        let in_use = Error::ExternalInUse { external: path.clone(), owner: owner.path.clone() };

        let origin = owner.origin(folder_id(data)?, data);
        if origin == Origin::CopyOfPresent {
            if !adopt {
                let (data, original) = (data.to_owned(), owner.path);
                return Err(Error::Copy { data, original, is_torn: false });
            }
            if lock.is_none() || path.join("postgres/postmaster.pid").exists() {
                return Err(in_use);
            }
            return Self::copy_external(data, owner, &path);
        }
        let lock = lock.ok_or(in_use)?;
        let external = folder_id(&path)?;
        let is_restored =
            owner.external.is_none_or(|recorded| !external.is_recorded(recorded, true));
        let is_copy = is_restored || origin == (Origin::Moved { is_copy: true });
        if is_copy && is_torn(data, &path) && !adopt {
            return Err(Error::TornCopy { data: data.to_owned() });
        }

        let owner = Identity { external: Some(external), ..owner };
        claim(data, &owner, origin, &[path.join(OWNER), data.join(IDENTITY)])?;
        Ok(Self { _lock: Some(lock), ..Self::prepare(path)? })
    }

    /// Makes a copy of the data folder of `owner` a shop with its own data, copied from `source`,
    /// which no other process uses.
    fn copy_external(data: &Path, owner: Identity, source: &Path) -> Result<Self> {
        let id = Uuid::new_v4();
        let path = external_path(id);
        print_progress(&format!("copying {} to {} …", source.display(), path.display()));
        create_folder(&path, 0o711)?;
        if let Err(error) = copy_folders(source, &path) {
            // It was created above.
            let _ = fs::remove_dir_all(&path);
            return Err(file("cannot copy", source)(error));
        }

        let identity = Identity { id, external: Some(folder_id(&path)?), ..owner };
        let records = [path.join(OWNER), data.join(IDENTITY)];
        claim(data, &identity, Origin::CopyOfPresent, &records)?;
        Ok(Self { _lock: try_lock(&path)?, ..Self::prepare(path)? })
    }

    /// Creates what the services need, and checks that their account can use it.
    fn prepare(path: PathBuf) -> Result<Self> {
        let cluster = path.join("postgres");
        let services_dir = Self::new(path, Account::for_services(&cluster)?);
        services_dir.create("redis")?;
        if cluster.exists() {
            services_dir.create("postgres")?;
        }
        if let Some(account) = &services_dir.account
            && !account.can_write_to(&services_dir.path.join("redis"))?
        {
            return Err(Error::ClosedToServices { folder: services_dir.path, uid: account.uid });
        }
        Ok(services_dir)
    }

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

    /// Creates the data folder of a service, if necessary, and gives it to the services' account;
    /// also what root owns in it: a copy without owners (`cp -r`).
    pub(super) fn create(&self, name: &str) -> Result<()> {
        let folder = self.path.join(name);
        create_folder(&folder, 0o700)?;
        let Some(account) = &self.account else { return Ok(()) };
        if account.take_over(&folder)? > 0 {
            print_progress(&format!(
                "{} was root's, as in a copy without owners: it belongs to uid {} again",
                folder.display(),
                account.uid
            ));
        }
        Ok(())
    }
}

/// Removes a data folder that this process has created, with its external data.
pub(super) fn remove_data(data: &Path) -> io::Result<()> {
    if let Ok(Some(identity)) = Identity::read(&data.join(IDENTITY)) {
        let external = external_path(identity.id);
        if Identity::read(&external.join(OWNER)).is_ok_and(|owner| owner == Some(identity)) {
            fs::remove_dir_all(external)?;
        }
    }
    fs::remove_dir_all(data)
}

fn external_path(id: Uuid) -> PathBuf {
    PathBuf::from(format!("/var/lib/holdfast-{id}"))
}

fn folder_id(path: &Path) -> Result<FolderId> {
    FolderId::of(path).map_err(file("cannot find", path))
}

/// Returns whether the files are those of a shop that ran when they were copied.
fn is_torn(data: &Path, services: &Path) -> bool {
    let postgres = services.join("postgres/postmaster.pid");
    TRACES.map(|name| data.join(name)).iter().chain([&postgres]).any(|trace| trace.exists())
}

/// Records that the identity is that of this data folder from now on.
fn claim(data: &Path, identity: &Identity, origin: Origin, records: &[PathBuf]) -> Result<()> {
    let before = identity.path.display();
    let found = match origin {
        Origin::CopyOfPresent => Some(format!("is a copy of {before}, and now a shop of its own")),
        _ if identity.path != data => Some(format!("was at {before}, and is used here now")),
        Origin::Moved { is_copy: true } => Some("was restored, and is used now".to_owned()),
        _ => None,
    };
    if let Some(found) = found {
        print_progress(&format!("{} {found}", data.display()));
    }
    let claimed = Identity { folder: folder_id(data)?, path: data.to_owned(), ..identity.clone() };
    records.iter().try_for_each(|record| claimed.write(record))
}

/// Copies the folders in `source` with owners, modes and times.
fn copy_folders(source: &Path, target: &Path) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let copied =
            std::process::Command::new("cp").arg("-a").arg(&folder).arg(target).output()?;
        if !copied.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&copied.stderr).into_owned()));
        }
    }
    Ok(())
}

/// Locks external data; `None` if another `up` uses it.
fn try_lock(external: &Path) -> Result<Option<File>> {
    let path = external.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let lock = open_own(&path, &mut options).map_err(file("cannot open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(file("cannot lock", &path)(error)),
    }
}
