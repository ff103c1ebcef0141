//! `holdfast judge new`: the adapter of a simple lock, which a user replaces by their own, with the
//! file that speaks the protocol.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;

/// A language for which there is a file with the protocol.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AdapterLanguage {
    Python,
    Javascript,
    Rust,
    Php,
}

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../new/", $name))
    };
}

macro_rules! protocol {
    ($name:literal) => {
        include_str!(concat!("../../../judge/common/", $name))
    };
}

impl AdapterLanguage {
    /// Returns the files: name and content, that of the lock first.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Python => {
                &[("lock.py", template!("python/lock.py")), ("adapter.py", protocol!("adapter.py"))]
            }
            Self::Javascript => &[
                ("lock.js", template!("javascript/lock.js")),
                ("adapter.js", protocol!("adapter.js")),
            ],
            Self::Rust => &[
                ("src/main.rs", template!("rust/src/main.rs")),
                ("src/adapter.rs", protocol!("rust/src/lib.rs")),
                ("Cargo.toml", template!("rust/Cargo.toml")),
            ],
            Self::Php => &[
                ("lock.php", template!("php/lock.php")),
                ("adapter.php", protocol!("adapter.php")),
            ],
        }
    }
}

/// Writes an adapter into a folder; returns the file with the lock. Overwrites nothing.
pub fn write_adapter(
    language: AdapterLanguage,
    folder: &Path,
) -> anyhow::Result<std::path::PathBuf> {
    let files = language.files();
    if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
        bail!("{} exists: choose another folder", folder.join(name).display());
    }

    for (name, content) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(folder.join(files[0].0))
}
