//! The folder of the services' data: the data folder, or one in `/var/lib`.
//!
//! For root with a data folder that is closed to the account that Postgres runs as, e.g. in
//! `/root`, the services' data is in `/var/lib/holdfast-ID`. Guarantees that it is used only with
//! the data folder of that id (`identity.rs`), by one `up` at a time, and never created anew once
//! it has existed. What is not provably of this shop is neither used nor removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::account::Account;
use super::identity::{FolderId, Identity, Origin};
use super::owned::{check_folder, create_folder, try_lock};
use super::process::tied_command;
use holdfast_base::output::print_progress;

const IDENTITY: &str = "id";
/// Name of the same record beside external data.
const OWNER: &str = "owner";
/// Name of the file there that a running `up` locks.
const LOCK: &str = "lock";
/// Name of the file that the services themselves keep locked.
const SERVICES_LOCK: &str = "services.lock";
/// Time in which the processes of a Postgres that was killed end.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Files of a running shop, besides Postgres' own. In a copy, they show that it may be torn.
const TRACES: [&str; 2] = ["pids", "env"];

/// Folder of the services' data, and the account they run as.
#[derive(Debug)]
pub(super) struct ServicesDir {
    pub(super) path: PathBuf,
    pub(super) account: Option<Account>,
    /// Of external data.
    _lock: Option<File>,
    services_lock: Option<File>,
}

impl ServicesDir {
    /// A folder that exists and belongs to the account.
    pub(super) fn new(path: PathBuf, account: Option<Account>) -> Self {
        Self { path, account, _lock: None, services_lock: None }
    }

    /// Returns whether no shop has used the data folder yet.
    pub(super) fn is_new(data: &Path) -> bool {
        fs::symlink_metadata(data.join(IDENTITY)).is_err()
    }

    /// Finds or creates the folder for this data folder, which is locked. `adopt` accepts a copy.
    pub(super) fn open(data: &Path, adopt: bool) -> Result<Self> {
        let record = data.join(IDENTITY);
        let Some(mut identity) = Identity::read(&record)? else { return Self::create_new(data) };
        let mut services_dir = data.to_owned();
        let mut records = vec![record];
        let mut lock = None;
        let mut is_restored = false;
        if identity.external.is_some() {
            services_dir = external_path(identity.id);
            // Written before the record in the data folder, which leads to it.
            records.insert(0, services_dir.join(OWNER));
            (lock, identity) = lock_external(&services_dir, &identity, data)?;

            let external = FolderId::of(&services_dir)?;
            // The record in this folder is of another one: it is a copy that was put back.
            is_restored = identity.external.is_none_or(|known| !external.is_recorded(known, true));
            identity.external = Some(external);
        }

        let origin = identity.origin(FolderId::of(data)?, data);
        let is_copied = is_restored || origin == (Origin::Moved { is_copy: true });
        let is_torn = is_torn(data, &services_dir);
        if origin == Origin::CopyOfPresent {
            ensure!(
                adopt,
                "{} is a copy of {}, which is still there{}. Start that one, or make the copy of \
                 a stopped shop a shop of its own with --adopt",
                data.display(),
                identity.path.display(),
                if is_torn { ", and was made while its shop ran" } else { "" }
            );

            // With the same id, both would own the same external data.
            identity.id = Uuid::new_v4();
            if identity.external.is_some() {
                // Of a killed `up`, Postgres may run on without the lock.
                ensure!(
                    !services_dir.join("postgres/postmaster.pid").exists(),
                    "{} is in use, or its shop was killed: start and stop that shop, then use \
                     --adopt again",
                    services_dir.display()
                );
                services_dir = copy_external(&services_dir, identity.id)?;
                identity.external = Some(FolderId::of(&services_dir)?);
                records[0] = services_dir.join(OWNER);
                lock = try_lock(&services_dir.join(LOCK))?;
            }
        }

        ensure!(
            !(is_copied && is_torn) || adopt,
            "{} is a copy that was made while its shop ran, so that its database may be damaged. \
             Restore a copy of a stopped shop, or use this one as it is with --adopt",
            data.display()
        );
        if identity.path != data || is_copied {
            print_progress(&format!(
                "{} was moved or copied from {}, and is used now",
                data.display(),
                identity.path.display()
            ));
        }

        let claimed = Identity { folder: FolderId::of(data)?, path: data.to_owned(), ..identity };
        records.iter().try_for_each(|record| claimed.write(record))?;
        Self::prepare(services_dir, lock)?.check_open()
    }

