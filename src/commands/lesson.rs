//! `holdfast lesson`: runs a lesson of the lab in a terminal.

use std::path::PathBuf;

use clap::Args;

use holdfast_base::output;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The lesson runs on the `holdfast up` of --data if that has its lab on, otherwise \
    on a temporary shop on 127.0.0.1. Texts are English, or Chinese if LC_ALL or LANG begins with zh.\n\n\
    Exit code 0: the claim was shown. 1: it was not. 2: the lesson did not finish; stderr says why."
)]
pub struct LessonArgs {
    /// Name of the lesson, or its number; without one, all lessons are listed
    pub name: Option<String>,
    /// Folder of a running `holdfast up`; relative to the current folder
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Print the whole run as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn lesson(options: LessonArgs) -> anyhow::Result<bool> {
    match options.name {
        Some(name) => holdfast_lab::terminal::run(&name, &options.data, options.json).await,
        None => {
            output::print(&holdfast_lab::terminal::list())?;
            Ok(true)
        }
    }
}
