//! The folder of a learner: the files that `new` writes, and the progress.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::levels::LAST_LEVEL;
use super::tasks::task_text;
use holdfast_base::message;
use holdfast_base::messages::{Language, Message};

const PROGRESS: &str = ".course.json";
const VERSION: u32 = 1;

/// A language in which the lock is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CourseLanguage {
    Python,
    Javascript,
    Rust,
}

macro_rules! files {
    ($folder:literal: $($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../course/", $folder, "/", $name)))),*]
    };
}

impl CourseLanguage {
    /// Returns the files of a new folder: name and content, the learner's own one first.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Python => files!("python": "lock.py", "holdfast_course.py"),
            Self::Javascript => files!("javascript": "lock.js", "holdfast_course.js"),
            Self::Rust => files!("rust": "src/lock.rs", "src/main.rs", "Cargo.toml"),
        }
    }

    /// Returns the file that the learner writes.
    pub(super) fn lock_file(self) -> &'static str {
        self.files()[0].0
    }

    pub(super) fn helper_file(self) -> &'static str {
        self.files()[1].0
    }

    /// Returns the program that runs or compiles the lock, and how to get it.
    pub(super) fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => ("python3", "https://www.python.org (3.9+)"),
            Self::Javascript => ("node", "https://nodejs.org (18+)"),
            Self::Rust => ("cargo", "https://rustup.rs"),
        }
    }

    /// Returns the command that runs the adapter in this folder.
    pub(super) fn command(self, folder: &Path) -> Vec<String> {
        let path = |name: &str| folder.join(name).display().to_string();
        match self {
            Self::Python => vec!["python3".to_owned(), "-B".to_owned(), path(self.helper_file())],
            Self::Javascript => vec!["node".to_owned(), path(self.helper_file())],
            Self::Rust => vec![path("target/release/lock")],
        }
    }
}

/// The progress of a learner, in `.course.json`: no name, no password, no code.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CourseProgress {
    version: u32,
    pub(super) language: CourseLanguage,
    /// The first level that was not passed; above the last one after all of them.
    pub(super) level: u32,
    /// Hints of this level that were shown.
    #[serde(default)]
    pub(super) hints: usize,
    #[serde(default)]
    pub(super) checks: Vec<LevelCheck>,
}

/// A check at the level of the progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LevelCheck {
    pub(super) level: u32,
    pub(super) passed: bool,
    pub(super) seed: u64,
    /// RFC 3339, UTC.
    pub(super) at: String,
}

impl CourseProgress {
    pub(super) fn is_complete(&self) -> bool {
        self.level > LAST_LEVEL
    }

    /// Returns the level at which the lock is checked: after all levels, the last one.
    pub(super) fn checked_level(&self) -> u32 {
        self.level.min(LAST_LEVEL)
    }

    pub(super) fn record(&mut self, check: LevelCheck) {
        if check.passed && check.level == self.level {
            self.level += 1;
            self.hints = 0;
        }
        self.checks.push(check);
    }
}

/// A folder that this process alone works in.
#[derive(Debug)]
pub(super) struct CourseFolder {
    pub(super) path: PathBuf,
    /// Holds the lock of the folder, which ends with the process.
    _lock: File,
}

impl CourseFolder {
    /// Opens a folder of `holdfast course new`. Fails if another process works in it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        if !path.join(PROGRESS).is_file() {
            bail!(
                "{shown} is no folder of the course: it has no {PROGRESS}. Make one by `holdfast \
                 course new python DIR`, or name yours: `holdfast course check DIR`"
            );
        }

        let path = path.canonicalize().with_context(|| format!("can't open {shown}"))?;
        let lock = File::open(&path).with_context(|| format!("can't open {shown}"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another `holdfast course` works in {shown}: wait until it ends")
            }
            Err(error) => Err(error).with_context(|| format!("can't lock {shown}")),
        }
    }

    pub(super) fn progress(&self) -> anyhow::Result<CourseProgress> {
        let file = self.path.join(PROGRESS);
        let shown = file.display();
        let text = fs::read_to_string(&file).with_context(|| format!("can't read {shown}"))?;
        let progress: CourseProgress = serde_json::from_str(&text).with_context(|| {
            format!("{shown} is damaged: remove it, and copy that of a new folder of the course")
        })?;
        if progress.version != VERSION || progress.level == 0 || progress.level > LAST_LEVEL + 1 {
            bail!(
                "{shown} is of another version of the course ({}, level {}); this one has version \
                 {VERSION} and {LAST_LEVEL} levels",
                progress.version,
                progress.level
            );
        }
        Ok(progress)
    }

    /// Replaces the progress as a whole: a reader never sees a part of it.
    pub(super) fn store(&self, progress: &CourseProgress) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(progress)? + "\n";
        write_whole(&self.path.join(PROGRESS), &json)
    }
}

fn write_whole(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("json.new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.with_context(|| format!("can't write {}", file.display()))
}

/// Creates the folder of a learner; an existing one must be empty. Returns what to do next.
pub(super) fn create(
    language: CourseLanguage,
    folder: &Path,
    edition: Language,
) -> anyhow::Result<Message> {
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("can't create {shown}"))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("can't read {shown}"))?;
    if entries.next().is_some() {
        bail!("{}", message!("course-new-exists", folder = shown).text(edition));
    }

    for (name, content) in language.files() {
        write_file(&folder.join(name), content)?;
    }
    write_file(&folder.join("README.md"), &readme(language, edition))?;
    // Last: without it, the folder is none of the course.
    let progress =
        CourseProgress { version: VERSION, language, level: 1, hints: 0, checks: Vec::new() };
    write_whole(&folder.join(PROGRESS), &(serde_json::to_string_pretty(&progress)? + "\n"))?;
    Ok(message!("course-new", folder = shown, file = language.lock_file()))
}

fn write_file(path: &Path, content: &str) -> anyhow::Result<()> {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written: io::Result<()> = parent.and_then(|()| fs::write(path, content));
    written.with_context(|| format!("can't write {}", path.display()))
}

fn readme(language: CourseLanguage, edition: Language) -> String {
    let text = |id: &str| edition.text(id);
    let files = message!(
        "course-readme-files",
        file = language.lock_file(),
        helper = language.helper_file()
    );
    let commands = message!("course-readme-commands", file = language.lock_file());
    format!(
        "# {}\n\n{}\n\n{}\n\n{}\n\n## {}\n\n{}\n",
        text("course-title"),
        text("course-how"),
        files.text(edition),
        commands.text(edition),
        text("course-readme-first"),
        task_text(1, edition),
    )
}

/// Quotes a path for a shell if it must be.
pub(super) fn quote(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
