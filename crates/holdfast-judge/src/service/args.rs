//! Options of `holdfast judge service`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use holdfast_base::flags::{list_part, whole_number};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::init::{self, Framework};
use super::pass::{Pass, Plan};
use super::recording::ScheduleRecording;
use super::report::ServiceJudgement;
use crate::demands::{Demands, check_files};

/// `holdfast judge service`
#[derive(Debug, Clone, Args)]
#[command(after_help = about_passes())]
pub struct ServiceArgs {
    /// File that describes the service
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write a commented file to start from, by default service.toml, and judge nothing
    #[arg(
        long,
        value_name = "FRAMEWORK",
        conflicts_with_all = ["faults", "attach", "may_lose", "baseline", "json", "html"]
    )]
    init: Option<Framework>,
    /// Passes to run besides control, separated by commas; or all [default: control, none, gate,
    /// retry]
    #[arg(long, value_name = "PASSES", value_delimiter = ',', value_parser = list_part)]
    faults: Vec<String>,
    /// Seed of the random choices [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// Run each pass so many times, each with the next seed, until the third run that finds
    /// something
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u32>(1..=1_000))]
    repeat: u32,
    /// Seconds for the schedules of the pass `interleavings`
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = whole_number::<u64>(1..=3_600))]
    budget: u64,
    /// Schedule that the pass `interleavings` has written, to run instead of all passes: exit code
    /// 2 if the service sends other statements now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["faults", "attach", "may_lose", "baseline"])]
    replay: Option<PathBuf>,
    /// URLs of a service that runs already, separated by commas, instead of those of the file
    #[arg(long, value_name = "URLS", value_delimiter = ',', value_parser = list_part)]
    pub(super) attach: Vec<String>,
    /// Passes that may find something, separated by commas
    #[arg(long, value_name = "PASSES", value_delimiter = ',', value_parser = list_part)]
    may_lose: Vec<String>,
    /// Judgement that --json has written: exit code 1 if anything is worse now, and only then
    #[arg(long, value_name = "FILE", conflicts_with = "may_lose")]
    baseline: Option<PathBuf>,
    /// Also write the judgement as JSON; with -, print it instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the judgement as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl ServiceArgs {
    pub(super) fn file(&self) -> anyhow::Result<&Path> {
        self.file.as_deref().context("name the file that describes the service, or use --init")
    }

    /// Writes the file that `--init` asks for; returns what to do with it.
    pub fn write_file(&self) -> anyhow::Result<Option<String>> {
        let path = self.file.as_deref().unwrap_or(Path::new("service.toml"));
        self.init.map(|framework| init::write_file(framework, path)).transpose()
    }

    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let replay = self.replay.as_deref().map(ScheduleRecording::read).transpose()?;
        let passes = match &replay {
            Some(_) => vec![Pass::Interleavings],
            None => select(&self.faults)?,
        };
        // Beside no file of the service, which may be in a folder of its own.
        let recording = self.file()?.with_extension("schedule.json");
        let recording = recording.file_name().map(PathBuf::from).context("FILE has no name")?;
        Ok(Plan {
            passes,
            budget: Duration::from_secs(self.budget),
            replay,
            recording,
            seed: self.seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
            repeat: self.repeat,
            started_at: OffsetDateTime::now_utc().format(&Rfc3339)?,
        })
    }

    /// Reads the demands, before the work.
    pub fn demands(&self) -> anyhow::Result<Demands> {
        for name in &self.may_lose {
            let is_known = name.parse::<Pass>().is_ok();
            ensure!(is_known, "--may-lose {name}: the passes are {}", Pass::list());
        }
        let passes = select(&self.faults)?;
        let names: Vec<&str> = passes.iter().map(|pass| pass.name()).collect();
        let baseline = self.baseline.as_deref();
        check_files(baseline, self.json.as_deref())?;
        Demands::read::<ServiceJudgement>(&self.may_lose, baseline, &names)
    }
}

/// Returns the passes of these names, or for `all` every one, or those of the default; `control` is
/// always among them.
fn select(names: &[String]) -> anyhow::Result<Vec<Pass>> {
    let is_known = |name: &str| name == "all" || name.parse::<Pass>().is_ok();
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        bail!("--faults {unknown}: the passes are all, or some of {}", Pass::list());
    }

    let is_selected = |pass: &Pass| match names {
        [] => pass.is_default(),
        // Without one buyer after the other, the others have nothing to be compared with.
        names => {
            *pass == Pass::Control || names.iter().any(|name| name == "all" || name == pass.name())
        }
    };
    Ok(Pass::ALL.iter().copied().filter(is_selected).collect())
}

fn about_passes() -> String {
    format!(
        "Passes: {}.\n\nExit code 0: sound in every pass that ran. 1: not. 2: it could not judge; \
         stderr says why.",
        Pass::list()
    )
}
