//! The database of a command: that of a URL, or of the running `holdfast up`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use holdfast_shop::db;

#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// URL of Postgres [default: the running `holdfast up` of --data]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Folder of a running `holdfast up`, used without DATABASE_URL; relative to the current folder
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
}

/// Connects to the database of a command, and checks its schema.
pub(crate) async fn connect(database: &DatabaseArgs) -> anyhow::Result<db::Pool> {
    let (url, _) = find_urls(database, None)?;
    let pool = db::pool(&url, 2)?;
    db::check_database(&url, &pool).await?;
    Ok(pool)
}

/// Returns the given URLs, or those of the `holdfast up` that runs on the data folder.
pub fn find_urls(
    database: &DatabaseArgs,
    redis_url: Option<String>,
) -> anyhow::Result<(String, Option<String>)> {
    let DatabaseArgs { database_url, data } = database;
    if let Some(database_url) = database_url {
        return Ok((database_url.clone(), redis_url));
    }

    let running = holdfast_services::read_env(data).with_context(|| {
        format!(
            "no `holdfast up` runs on {}. Start one, name its folder with --data, or set \
             DATABASE_URL",
            data.display()
        )
    })?;
    Ok((running.database_url, redis_url.or(Some(running.redis_url))))
}
