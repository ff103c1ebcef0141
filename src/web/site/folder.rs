//! Where the site is written, and what it is made of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The parts of a site beside its recordings.
#[derive(Debug)]
pub struct Sources {
    /// The repository's folder, with `docs/`.
    pub repository: PathBuf,
    /// PGlite's package; without it, the scheduler's recordings play.
    pub pglite: Option<PathBuf>,
    /// The address that the site will have, with a slash at its end; empty if it is not known.
    pub url: String,
}

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, with the folders that it lies in.
    pub fn write(&self, file: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let path = self.0.join(file);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
            fs::write(&path, content)
        };
        write().with_context(|| format!("can't write {}", path.display()))
    }
}
