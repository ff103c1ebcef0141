//! Opens files and folders only if no other user can have placed them there.
//!
//! Guarantees: a file is not reached through a symbolic link and belongs to the current user; so
//! does the data folder. For root, whom a planted file could make overwrite anything: no other user
//! can replace the data folder or a folder above it. An ordinary user's folders above are trusted,
//! because that user's own files are all that is at stake. Tests: `tests/up.rs`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, absolute};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::error::{Error, Result, file};

/// Permission of the group or of others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a folder with this bit, such as `/tmp`, only the owner of an entry can replace it.
const STICKY: u32 = 0o1000;

/// Opens a file of the current user. Does not follow a symbolic link.
pub(super) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_no_follow(path, options, OFlags::empty())?;
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

/// Changes the owner of a folder. Does not follow a symbolic link.
pub(super) fn change_owner(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let folder = open_no_follow(folder, OpenOptions::new().read(true), OFlags::DIRECTORY)?;
    fchown(folder, Some(uid), Some(gid))
}

fn open_no_follow(path: &Path, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW;
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| {
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
        let is_sticky = meta.mode() & STICKY != 0 && part != path;
        if !meta.is_symlink() && meta.mode() & WRITABLE_BY_OTHERS != 0 && !is_sticky {
            return Err(Error::WritableByOthers { folder: part.to_owned() });
        }
    }
    Ok(())
}

/// Checks that a folder, without symbolic links in its path, is the current user's.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path).map_err(file("cannot read the owner of", path))?;
    if !meta.is_dir() {
        return Err(file("cannot use", path)(io::Error::other("it is not a folder; remove it")));
    }
    check_owner(path, &meta)?;
    check_path(path)
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<()> {
    if meta.uid() == geteuid().as_raw() {
        Ok(())
    } else {
        Err(Error::OwnedByOtherUser { folder: path.to_owned(), owner: meta.uid() })
    }
}
