//! `holdfast judge new`: the adapter of a judged lock, which a user changes into that of their own,
//! with the file that speaks the protocol.

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

macro_rules! judge_file {
    ($name:literal) => {
        include_str!(concat!("../../../judge/", $name))
    };
}

/// How the adapters here name the file with the protocol, and how a new one does.
const PROTOCOLS: [(&str, &str); 4] = [
    ("../common/adapter.js", "./adapter.js"),
    ("/../common/adapter.php", "/adapter.php"),
    // It may not use all of it.
    ("use judge_adapter::", "\n#[allow(dead_code)]\nmod adapter;\n\nuse adapter::"),
    ("judge_adapter::", "adapter::"),
];

impl AdapterLanguage {
    /// Returns the files: name and content, that of the lock first.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Python => &[
                ("lock.py", judge_file!("redis-py/lock.py")),
                ("adapter.py", judge_file!("common/adapter.py")),
            ],
            Self::Javascript => &[
                ("lock.js", judge_file!("sesamecare-redlock/lock.js")),
                ("adapter.js", judge_file!("common/adapter.js")),
                ("package.json", judge_file!("sesamecare-redlock/package.json")),
            ],
            Self::Rust => &[
                ("src/main.rs", judge_file!("async-redis-lock/src/main.rs")),
                ("src/adapter.rs", judge_file!("common/rust/src/lib.rs")),
                ("Cargo.toml", include_str!("new_adapter.toml")),
            ],
            Self::Php => &[
                ("lock.php", judge_file!("symfony-lock/lock.php")),
                ("adapter.php", judge_file!("common/adapter.php")),
            ],
        }
    }

    /// Returns how to get the library, and the command of the adapter.
    fn commands(self) -> [&'static str; 2] {
        match self {
            Self::Python => ["pip install redis", "python3 lock.py"],
            Self::Javascript => ["npm install", "node lock.js"],
            Self::Rust => ["cargo build --release", "target/release/my-lock"],
            Self::Php => ["apt-get install php-cli php-redis php-symfony-lock", "php lock.php"],
        }
    }
}

/// Writes an adapter into a folder; returns what to do with it. Overwrites nothing.
pub fn write_adapter(language: AdapterLanguage, folder: &Path) -> anyhow::Result<String> {
    let files = language.files();
    if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
        bail!("{} exists: choose another folder", folder.join(name).display());
    }

    for (name, content) in files {
        let path = folder.join(name);
        let content = PROTOCOLS
            .iter()
            .fold((*content).to_owned(), |content, (here, there)| content.replace(here, there));
        fs::create_dir_all(path.parent().unwrap_or(folder))
            .and_then(|()| fs::write(&path, content))
            .with_context(|| format!("can't write {}", path.display()))?;
    }

    let [get, run] = language.commands();
    let file = folder.join(files[0].0);
    Ok(format!(
        "This is the adapter of a lock that is judged already; put yours into {}:\n\n  cd {}\n  \
         {get}\n  holdfast judge -- {run}\n",
        file.display(),
        folder.display()
    ))
}
