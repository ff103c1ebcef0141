//! The course: a learner writes a lock in two functions, and each level breaks it by one more
//! fault.
//!
//! A check is a judgement with the faults of the level; the rules of the level say whether it is
//! passed. The helper files in `course/` hide the judge's protocol, by which the worker also calls
//! Redis and Postgres, so that a learner installs nothing but the language.
//!
//! Reading order: `levels`, `folder`, `check`, `text`. Tests: `tests/alone/course.rs`; all levels,
//! with ten seeds: `script/test-course`.

mod check;
mod folder;
mod levels;
mod tasks;
mod text;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use self::folder::{CourseFolder, CourseLanguage};
use holdfast_base::messages::Language;

pub use self::check::{CheckArgs, CheckResult, check};
pub use self::levels::{LAST_LEVEL, LevelFinding};
pub use self::tasks::{document, task_text};
pub use self::text::{CheckHead, head};

#[derive(Debug, Clone, Subcommand)]
pub enum CourseCommand {
    /// Make a folder with two empty functions and the first task
    New {
        /// Language of the lock
        language: CourseLanguage,
        /// The folder; it is created, or must be empty
        folder: PathBuf,
    },
    /// Judge the lock at the learner's level; exit code 0: passed, 1: not passed, 2: it could not
    /// be judged
    Check(CheckArgs),
    /// Show the levels, and which are passed
    Status {
        /// Folder of the course
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
}

/// The text that a command of the course prints, and whether its answer is yes.
#[derive(Debug)]
pub struct CourseAnswer {
    pub text: String,
    pub yes: bool,
}

/// Makes a folder. Fails if it exists and has files.
pub fn create(language: CourseLanguage, folder: &Path) -> anyhow::Result<CourseAnswer> {
    let edition = Language::of_environment();
    let next = folder::create(language, folder, edition)?.text(edition);
    let command = format!("holdfast course check {}", folder::quote(folder));
    let task = tasks::task(1, edition);
    Ok(CourseAnswer { text: format!("{task}\n\n{next}\n\n  {command}\n"), yes: true })
}

pub fn status(folder: &Path) -> anyhow::Result<CourseAnswer> {
    let folder = CourseFolder::open(folder)?;
    let text = text::status(&folder.progress()?, Language::of_environment());
    Ok(CourseAnswer { text, yes: true })
}

/// Shows the next hint of the level; the last one again after it. Of a level that was chosen, all.
pub fn hint(folder: &Path, level: Option<u32>) -> anyhow::Result<CourseAnswer> {
    let folder = CourseFolder::open(folder)?;
    let mut progress = folder.progress()?;
    if let Some(level) = level {
        let language = Language::of_environment();
        let hints = (1..=text::HINTS).map(|number| text::hint(level, number, language));
        return Ok(CourseAnswer { text: hints.collect(), yes: true });
    }

    progress.hints = (progress.hints + 1).min(text::HINTS);
    folder.store(&progress)?;
    let text = text::hint(progress.checked_level(), progress.hints, Language::of_environment());
    Ok(CourseAnswer { text, yes: true })
}

/// Says whether the level is passed, and why not.
pub fn describe(check: &CheckResult) -> CourseAnswer {
    CourseAnswer { text: text::describe(check, Language::of_environment()), yes: check.passed() }
}
