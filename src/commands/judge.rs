//! `holdfast judge`: judges any lock behind an adapter.

use std::path::Path;

use crate::app;
use holdfast_base::output::{self, ResultFile};
use holdfast_judge::service::{ServiceArgs, format_service};
use holdfast_judge::{Demands, JudgeArgs, JudgeCommand, JudgeOptions, Judged, format_judgement};

/// Returns whether the lock is as demanded: by default, whether it has lost no update.
pub(crate) async fn run(options: &JudgeOptions) -> anyhow::Result<bool> {
    match &options.command {
        Some(JudgeCommand::New { language, folder }) => {
            output::print(&holdfast_judge::write_adapter(*language, folder)?)?;
            Ok(true)
        }
        Some(JudgeCommand::Check { file }) => check_history(file),
        Some(JudgeCommand::Service(args)) => judge_service(args).await,
        None => judge_lock(&options.judge).await,
    }
}

async fn judge_lock(options: &JudgeArgs) -> anyhow::Result<bool> {
    let demands = options.demands()?;
    let json = options.json.as_deref().map(ResultFile::open_or_stdout).transpose()?;
    let html = options.html.as_deref().map(ResultFile::open).transpose()?;
    let judgement = Box::pin(holdfast_judge::judge(options, &demands)).await?;
    holdfast_judge::print(&judgement, &format_judgement(&judgement), json)?;
    if let Some(html) = html {
        html.write(&app::judgement_page(&judgement)?)?;
    }

    is_as_demanded(&judgement, &demands)
}

async fn judge_service(args: &ServiceArgs) -> anyhow::Result<bool> {
    if let Some(what_next) = args.write_file()? {
        output::print(&what_next)?;
        return Ok(true);
    }

    let demands = args.demands()?;
    let json = args.json.as_deref().map(ResultFile::open_or_stdout).transpose()?;
    let html = args.html.as_deref().map(ResultFile::open).transpose()?;
    let judged = Box::pin(holdfast_judge::service::judge_service(args, &demands)).await;
    if judged.is_err() && (args.json.is_some() || args.html.is_some()) {
        output::print_progress("There is no judgement: --json and --html write nothing.");
    }
    let judgement = judged?;
    holdfast_judge::print(&judgement, &format_service(&judgement), json)?;
    if let Some(html) = html {
        html.write(&app::service_page(&judgement)?)?;
    }

    is_as_demanded(&judgement, &demands)
}

fn check_history(file: &Path) -> anyhow::Result<bool> {
    let judgement = holdfast_judge::check(file)?;
    output::print(&holdfast_judge::format_history(&judgement))?;
    is_as_demanded(&judgement, &Demands::default())
}

fn is_as_demanded(judgement: &impl Judged, demands: &Demands) -> anyhow::Result<bool> {
    let unmet = demands.unmet(judgement)?;
    for remark in demands.remarks(judgement) {
        output::print_progress(&remark);
    }
    // By default, the verdict has said it.
    for what in unmet.iter().filter(|_| demands.are_given()) {
        output::print_progress(&format!("Not as demanded: {what}."));
    }
    Ok(unmet.is_empty())
}
