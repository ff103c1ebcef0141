//! `holdfast up`: the whole product.

use std::cell::OnceCell;

use anyhow::{anyhow, bail};

use super::class::{self, Invitation};
use super::environment::{settings_of_replicas, variable};
use crate::app;
use crate::open_files;
use crate::settings;
use holdfast_base::output::print_progress;
use holdfast_services::{RunningUp, UpArgs};
use holdfast_shop::db;
use holdfast_shop::seed::{self, SeedContents};

pub(crate) async fn up(mut options: UpArgs) -> anyhow::Result<()> {
    class::complete(&mut options)?;

    // A misspelt lock is rejected before Postgres starts, not by a replica that exits at once.
    let strategy = app::server_strategy(&options.lock)?;
    if strategy.name == "redlock" && options.redlock == 0 {
        bail!("the lock redlock needs several Redis servers: add --redlock 3");
    }

    // So are other settings that the replicas would reject.
    let of_replicas = settings_of_replicas(&options).map_err(anyhow::Error::msg)?;
    if let Err(invalid) = settings::validate(&of_replicas) {
        bail!("{}: {}", variable(invalid.flag), invalid.why);
    }
    class::check_connections(&options, of_replicas.pool_size)?;

    // Before anything starts, as all processes inherit it. The replicas' warnings are in their
    // logs.
    let files = open_files::raise();
    if let Some(shortage) = open_files::describe_shortage(files, of_replicas.pool_size) {
        print_progress(&shortage);
    }

    let invitation: OnceCell<Invitation> = OnceCell::new();
    let prepare = async |database_url: &str| {
        db::migrate(database_url).await?;
        db::check_sequences(database_url).await.map_err(explain_without_server)?;
        let pool = db::pool(database_url, 2)?;
        let contents = SeedContents { users: !options.class, ..SeedContents::EVERYTHING };
        seed::seed(&pool, contents).await?;
        if options.class {
            let _ = invitation.set(class::prepare(&pool).await?);
        }
        // No other replica uses this database.
        db::forget_lock_family(&pool).await?;
        Ok(())
    };

    let companion = async |running: RunningUp, control| {
        if let Some(invitation) = invitation.get() {
            invitation.print(&options);
        }
        if running.lab {
            holdfast_lab::runner::serve(running, control).await;
        }
    };

    holdfast_services::up(&options, prepare, companion).await
}

/// Says how to execute the statement: the private Postgres ends with this start.
fn explain_without_server(error: db::Error) -> anyhow::Error {
    match error {
        db::Error::Sequences(_) => anyhow!(
            "{error}\nWhile this shop does not run, the owner of its folder `postgres` executes a \
             statement with: echo \"STATEMENT\" | postgres --single -D FOLDER holdfast"
        ),
        other => other.into(),
    }
}
