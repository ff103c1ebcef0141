//! The clocks of the adapters under `clock-jump`: each reads its offset from a file, by
//! libfaketime.

use std::fs;
use std::path::{Path, PathBuf};

/// The library for programs with several threads, in the folder of libraries.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// Offsets as libfaketime reads them, an hour apart. None is negative: the monotonic clock moves,
/// too, and of a machine that was just started it would be below zero.
const BEHIND: &str = "+0s";
const USUAL: &str = "+3600s";
const AHEAD: &str = "+7200s";

/// One clock for each worker.
#[derive(Debug)]
pub(super) struct Clocks {
    files: Vec<PathBuf>,
    library: PathBuf,
}

impl Clocks {
    /// Makes a file for each worker, of which `behind` is an hour behind. `file` is that of the
    /// first one.
    pub(super) fn start(
        file: &Path,
        library: PathBuf,
        workers: u32,
        behind: u32,
    ) -> std::io::Result<Self> {
        let files = (0..workers).map(|worker| file.with_extension(worker.to_string()));
        let clocks = Self { files: files.collect(), library };
        for worker in 0..workers {
            clocks.set(worker, if worker == behind { BEHIND } else { USUAL })?;
        }
        Ok(clocks)
    }

    /// Sets a worker's clock an hour ahead of the others.
    pub(super) fn jump(&self, worker: u32) -> std::io::Result<()> {
        self.set(worker, AHEAD)
    }

    fn set(&self, worker: u32, offset: &str) -> std::io::Result<()> {
        fs::write(&self.files[worker as usize], offset)
    }

    /// Returns the environment of an adapter that has this clock. Its monotonic clock has the
    /// offset, too: libfaketime 0.9.10 can't spare that one without breaking the sleeps of Python
    /// 3.11.
    pub(super) fn environment(&self, worker: u32) -> [(String, String); 3] {
        let settings = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.files[worker as usize].display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value))
    }
}

/// Returns the library that moves the clock of an adapter, if it is installed below `root`.
pub(super) fn find_faketime(root: &Path) -> Option<PathBuf> {
    // Debian has a folder per architecture: this one's is first. Those of others are last, for the
    // architectures whose folders have other names.
    let own = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut folders: Vec<PathBuf> = [own.as_str(), "usr/lib64", "usr/lib", "usr/local/lib64"]
        .map(|folder| root.join(folder))
        .into();
    folders.push(root.join("usr/local/lib"));
    folders.push(root.join("home/linuxbrew/.linuxbrew/lib"));
    let others = fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
    folders.extend(others.map(|entry| entry.path()));

    let mut libraries = folders.iter().map(|folder| folder.join(FAKETIME));
    libraries.find(|library| library.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faketime_is_found_where_distributions_have_it() {
        let root = std::env::temp_dir().join(format!("hf-faketime-{}", std::process::id()));
        let own = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        assert_eq!(find_faketime(&root), None);
        // Each is preferred to those before it.
        for folder in ["usr/lib/other-linux-gnu", "usr/local/lib64", "usr/lib64", &own] {
            let library = root.join(folder).join(FAKETIME);
            fs::create_dir_all(library.parent().expect("a folder")).expect("it is ours");
            fs::write(&library, "").expect("it is ours");
            assert_eq!(find_faketime(&root), Some(library));
        }
        fs::remove_dir_all(root).expect("it is ours");
    }
}
