//! A check: the lock is compiled if it has to be, judged, and compared with the rules of its level.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::folder::{CourseFolder, CourseLanguage, LevelCheck, quote};
use super::levels::{self, LAST_LEVEL, LevelFinding};
use crate::args::JudgeArgs;
use crate::failure::{FailureKind, JudgeFailure};
use crate::plan::ADAPTER_START;
use crate::report::Judgement;
use holdfast_base::message;
use holdfast_base::messages::{Language, Message};

/// Exit code of a helper that has said what is wrong.
const SAID_BY_HELPER: i32 = 3;

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
    /// Also write every request and answer as lines of JSON, for `holdfast judge check`
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}

/// A check, to be described once its page is written.
#[derive(Debug)]
pub struct CheckResult {
    pub judgement: Judgement,
    /// Where the page of the judgement belongs.
    pub page: PathBuf,
    pub(super) level: u32,
    /// As the learner names it.
    pub(super) folder: PathBuf,
    pub(super) lock_file: &'static str,
    /// Hints of this level that were shown.
    pub(super) hints: usize,
    pub(super) findings: Vec<LevelFinding>,
    /// The level was chosen, so that the progress was not changed.
    pub(super) is_chosen: bool,
}

impl CheckResult {
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }
}

/// Judges the lock of a folder, and keeps the progress. Must be called from the main thread, with
/// which its processes end.
pub async fn check(args: &CheckArgs) -> anyhow::Result<CheckResult> {
    let folder = CourseFolder::open(&args.folder)?;
    let mut progress = folder.progress()?;
    let language = progress.language;
    prepare(language, &folder.path)?;

    let level = args.level.unwrap_or_else(|| progress.checked_level());
    let settings = levels::judge_args(level, args.seed, language.command(&folder.path));
    let plan = JudgeArgs { history: args.history.clone(), ..settings };
    let limit_s = plan.answer_timeout_s;
    let judged = Box::pin(crate::judge(&plan, &crate::Demands::default())).await;
    let judgement = judged.map_err(|error| explain(error, limit_s))?;

    let findings = levels::examine(level, &judgement);
    if args.level.is_none() {
        let broken = findings.iter().find(|finding| !finding.holds);
        let at = OffsetDateTime::now_utc().format(&Rfc3339)?;
        progress.record(LevelCheck { level, passed: broken.is_none(), seed: judgement.seed, at });
        let is_about_level = broken.is_some_and(|finding| finding.added_by() >= level);
        if is_about_level && levels::failed_calls(&judgement).is_none() {
            // The first one is shown with this check.
            progress.hints = progress.hints.max(1);
        }
        folder.store(&progress)?;
    }
    let hints = progress.hints;

    Ok(CheckResult {
        page: folder.path.join("check.html"),
        folder: args.folder.clone(),
        lock_file: language.lock_file(),
        hints,
        is_chosen: args.level.is_some(),
        judgement,
        level,
        findings,
    })
}

/// Checks that the files are there and the language is installed, and compiles the lock if it has
/// to be.
fn prepare(language: CourseLanguage, folder: &Path) -> anyhow::Result<()> {
    for file in [language.lock_file(), language.helper_file()] {
        if !folder.join(file).is_file() {
            let missing = message!("course-missing-file", file, folder = folder.display());
            bail!("{}", missing.text(Language::of_environment()));
        }
    }

    let (program, how) = language.program();
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    // A program of a version manager that has no version to run exists, and fails.
    if !version.is_ok_and(|status| status.success()) {
        let missing = message!("course-missing-program", program, how);
        bail!("{}", missing.text(Language::of_environment()));
    }

    if language == CourseLanguage::Rust {
        compile(language.lock_file(), folder)?;
    }
    Ok(())
}

/// Compiles a lock in Rust, and shows what cargo says.
fn compile(lock_file: &str, folder: &Path) -> anyhow::Result<()> {
    let edition = Language::of_environment();
    let manifest = folder.join("Cargo.toml");
    // It writes to a pipe, and would leave out the colours.
    let color = if io::stderr().is_terminal() { "always" } else { "never" };
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--color", color, "--manifest-path"]);
    build.arg(&manifest).arg("--target-dir").arg(folder.join("target"));
    let built = build.stdin(Stdio::null()).output().context("can't run cargo")?;

    let _ = io::stderr().write_all(&built.stderr);
    if built.status.success() {
        return Ok(());
    }
    let failed = message!("course-not-compiled", file = lock_file).text(edition);
    let Some(name) = missing_crate(&String::from_utf8_lossy(&built.stderr)) else { bail!(failed) };
    let how = message!("course-missing-crate", name, manifest = quote(&manifest)).text(edition);
    bail!("{failed} {how}")
}

/// Returns the first name that the compiler takes for a crate which `Cargo.toml` does not have.
fn missing_crate(said: &str) -> Option<String> {
    let (_, after) = said.split_once("a crate named `")?;
    Some(after.split_once('`')?.0.to_owned())
}

/// Says in the words of the course what the judge could not judge.
fn explain(error: anyhow::Error, limit_s: u64) -> anyhow::Error {
    let edition = Language::of_environment();
    let Some(failure) = error.downcast_ref::<JudgeFailure>() else { return error };

    match &failure.kind {
        FailureKind::Exited { code: Some(SAID_BY_HELPER) } => {
            let mut lines = failure.last_words.clone().unwrap_or_default();
            // Several clients find the same mistake.
            lines.dedup();
            // A lock may exit with this code, too, and say nothing.
            if lines.is_empty() { error } else { anyhow!(lines.join("\n")) }
        }
        FailureKind::NoGrant => anyhow!(edition.text("course-empty")),
        FailureKind::NotAnswered { operation } => {
            let (id, limit_s) = match operation.as_str() {
                "init" => ("course-endless-load", ADAPTER_START.as_secs() + limit_s),
                "release" => ("course-endless-release", limit_s),
                _ => ("course-endless", limit_s),
            };
            anyhow!(Message::new(id).with("seconds", limit_s).text(edition))
        }
        FailureKind::Exited { .. } | FailureKind::Other => error,
    }
}
