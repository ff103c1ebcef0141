//! `holdfast course`: write your own lock, level by level.

use crate::app;
use holdfast_base::output::{self, ResultFile};
use holdfast_judge::course::{self, CheckArgs, CourseCommand};

pub(crate) async fn course(command: CourseCommand) -> anyhow::Result<bool> {
    let answer = match command {
        CourseCommand::New { language, folder } => course::create(language, &folder)?,
        CourseCommand::Status { folder } => course::status(&folder)?,
        CourseCommand::Check(CheckArgs { folder, hint: true, level, .. }) => {
            course::hint(&folder, level)?
        }
        CourseCommand::Check(options) => {
            let check = Box::pin(course::check(&options)).await?;
            ResultFile::open(&check.page)?.write(&app::check_page(&check)?)?;
            course::describe(&check)
        }
    };
    output::print(&answer.text)?;
    Ok(answer.yes)
}
