//! The folder of the sockets: a short path, mode 0700, removed when `up` ends.
//!
//! Guarantees that only root and the services' user can reach Postgres and Redis, which require no
//! password, and that the paths fit into the 103 bytes that every system allows for a socket (in a
//! data folder they often do not). Does not survive a clean-up of `/tmp` by others.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::account::Account;
use super::owned::{create_new_folder, file};

/// Maximum length of a socket's path: Linux allows 107, macOS 103.
const MAX_SOCKET_PATH: usize = 103;
const POSTGRES_SOCKET: &str = ".s.PGSQL.5432";
const PREFIX: &str = "holdfast-";

pub(super) fn create(account: Option<&Account>) -> Result<PathBuf> {
    let path = base(account).join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
    // Fails if it exists: it could be another user's.
    create_new_folder(&path, 0o700).map_err(file("cannot make the sockets' folder", &path))?;
    if let Some(account) = account {
        account.take_over(&path)?;
    }
    Ok(path)
}

/// Removes a folder that this process has created, and that has our prefix and mode.
pub(super) fn remove(path: &Path) {
    let named = path.file_name().and_then(|name| name.to_str());
    let ours = named.is_some_and(|name| name.starts_with(PREFIX))
        && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o77 == 0);
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

/// Returns `XDG_RUNTIME_DIR` if the services run as this user and the path fits, else `/tmp`.
fn base(account: Option<&Account>) -> PathBuf {
    let length =
        |base: &Path| postgres(&base.join(format!("{PREFIX}0000000000000000"))).as_os_str().len();
    env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|base| account.is_none() && base.is_absolute() && base.is_dir())
        .filter(|base| length(base) <= MAX_SOCKET_PATH && is_url_safe(base))
        .unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Returns whether a path needs no escaping in a URL.
fn is_url_safe(path: &Path) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
    path.as_os_str().as_encoded_bytes().iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_socket_folder_is_removed() {
        let other = env::temp_dir().join(format!("other-{}", std::process::id()));
        fs::create_dir(&other).expect("a folder");
        remove(&other);
        assert!(other.exists());
        fs::remove_dir(&other).expect("it is still there");
        let own = create(None).expect("a folder");
        assert!(postgres(&own).as_os_str().len() <= MAX_SOCKET_PATH);
        remove(&own);
        assert!(!own.exists());
    }
}
