//! `holdfast judge`: judges any lock behind an adapter.

use crate::app;
use holdfast_base::output::ResultFile;
use holdfast_judge::JudgeArgs;

pub async fn judge_lock(options: &JudgeArgs) -> anyhow::Result<bool> {
    let json = options.json.as_deref().map(ResultFile::open_or_stdout).transpose()?;
    let html = options.html.as_deref().map(ResultFile::open).transpose()?;
    let judgement = Box::pin(holdfast_judge::judge(options)).await?;
    holdfast_judge::print(&judgement, json)?;
    if let Some(html) = html {
        html.write(&app::judgement_page(&judgement)?)?;
    }
    Ok(judgement.safe)
}
