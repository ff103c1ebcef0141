//! Options of `holdfast judge`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::demands::{Demand, Demands, check_files};
use super::fault::Fault;
use super::new_adapter::AdapterLanguage;
use super::plan;
use super::report::Judgement;
use super::service::ServiceArgs;
use holdfast_base::flags::{list_part, seconds, whole_number};

/// `holdfast judge`, and its commands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct JudgeOptions {
    #[command(subcommand)]
    pub command: Option<JudgeCommand>,
    #[command(flatten)]
    pub judge: JudgeArgs,
}

#[derive(Debug, Subcommand)]
pub enum JudgeCommand {
    /// Write the adapter of a lock, to be changed into that of your own
    New {
        /// Language of the adapter
        language: AdapterLanguage,
        /// Folder, which is made
        folder: PathBuf,
    },
    /// Judge a service: does it sell what exists, once? Exit code 0 if it does, 1 if not, 2 if it
    /// could not be judged
    Service(Box<ServiceArgs>),
    /// Compute the verdict from the file of `judge --history` alone; exit codes as of `judge`
    Check {
        /// File that `--history` has written
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[command(after_help = about_faults())]
pub struct JudgeArgs {
    /// Faults to run besides none, separated by commas; or all
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_parser = list_part)]
    #[arg(default_value = "all")]
    pub faults: Vec<String>,
    /// Lease that the adapter is asked for, in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = whole_number::<u64>(200..=60_000))]
    pub ttl_ms: u64,
    /// Length of the work under each fault in seconds; a fault that lasts longer prolongs it
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seed of the random choices [default: a random one]
    #[arg(long)]
    pub seed: Option<u64>,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u32>(1..=1_000))]
    #[arg(help = about_repeats())]
    pub repeat: u32,
    /// Number of worker processes; the faults strike one of them
    #[arg(long, default_value_t = 2, value_parser = whole_number::<u32>(2..=16))]
    pub workers: u32,
    /// Number of clients of each worker; at most 200 of all workers
    #[arg(long, default_value_t = 8, value_parser = whole_number::<u32>(1..=64))]
    pub clients: u32,
    /// Work of a client between its read and its write, in milliseconds
    #[arg(long, default_value_t = 2, value_parser = whole_number::<u64>(0..=10_000))]
    pub work_ms: u64,
    /// Pause of a client between two turns, in milliseconds, with ± 50 % jitter
    #[arg(long, default_value_t = 1, value_parser = whole_number::<u64>(0..=10_000))]
    pub think_ms: u64,
    /// Time for which a client waits for the lock, in milliseconds
    #[arg(long, default_value_t = 5_000, value_parser = whole_number::<u64>(0..=60_000))]
    pub wait_ms: u64,
    /// Time within which the adapter must answer, besides that wait, in seconds
    #[arg(long, default_value_t = 30, value_parser = whole_number::<u64>(1..=600))]
    pub answer_timeout_s: u64,
    /// Time without a server under redis-restart and redis-failover, in milliseconds, besides that
    /// of the restart or the promotion
    #[arg(long, default_value_t = 0, value_parser = whole_number::<u64>(0..=60_000))]
    pub outage_ms: u64,
    /// Under long-work, another client holds the lock while the first one releases; for the course.
    #[arg(skip)]
    pub second_holder: bool,
    /// Two clients with different servers ask for one key first; for the course.
    #[arg(skip)]
    pub is_store_checked: bool,
    /// The work without a fault goes on until there are so many turns, for a minute at most
    #[arg(long, default_value_t = 5_000, value_parser = whole_number::<u32>(0..=50_000))]
    pub turns: u32,
    /// Environment variable for the adapter, as NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Exit code 1 also if these were found, separated by commas
    #[arg(long, value_name = "FINDINGS", value_delimiter = ',')]
    pub fail_on: Vec<Demand>,
    /// Faults under which updates may be lost, separated by commas
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_parser = list_part)]
    pub may_lose: Vec<String>,
    /// Judgement that --json has written: exit code 1 if anything is worse now, and only then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["may_lose", "fail_on"])]
    pub baseline: Option<PathBuf>,
    /// Environment variable with the URL or the socket of a server of your own. The judge puts a
    /// proxy before it, so that faults of the network reach it: as NAME=URL, or NAME with the URL
    /// in the judge's own environment; can be repeated
    #[arg(long, value_name = "NAME[=URL]", value_parser = server_variable)]
    pub backend_proxy: Vec<(String, String)>,
    /// Also write the judgement as JSON; with -, print it instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the judgement as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write every request and answer as lines of JSON, for `judge check` and other checkers
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Program and arguments of the adapter, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl JudgeArgs {
    /// Reads the demands, before the work. Fails if a fault has another name, or the baseline can't
    /// be compared with what will be found.
    pub fn demands(&self) -> anyhow::Result<Demands> {
        for name in &self.may_lose {
            Fault::named(name).with_context(|| {
                format!("--may-lose {name}: the faults are {}", Fault::list(|_| true))
            })?;
        }
        let faults = plan::select(&self.faults)?;
        let names: Vec<&str> = faults.iter().map(|fault| fault.name()).collect();
        let baseline = self.baseline.as_deref();
        check_files(baseline, self.json.as_deref())?;
        let demands = Demands::read::<Judgement>(&self.may_lose, baseline, &names)?;
        Ok(demands.with_fail_on(&self.fail_on))
    }
}

fn about_faults() -> String {
    let faults = Fault::list(|fault| fault != Fault::Undisturbed);
    format!(
        "The adapter is a program that speaks lines of JSON on stdin and stdout. The judge starts \
         a temporary Postgres and Redis, and worker processes with an adapter each, whose clients \
         change one row under the lock. Then it disturbs them, and reads from the ledger what was \
         lost.\n\nFaults: none (always), {faults}.\n\nExit code 0: no update was lost under any \
         fault that ran. 1: one was. 2: it could not judge, also if a fault did not run because no \
         client got the lock; stderr says why."
    )
}

fn about_repeats() -> String {
    let faults = Fault::list(Fault::is_repeated);
    format!(
        "Run {faults} so many times, each with the next seed, until the third run that lost an \
         update"
    )
}

fn server_variable(setting: &str) -> Result<(String, String), &'static str> {
    if let Ok(url) = std::env::var(setting) {
        return Ok((setting.to_owned(), url));
    }
    variable(setting).map_err(|_| "it must be NAME=URL, or a variable of the environment")
}

fn variable(setting: &str) -> Result<(String, String), &'static str> {
    match setting.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE"),
    }
}
