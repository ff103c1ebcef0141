//! The identity of a data folder: a random id, and the folder that got it, recorded in the data
//! folder (`id`), and again beside external services' data (`owner`). A copy is not taken for its
//! original while that is where it was last used, and a path alone proves nothing. An original that
//! was moved, too, is not found: without services' data in common, neither can harm the other.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result};
use uuid::Uuid;

use super::owned::{read_if_exists, write_private};

/// A folder, recognized when its path has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FolderId {
    device: u64,
    inode: u64,
    /// Nanoseconds since 1970; unknown on some file systems.
    born: Option<u128>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: Uuid,
    pub(super) folder: FolderId,
    /// The folder of the services' data, if that is not in the data folder.
    pub(super) external: Option<FolderId>,
    /// Where the data folder was when it was last used.
    pub(super) path: PathBuf,
}

/// The relation of a record to the folder in which it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Same,
    /// The recorded folder is gone from its place. `is_copy` is false if this is that folder,
    /// renamed or mounted anew.
    Moved {
        is_copy: bool,
    },
    /// The recorded folder is where it was.
    CopyOfPresent,
}

impl FolderId {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let born = meta.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self { device: meta.dev(), inode: meta.ino(), born: born.map(|since| since.as_nanos()) })
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.splitn(3, ':').map(|number| number.parse::<u128>().ok());
        let device = numbers.next()??.try_into().ok()?;
        let inode = numbers.next()??.try_into().ok()?;
        let born = numbers.next()??;
        Some(Self { device, inode, born: (born > 0).then_some(born) })
    }

    /// Returns whether this is the recorded folder, perhaps mounted anew, which may change the
    /// number of its device. No copy has the time of birth of its original, even if it reuses the
    /// inode. Where times of birth are unknown, a folder that was mounted anew has its old path.
    pub(super) fn is_recorded(self, recorded: Self, at_recorded_path: bool) -> bool {
        self.inode == recorded.inode
            && match (self.born, recorded.born) {
                (Some(born), Some(recorded)) => born == recorded,
                _ => self.device == recorded.device || at_recorded_path,
            }
    }
}

impl fmt::Display for FolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.device, self.inode, self.born.unwrap_or_default())
    }
}

impl Identity {
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        let Some(record) = read_if_exists(path)? else { return Ok(None) };
        let damaged =
            || format!("cannot use {}: it is damaged; restore it from a backup", path.display());
        Self::parse(&record).with_context(damaged).map(Some)
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let external = self.external.map(|id| id.to_string()).unwrap_or_default();
        let mut record =
            format!("id {}\nfolder {}\nexternal {external}\npath ", self.id, self.folder)
                .into_bytes();
        record.extend(self.path.as_os_str().as_bytes());
        record.push(b'\n');
        write_private(path, &record)
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let mut lines = record.strip_suffix(b"\n")?.splitn(4, |byte| *byte == b'\n');
        let mut value = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        let id = Uuid::try_parse_ascii(value("id ")?).ok()?;
        let folder = FolderId::parse(std::str::from_utf8(value("folder ")?).ok()?)?;
        let external = match std::str::from_utf8(value("external ")?).ok()? {
            "" => None,
            recorded => Some(FolderId::parse(recorded)?),
        };
        // Last, because a path may contain a line feed.
        let path = PathBuf::from(OsStr::from_bytes(value("path ")?));
        Some(Self { id, folder, external, path })
    }

    /// Compares the recorded folder with `own` at `path`, to which the record belongs now.
    pub(super) fn origin(&self, own: FolderId, path: &Path) -> Origin {
        if self.folder == own {
            return Origin::Same;
        }
        if self.is_original_present(own) {
            return Origin::CopyOfPresent;
        }
        Origin::Moved { is_copy: !own.is_recorded(self.folder, path == self.path) }
    }

    fn is_original_present(&self, own: FolderId) -> bool {
        let there = FolderId::of(&self.path);
        if !there.is_ok_and(|there| there != own && there.is_recorded(self.folder, true)) {
            return false;
        }
        match Self::read(&self.path.join("id")) {
            Ok(other) => other.is_some_and(|other| other.id == self.id),
            // It is another user's, and its inode is the recorded one.
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &str) -> Identity {
        let folder = FolderId { device: 1, inode: 2, born: Some(3) };
        Identity { id: Uuid::new_v4(), folder, external: None, path: PathBuf::from(path) }
    }

    #[test]
    fn record_survives_any_path() {
        let folder = tempfile::tempdir().expect("a new folder");
        let path = folder.path().join("id");
        let without_birth = FolderId { device: 7, inode: 8, born: None };
        for mut written in [identity("/a"), identity("/a\nid b\n"), identity("/ä ö\n")] {
            written.external = Some(without_birth);
            written.write(&path).expect("it can be written");
            assert_eq!(Identity::read(&path).expect("it can be read"), Some(written));
        }
        assert_eq!(Identity::parse(b""), None);
        assert_eq!(Identity::parse(b"id 1\n"), None);
    }

    #[test]
    fn reused_inode_is_not_the_same_folder() {
        let folder = FolderId { device: 1, inode: 2, born: Some(3) };
        assert!(folder.is_recorded(FolderId { device: 9, ..folder }, false));
        assert!(!folder.is_recorded(FolderId { born: Some(4), ..folder }, true));
        assert!(!folder.is_recorded(FolderId { device: 9, born: None, ..folder }, false));
        assert!(folder.is_recorded(FolderId { born: None, ..folder }, false));
    }

    #[test]
    fn original_elsewhere_is_not_present() {
        let path = Path::new("/");
        let own = FolderId::of(path).expect("it exists");
        assert_eq!(identity("/nonexistent").origin(own, path), Origin::Moved { is_copy: true });
        let renamed = Identity { folder: own, ..identity("/nonexistent") };
        assert_eq!(renamed.origin(own, path), Origin::Same);
    }

    #[test]
    fn remount_without_birth_time_is_no_copy() {
        let path = Path::new("/nonexistent");
        let folder = FolderId { device: 1, inode: 2, born: None };
        let recorded = Identity { folder, ..identity("/nonexistent") };
        let remounted = FolderId { device: 9, ..folder };
        assert_eq!(recorded.origin(remounted, path), Origin::Moved { is_copy: false });
        let elsewhere = recorded.origin(remounted, Path::new("/elsewhere"));
        assert_eq!(elsewhere, Origin::Moved { is_copy: true });
    }
}
