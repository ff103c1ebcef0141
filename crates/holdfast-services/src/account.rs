//! The account that the services run as: the current user, or for root, whom Postgres refuses, an
//! unprivileged one, with its group and no other. A cluster is opened by its owner.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::owned::{change_owner, check_owner, file};

#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Returns the account for the services of `cluster`; `None` for the current user.
    pub(super) fn for_services(cluster: &Path) -> Result<Option<Self>> {
        let owner = fs::symlink_metadata(cluster).ok();
        if !rustix::process::geteuid().is_root() {
            owner.map_or(Ok(()), |owner| check_owner(cluster, &owner))?;
            return Ok(None);
        }

        // A cluster keeps its owner, also if a user `postgres` was added since.
        if let Some(owner) = owner.filter(|owner| owner.uid() != 0) {
            return Ok(Some(Self { uid: owner.uid(), gid: owner.gid() }));
        }

        let found = ["postgres", "nobody"].iter().find_map(|name| Self::named(name));
        let found = found.context(
            "Postgres does not run as root, and there is neither a user `postgres` nor `nobody` \
             to run it as. Start Holdfast as an ordinary user",
        );
        Ok(Some(found?))
    }

    fn named(name: &str) -> Option<Self> {
        Some(Self { uid: ask_id("-u", name)?, gid: ask_id("-g", name)? })
    }

    pub(super) fn take_over(&self, folder: &Path) -> Result<()> {
        change_owner(folder, self.uid, self.gid).map_err(file("cannot change the owner of", folder))
    }

    /// Returns whether this user can reach and write to a folder: no parent is closed to it.
    pub(super) fn can_write_to(&self, folder: &Path) -> Result<bool> {
        // The kernel answers as that user: the modes of the folders above are not all that counts.
        let mut probe = Command::new("/bin/sh");
        probe.args(["-c", r#"cd "$1" && test -w ."#, "sh"]).arg(folder).current_dir("/");
        probe.uid(self.uid).gid(self.gid).stdout(Stdio::null()).stderr(Stdio::null());
        let status = probe.status().context("cannot run /bin/sh as another user")?;
        Ok(status.success())
    }
}

fn ask_id(flag: &str, name: &str) -> Option<u32> {
    // Not /etc/passwd, which is only one of a system's user databases.
    let output = Command::new("id").args([flag, name]).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
