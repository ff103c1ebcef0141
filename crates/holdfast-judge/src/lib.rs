//! Judges any lock behind an adapter: does it keep two changes apart under load and faults?
//!
//! The judge gives the lock the work of this shop, a read and a write computed from it, disturbs
//! it, and decides from a ledger in Postgres. A lost update that it reports is in the ledger, and
//! two holders that it reports overlapped. Servers and workers are its own; it leaves no process
//! running, however it ends (on Linux, also after a SIGKILL, and also what an adapter detached).
//!
//! Reading order: `run`, `faults`, `stage`, `worker`, `ledger`, `holds`, `violations`. Tests:
//! `tests/alone/judge/mod.rs`.

mod adapter;
mod args;
mod backend;
mod check;
mod clocks;
pub mod columns;
pub mod course;
mod demands;
mod events;
mod failure;
pub mod fault;
mod faults;
mod history;
mod holds;
mod judged_document;
mod judgement_table;
mod kept;
mod ledger;
mod links;
mod new_adapter;
mod plan;
mod processes;
mod protocol;
mod repeat;
pub mod report;
mod run;
mod saved_events;
mod server_calls;
mod servers;
pub mod service;
mod stage;
mod stores;
pub mod verdict;
mod violations;
mod worker;
mod worker_process;

use std::time::Duration;

use anyhow::anyhow;
use serde::Serialize;

use self::history::HistoryFile;
use self::plan::JudgePlan;
use self::report::Judgement;
use holdfast_base::output::{self, ProgressLine, ResultFile};
use holdfast_base::signals;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::TempFolder;

pub use self::args::{JudgeArgs, JudgeCommand, JudgeOptions};
pub use self::check::check;
pub use self::demands::{Demands, Judged};
pub use self::judged_document::{JudgedArgs, judged_page, write_judged};
pub use self::judgement_table::{format_history, format_judgement};
pub use self::new_adapter::write_adapter;
pub use self::worker::run_worker;

/// Judges a lock. Must be called from the main thread, with which its processes end.
pub async fn judge(args: &JudgeArgs, demands: &Demands) -> anyhow::Result<Judgement> {
    let plan = JudgePlan::new(args)?;
    let mut signals = signals::listen()?;
    let folder = TempFolder::create()?;
    let history = args.history.as_deref();
    let history = history.map(|path| HistoryFile::create(path, monotonic_us())).transpose()?;
    let mut line = ProgressLine::new(Duration::ZERO);
    let faults = plan.faults.len();
    let judging = Box::pin(run::run(&plan, demands, &folder, history, |number, fault| {
        line.draw(|| describe_progress("fault", number, faults, fault));
    }));

    let judgement = tokio::select! {
        judgement = judging => judgement,
        Some(name) = signals.recv() => Err(anyhow!(name)),
    };

    line.clear();
    // After an interruption there are more than those that `run` ends.
    processes::end_orphans(None).await;
    drop(folder);
    judgement
}

/// Formats the progress: the number of the running fault or pass among all, and its name.
fn describe_progress(kind: &str, number: usize, all: usize, name: &str) -> String {
    let done = "█".repeat(number) + &"░".repeat(all - number);
    format!("{done} {kind} {} of {all}: {name}", number + 1)
}

/// Writes a judgement as JSON if asked for; prints its table unless the JSON is on stdout.
pub fn print(
    judgement: &impl Serialize,
    table: &str,
    json: Option<ResultFile>,
) -> anyhow::Result<()> {
    let is_printed = json.as_ref().is_some_and(ResultFile::is_stdout);
    if let Some(json) = json {
        json.write(&(serde_json::to_string_pretty(judgement)? + "\n"))?;
    }
    if !is_printed {
        output::print(table)?;
    }
    Ok(())
}
