//! Judges a service: does it sell what exists, once, with several instances, retries, killed
//! processes and a slow database?
//!
//! The judge starts the instances of a service that a file describes, with a proxy before its
//! Postgres and its Redis, lets buyers order one item under one disturbance after the other, and
//! balances their answers against the service's own books. It finds races that happen; it
//! proves no absence.
//!
//! Reading order: `file`, `pass`, `run`, `sale`, `strike`, `stage`, `instances`, `buyers`, `watch`,
//! `sql`, `writes`, `balances`, `evidence`. Tests: `tests/alone/service`.

mod args;
mod balances;
mod buyers;
mod database;
mod evidence;
mod file;
mod http;
mod init;
mod instances;
mod interleave;
mod learned;
mod pass;
mod pass_table;
mod pattern;
mod program;
mod recording;
pub mod report;
mod run;
mod sale;
mod schedule;
mod sent;
mod sql;
mod stage;
mod steps;
mod strike;
mod transactions;
mod watch;
mod writes;

use std::time::Duration;

use holdfast_base::output::ProgressLine;
use holdfast_base::signals;
use holdfast_services::TempFolder;

use self::file::ServiceFile;
use self::report::ServiceJudgement;
use crate::demands::Demands;

pub use self::args::ServiceArgs;
pub use self::instances::run_instance;
pub use self::pass::Pass;
pub use self::pass_table::format_service;
pub use self::report::Pattern;

/// Judges a service. Must be called from the main thread, with which its processes end.
pub async fn judge_service(
    args: &ServiceArgs,
    demands: &Demands,
) -> anyhow::Result<ServiceJudgement> {
    let file = ServiceFile::read(args.file()?, &args.attach)?;
    demands.check_name(&file.name)?;
    let plan = args.plan()?;
    plan.replay.iter().try_for_each(|recording| recording.check_service(&file.name))?;
    let mut signals = signals::listen()?;
    let folder = TempFolder::create()?;
    let mut line = ProgressLine::new(Duration::ZERO);
    let passes = plan.passes.len();
    let draw = |number, pass: &str| {
        line.draw(|| crate::describe_progress("pass", number, passes, pass));
    };
    let judgement = Box::pin(run::run(&file, &plan, &folder, draw, &mut signals)).await;

    line.clear();
    drop(folder);
    judgement
}
