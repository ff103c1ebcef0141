//! The course: a learner writes a lock in two functions, and each level breaks it by one more fault.
//!
//! A check is a judgement with the faults of the level; the rules of the level say whether it is
//! passed. The helper files in `course/` hide the judge's protocol, and bring a client for Redis and
//! one for Postgres, so that a learner installs nothing but the language.
//!
//! Reading order: `levels`, `folder`, `text`. Tests: `tests/alone/course.rs`, and all levels with
//! ten seeds: `script/test-course`.

mod folder;
mod levels;
mod text;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use self::folder::{Check, CourseFolder, Language};
use self::levels::Finding;
use crate::adapter::NOT_ANSWERED;
use crate::report::Judgement;
use crate::run::NO_GRANT;
use holdfast_base::message;
use holdfast_base::messages::Language as Edition;

pub use self::levels::LAST_LEVEL;

#[derive(Debug, Clone, Subcommand)]
pub enum CourseCommand {
    /// Make a folder with two empty functions and the first task
    New {
        /// Language of the lock
        language: Language,
        /// The folder; it is created, or must be empty
        folder: PathBuf,
    },
    /// Judge the lock at the learner's level; exit code 0: passed, 1: not passed, 2: it could not be
    /// judged
    Check(CheckArgs),
    /// Show the levels, and which are passed
    Status {
        /// Folder of the course
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Folder of the course
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Seed of the random choices [default: a random one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Show one more hint for the level, without a check
    #[arg(long)]
    pub hint: bool,
    /// Judge at this level, and leave the progress as it is
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(LAST_LEVEL)))]
    pub level: Option<u32>,
}

/// What a command of the course says, and whether its answer is yes.
#[derive(Debug)]
pub struct CourseAnswer {
    pub text: String,
    pub yes: bool,
}

/// A check, to be described once its page is written.
#[derive(Debug)]
pub struct CheckResult {
    pub judgement: Judgement,
    /// Where the page of the judgement belongs.
    pub page: PathBuf,
    level: u32,
    lock_file: &'static str,
    findings: Vec<Finding>,
    /// The level was chosen, so that the progress was not changed.
    is_chosen: bool,
}

/// Makes a folder. Fails if it exists and has files.
pub fn create(language: Language, folder: &Path) -> anyhow::Result<CourseAnswer> {
    let edition = Edition::of_environment();
    let next = folder::create(language, folder, edition)?.text(edition);
    let command = format!("holdfast course check {}", text::quote(folder));
    let task = text::task(1, edition);
    Ok(CourseAnswer { text: format!("{task}\n\n{next}\n\n  {command}\n"), yes: true })
}

pub fn status(folder: &Path) -> anyhow::Result<CourseAnswer> {
    let folder = CourseFolder::open(folder)?;
    let text = text::status(&folder.progress()?, Edition::of_environment());
    Ok(CourseAnswer { text, yes: true })
}

/// Shows the next hint of the level; the last one again after it.
pub fn hint(folder: &Path) -> anyhow::Result<CourseAnswer> {
    let folder = CourseFolder::open(folder)?;
    let mut progress = folder.progress()?;
    progress.hints = (progress.hints + 1).min(text::HINTS);
    folder.store(&progress)?;
    let text = text::hint(progress.checked_level(), progress.hints, Edition::of_environment());
    Ok(CourseAnswer { text, yes: true })
}

/// Judges the lock of a folder, and keeps the progress. Must be called from the main thread, with
/// which its processes end.
pub async fn check(args: &CheckArgs) -> anyhow::Result<CheckResult> {
    let folder = CourseFolder::open(&args.folder)?;
    let mut progress = folder.progress()?;
    let language = progress.language;
    prepare(language, &folder.path)?;

    let level = args.level.unwrap_or_else(|| progress.checked_level());
    let plan = levels::judge_args(level, args.seed, language.command(&folder.path));
    let limit_s = plan.answer_timeout_s;
    let judged = Box::pin(crate::judge(&plan)).await;
    let judgement = judged.map_err(|error| explain(error, limit_s))?;

    let findings = levels::examine(level, &judgement);
    if args.level.is_none() {
        let passed = findings.iter().all(|finding| finding.holds);
        let at = OffsetDateTime::now_utc().format(&Rfc3339)?;
        progress.record(Check { level, passed, seed: judgement.seed, at });
        folder.store(&progress)?;
    }

    Ok(CheckResult {
        page: folder.path.join("check.html"),
        lock_file: language.lock_file(),
        is_chosen: args.level.is_some(),
        judgement,
        level,
        findings,
    })
}

impl CheckResult {
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }

    pub fn answer(&self) -> CourseAnswer {
        let text = text::describe(self, Edition::of_environment());
        CourseAnswer { text, yes: self.passed() }
    }
}

/// Checks that the language is installed, and compiles the lock if it has to be.
fn prepare(language: Language, folder: &Path) -> anyhow::Result<()> {
    let (program, how) = language.program();
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        let missing = message!("course-missing-program", program, how);
        bail!("{}", missing.text(Edition::of_environment()));
    }

    if language == Language::Rust {
        let mut build = Command::new(program);
        build.args(["build", "--release", "--quiet", "--manifest-path"]);
        build.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(folder.join("target"));
        let status = build.status().context("can't run cargo")?;
        if !status.success() {
            bail!("{} does not compile (see above)", language.lock_file());
        }
    }
    Ok(())
}

/// Says in the words of the course what the judge could not judge.
fn explain(error: anyhow::Error, limit_s: u64) -> anyhow::Error {
    let edition = Edition::of_environment();
    let text = format!("{error:#}");
    if text.contains(NO_GRANT) && !text.contains("last error") {
        return anyhow!(edition.text("course-empty"));
    }
    if text.contains(NOT_ANSWERED) {
        return anyhow!(message!("course-endless", seconds = limit_s).text(edition));
    }
    error
}