    /// Gives an identity to a data folder without data.
    fn create_new(data: &Path) -> Result<Self> {
        for of_other_build in ["postgres/PG_VERSION", "services"] {
            ensure!(
                fs::symlink_metadata(data.join(of_other_build)).is_err(),
                "{} has data of another build of Holdfast, which this one cannot upgrade: use \
                 another folder: --data FOLDER",
                data.display()
            );
        }

        let folder = FolderId::of(data)?;
        let identity = Identity { id: Uuid::new_v4(), folder, external: None, path: data.into() };
        let services_dir = Self::prepare(data.to_owned(), None)?;
        if services_dir.is_open()? {
            // Last: it says that the data exists.
            identity.write(&data.join(IDENTITY))?;
            return Ok(services_dir);
        }

        // It was made to try that.
        let _ = fs::remove_dir(data.join("redis"));
        let external = external_path(identity.id);
        print_progress(&format!(
            "{} is closed to the user that Postgres runs as: its data is kept in {}",
            data.display(),
            external.display()
        ));
        let created = Self::create_external(&external, identity);
        if created.is_err() {
            // The next start makes another one: nothing leads to this.
            let _ = fs::remove_dir_all(&external);
        }
        created
    }

    fn create_external(external: &Path, mut identity: Identity) -> Result<Self> {
        // Root's, so that the services' user can replace nothing in it that root trusts.
        create_folder(external, 0o711)?;
        identity.external = Some(FolderId::of(external)?);
        identity.write(&external.join(OWNER))?;
        let lock = try_lock(&external.join(LOCK))?;
        let services_dir = Self::prepare(external.to_owned(), lock)?.check_open()?;
        // Last, as above.
        identity.write(&identity.path.join(IDENTITY))?;
        Ok(services_dir)
    }

    fn prepare(path: PathBuf, lock: Option<File>) -> Result<Self> {
        let cluster = path.join("postgres");
        let account = Account::for_services(&cluster)?;
        let services_dir = Self { path, account, _lock: lock, services_lock: None };
        services_dir.create("redis")?;
        if cluster.exists() {
            services_dir.create("postgres")?;
        }
        Ok(services_dir)
    }

    fn is_open(&self) -> Result<bool> {
        let Some(account) = &self.account else { return Ok(true) };
        account.can_write_to(&self.path.join("redis"))
    }

    fn check_open(self) -> Result<Self> {
        ensure!(
            self.is_open()?,
            "{} is closed to the user that Postgres runs as. Permit that user to pass through the \
             folders above it with `chmod o+x`, or move the data folder",
            self.path.display()
        );
        Ok(self)
    }

    /// Locks the folder for services, which inherit the lock: it is free when the last process of
    /// theirs has ended, also one that cannot be seen from here, in another container. Their pids
    /// prove nothing there.
    pub(super) async fn lock_for_services(&mut self) -> Result<()> {
        let until = Instant::now() + MAX_LOCK_WAIT;
        while !self.try_lock_for_services()? {
            ensure!(
                Instant::now() < until,
                "a Postgres or Redis of {} still runs, perhaps in another container, and its `up` \
                 was killed. Stop it, or use another folder: --data FOLDER",
                self.path.display()
            );
            sleep(LOCK_RETRY_DELAY).await;
        }
        Ok(())
    }

    fn try_lock_for_services(&mut self) -> Result<bool> {
        self.services_lock = try_lock(&self.path.join(SERVICES_LOCK))?;
        Ok(self.services_lock.is_some())
    }

