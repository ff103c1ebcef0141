//! A check: the lock is compiled if it has to be, judged, and compared with the rules of its level.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::folder::{Check, CourseFolder, Language};
use super::levels::{self, Finding, LAST_LEVEL};
use crate::adapter::NOT_ANSWERED;
use crate::report::Judgement;
use crate::run::NO_GRANT;
use holdfast_base::message;
use holdfast_base::messages::Language as Edition;

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
    pub(super) findings: Vec<Finding>,
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
    let plan = levels::judge_args(level, args.seed, language.command(&folder.path));
    let limit_s = plan.answer_timeout_s;
    let judged = Box::pin(crate::judge(&plan)).await;
    let judgement = judged.map_err(|error| explain(error, limit_s))?;

    let findings = levels::examine(level, &judgement);
    let hints = progress.hints;
    if args.level.is_none() {
        let passed = findings.iter().all(|finding| finding.holds);
        let at = OffsetDateTime::now_utc().format(&Rfc3339)?;
        progress.record(Check { level, passed, seed: judgement.seed, at });
        folder.store(&progress)?;
    }

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
fn prepare(language: Language, folder: &Path) -> anyhow::Result<()> {
    for file in [language.lock_file(), language.helper_file()] {
        if !folder.join(file).is_file() {
            let missing = message!("course-missing-file", file, folder = folder.display());
            bail!("{}", missing.text(Edition::of_environment()));
        }
    }

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
    if let Some(said) = said_by_helper(&text) {
        return anyhow!(said);
    }
    if text.contains(NO_GRANT) && !text.contains("last error") {
        return anyhow!(edition.text("course-empty"));
    }
    if text.contains(NOT_ANSWERED) {
        return anyhow!(message!("course-endless", seconds = limit_s).text(edition));
    }
    error
}

/// Returns the lines with which the learner's helper has ended the check, without what the judge
/// says about its exit.
fn said_by_helper(text: &str) -> Option<String> {
    let (_, said) = text.split_once("(exit status: 3). The end of its stderr:\n")?;
    let mut lines: Vec<&str> = said.lines().map(|it| it.strip_prefix("  ").unwrap_or(it)).collect();
    // Several clients find the same mistake.
    lines.dedup();
    Some(lines.join("\n"))
}
