//! The folder of the sockets, removed when `up` ends. Only root and the services' user can reach
//! Postgres and Redis through it, which require no password. It is in `/tmp`, because the path of a
//! socket may have 103 bytes at most; in a container without a writable `/tmp`, in `/dev/shm`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::account::Account;
use super::owned::{create_new_folder, file};

const POSTGRES_SOCKET: &str = ".s.PGSQL.5432";
const PREFIX: &str = "holdfast-";

pub(super) fn create(account: Option<&Account>) -> Result<PathBuf> {
    let path = create_with(0o700)?;
    if let Some(account) = account {
        account.take_over(&path).inspect_err(|_| remove(&path))?;
    }
    Ok(path)
}

/// Creates a folder of the current user; with the mode 0711, others can pass through and not read.
pub(super) fn create_with(mode: u32) -> Result<PathBuf> {
    let name = format!("{PREFIX}{:016x}", rand::random::<u64>());
    let in_tmp = Path::new("/tmp").join(&name);
    // Fails if it exists: it could be another user's.
    match create_new_folder(&in_tmp, mode) {
        Ok(()) => Ok(in_tmp),
        Err(error) => {
            let in_memory = Path::new("/dev/shm").join(&name);
            // The error to correct is the first one.
            create_new_folder(&in_memory, mode)
                .map_err(|_| file("cannot make the sockets' folder", &in_tmp)(error))?;
            Ok(in_memory)
        }
    }
}

/// Removes a folder that this process has created, and that has our prefix and mode: no other user
/// can read or write it.
pub(super) fn remove(path: &Path) {
    let named = path.file_name().and_then(|name| name.to_str());
    // The path may come from a file: no other path is deleted.
    let ours = named.is_some_and(|name| name.starts_with(PREFIX))
        && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o66 == 0);
    if ours {
        let _ = fs::remove_dir_all(path);
    }
}

pub(super) fn postgres(folder: &Path) -> PathBuf {
    folder.join(POSTGRES_SOCKET)
}

pub(super) fn redis(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_socket_folder_is_removed() {
        let other = tempfile::tempdir().expect("a folder");
        remove(other.path());
        assert!(other.path().exists());
        for own in [create(None), create_with(0o711)].map(|own| own.expect("a folder")) {
            remove(&own);
            assert!(!own.exists());
        }
    }
}