    /// Returns the command of a service, which runs as the services' account in an environment that
    /// is the same on every machine: a `PGDATA` or a locale of the user must not reach it.
    pub(super) fn command(&self, program: &Path, death_signal: &str) -> Result<Command> {
        let mut command = tied_command(program, death_signal);
        if let Some(lock) = &self.services_lock {
            // As its input, which no service reads, because every child process inherits that.
            command.stdin(lock.try_clone().context("cannot share the services' lock")?);
        }

        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
        if let Some(account) = &self.account {
            // The standard library also drops the supplementary groups when root becomes a user.
            command.uid(account.uid).gid(account.gid);
        }
        Ok(command)
    }

    /// Creates the data folder of a service, if necessary, and gives it to the services' account;
    /// also what root owns in it: a copy without owners (`cp -r`).
    pub(super) fn create(&self, name: &str) -> Result<()> {
        let folder = self.path.join(name);
        create_folder(&folder, 0o700)?;
        self.account.as_ref().map_or(Ok(()), |account| account.take_over(&folder))
    }
}

fn external_path(id: Uuid) -> PathBuf {
    PathBuf::from(format!("/var/lib/holdfast-{id}"))
}

/// Returns whether the files are those of a shop that ran when they were copied.
fn is_torn(data: &Path, services: &Path) -> bool {
    let postgres = services.join("postgres/postmaster.pid");
    TRACES.map(|name| data.join(name)).iter().chain([&postgres]).any(|trace| trace.exists())
}

fn lock_external(
    external: &Path,
    identity: &Identity,
    data: &Path,
) -> Result<(Option<File>, Identity)> {
    let missing = format!(
        "the database of {} was in {}, which is missing or not of this shop. Restore that folder, \
         too, or start anew with another folder: --data FOLDER",
        data.display(),
        external.display()
    );
    fs::symlink_metadata(external).with_context(|| missing.clone())?;
    check_folder(external)?;

    // Before the record is read: the holder may change it.
    let lock = try_lock(&external.join(LOCK))?;
    let owner = Identity::read(&external.join(OWNER))?;
    let owner = owner.filter(|owner| owner.id == identity.id).context(missing)?;

    ensure!(
        lock.is_some(),
        "{} is in use by the `holdfast up` that was started on {}. Stop that one first",
        external.display(),
        owner.path.display()
    );
    Ok((lock, owner))
}

/// Copies external data, which no other process uses, for the shop with this id.
fn copy_external(source: &Path, id: Uuid) -> Result<PathBuf> {
    let target = external_path(id);
    print_progress(&format!("copying {} to {} …", source.display(), target.display()));
    // `cp`, which keeps owners: Postgres opens a cluster of its own user only.
    let copied = std::process::Command::new("cp").arg("-a").args([source, &target]).output()?;
    if !copied.status.success() {
        // `cp` has created it.
        let _ = fs::remove_dir_all(&target);
        bail!("cannot copy {}: {}", source.display(), String::from_utf8_lossy(&copied.stderr));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn running_service_keeps_its_folder_locked() {
        let folder = tempfile::tempdir().expect("a new folder");
        let mut first = ServicesDir::new(folder.path().into(), None);
        assert!(first.try_lock_for_services().expect("it can be made"));
        let mut sleep = first.command(Path::new("sleep"), "KILL").expect("it can be shared");
        let mut service = sleep.arg("60").spawn().expect("it starts");
        drop((first, sleep));

        let mut second = ServicesDir::new(folder.path().into(), None);
        assert!(!second.try_lock_for_services().expect("it is there"));
        service.kill().await.expect("it ends");
        // Not at once: a child of another test has it, too, until it executes its program.
        second.lock_for_services().await.expect("it is free");
    }

    /// As root, with a data folder that is closed to the account of the services.
    #[test]
    fn failed_first_start_leaves_no_external_folder() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a new folder");
        let data = folder.path();
        // In the place of the record while it is written.
        create_folder(&data.join("id.new"), 0o700).expect("it is ours");
        assert!(ServicesDir::open(data, false).is_err());
        let is_left = |entry: &fs::DirEntry| {
            let owner = Identity::read(&entry.path().join(OWNER)).ok().flatten();
            owner.is_some_and(|owner| owner.path == data)
        };
        let folders = fs::read_dir("/var/lib").expect("it exists").flatten();
        assert_eq!(folders.filter(is_left).count(), 0);
    }
}
