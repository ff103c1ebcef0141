//! Creates files and folders with exactly one mode, and opens them only if no other user can have
//! placed them there.
//!
//! Guarantees: a file is not reached through a symbolic link and belongs to the current user; so
//! does the data folder. For root, whom a planted file could make overwrite anything: no other user
//! can replace the data folder or a folder above it. An ordinary user's folders above are trusted,
//! because that user's own files are all that is at stake. No umask changes a mode: another account
//! must be able to pass through root's folders. Tests: `tests/alone/up/mod.rs`.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown,
};
use std::path::{Path, PathBuf, absolute};

use anyhow::{Result, anyhow, bail, ensure};
use rustix::fs::OFlags;
use rustix::process::geteuid;

const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a folder with this bit, such as `/tmp`, only the owner of an entry can replace it.
const STICKY: u32 = 0o1000;

/// Adds the path to an I/O error, whose message lacks it, or says what to do about a full disk.
pub(super) fn file<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> anyhow::Error + 'a {
    move |source| match source.kind() {
        ErrorKind::StorageFull => disk_full(path),
        _ => anyhow!("{what} {}: {source}", path.display()),
    }
}

pub(super) fn disk_full(path: &Path) -> anyhow::Error {
    anyhow!(
        "no space is left for {}: free some (a new shop needs about 200 MB), or use a folder on \
         another disk: --data FOLDER",
        path.display()
    )
}

/// Opens a file of the current user. Does not follow a symbolic link.
pub(super) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_no_follow(path, options, OFlags::empty())?;
    // Of the open file: the path may lead to another one by now.
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file; remove it"));
    }
    if meta.uid() != geteuid().as_raw() {
        let why = format!("it belongs to another user (uid {}); remove it", meta.uid());
        return Err(io::Error::other(why));
    }
    Ok(file)
}

/// Opens and locks a file, until it is dropped; `None` if another process has locked it.
pub(super) fn try_lock(path: &Path) -> Result<Option<File>> {
    let mut options = OpenOptions::new();
    // Not truncated: another holder's file says who that is.
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let lock = open_own(path, &mut options).map_err(file("cannot open", path))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(file("cannot lock", path)(error)),
    }
}

pub(super) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    let read = open_own(path, OpenOptions::new().read(true))
        .and_then(|mut file| file.read_to_end(&mut contents));
    match read {
        Ok(_) => Ok(Some(contents)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file("cannot read", path)(error)),
    }
}

/// Writes a file that only its owner can read, atomically, also for a power cut.
pub(super) fn write_private(path: &Path, contents: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    // Left by a killed process. A link that is placed here after that is refused by `create_new`.
    let _ = fs::remove_file(&new);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut new| {
            new.set_permissions(Permissions::from_mode(0o600))?;
            new.write_all(contents)?;
            // Otherwise a power cut can leave the new name with an empty file.
            new.sync_all()
        })
        .and_then(|()| fs::rename(&new, path))
        .map_err(file("cannot write", path))
}

/// Creates a data folder, if necessary, and returns its path without symbolic links. Rejects a
/// folder of another user. As root, the services' user must be able to traverse it.
pub(super) fn create_data_folder(path: &Path) -> Result<PathBuf> {
    // Before root creates anything there; and again below, without the links of the path.
    check_path(path)?;
    create_folder(path, if geteuid().is_root() { 0o711 } else { 0o700 })?;

    let path = fs::canonicalize(path).map_err(file("cannot find", path))?;
    check_folder(&path)?;
    Ok(path)
}

/// Creates a folder and those above it with this mode; an existing folder keeps its own.
pub(super) fn create_folder(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }

    if fs::symlink_metadata(path).is_ok() {
        bail!(
            "{} is not a folder. Use another one, which is created if it does not exist: --data \
             FOLDER",
            path.display()
        );
    }

    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_folder(parent, mode)?;
    }
    create_new_folder(path, mode).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => anyhow!(
            "cannot make the folder {}: {error}. Use one where you (uid {}) may: --data \
             FOLDER",
            absolute(path).unwrap_or_else(|_| path.to_owned()).display(),
            geteuid().as_raw()
        ),
        _ => file("cannot make the folder", path)(error),
    })
}

pub(super) fn create_new_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // The umask may have removed permissions.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Gives a folder, and what root owns in it, to a user. Follows no symbolic link.
pub(super) fn change_owner(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    // The folder itself comes last: until then only root can replace anything in it.
    if meta.uid() == 0 && meta.mode() & WRITABLE_BY_OTHERS == 0 {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.uid() != 0 {
                continue;
            }
            if meta.is_dir() {
                change_owner(&entry.path(), uid, gid)?;
            } else if meta.nlink() == 1 {
                // A file with a second name may be one that root has elsewhere.
                lchown(entry.path(), Some(uid), Some(gid))?;
            }
        }
    }

    let folder = open_no_follow(folder, OpenOptions::new().read(true), OFlags::DIRECTORY)?;
    fchown(folder, Some(uid), Some(gid))
}

fn open_no_follow(path: &Path, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW;
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| {
        // The system's own words are "too many levels of symbolic links".
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
            io::Error::other("it is a symbolic link, which is not followed; remove it")
        } else {
            error
        }
    })
}

/// Checks, as root, that no other user can replace an existing part of this path.
pub(super) fn check_path(path: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let path = absolute(path).map_err(file("cannot find", path))?;

    for part in path.ancestors() {
        // What does not exist is created inside the parts that do.
        let Ok(meta) = fs::symlink_metadata(part) else { continue };
        check_owner(part, &meta)?;
        // Not for the folder itself, to which others could add files.
        let is_sticky = meta.mode() & STICKY != 0 && part != path;
        ensure!(
            meta.is_symlink() || meta.mode() & WRITABLE_BY_OTHERS == 0 || is_sticky,
            "other users can write to {}, and so replace what root trusts there. Remove their \
             permission with `chmod go-w`, or use another folder: --data FOLDER",
            part.display()
        );
    }
    Ok(())
}

/// Checks that a folder, without symbolic links in its path, is the current user's.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path).map_err(file("cannot read the owner of", path))?;
    ensure!(meta.is_dir(), "cannot use {}: it is not a folder; remove it", path.display());
    check_owner(path, &meta)?;
    check_path(path)
}

pub(super) fn check_owner(path: &Path, meta: &Metadata) -> Result<()> {
    ensure!(
        meta.uid() == geteuid().as_raw(),
        "{} belongs to another user (uid {}). Start Holdfast as that user, or use another folder: \
         --data FOLDER",
        path.display(),
        meta.uid()
    );
    Ok(())
}
