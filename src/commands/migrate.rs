//! `holdfast migrate`: the schema, and the demo data.

use clap::Args;

use holdfast_base::output;
use holdfast_shop::audit::nicknames;
use holdfast_shop::db;
use holdfast_shop::seed::{self, SeedContents};

#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// URL of Postgres
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Insert the demo catalogue if the database is empty
    #[arg(long)]
    pub seed: bool,
    /// Insert the demo users if the database is empty. Their passwords are their names
    #[arg(long)]
    pub demo_users: bool,
}

pub(crate) async fn migrate(options: &MigrateArgs) -> anyhow::Result<()> {
    db::migrate(&options.database_url).await?;
    output::announce("the schema is up to date");
    let pool = db::pool(&options.database_url, 2)?;
    for conflict in nicknames::find(&pool).await? {
        tracing::warn!("{conflict}");
    }

    let contents = SeedContents { catalogue: options.seed, users: options.demo_users };
    if contents != SeedContents::default() {
        output::announce(match seed::seed(&pool, contents).await? {
            true => "demo data added",
            false => "the database is not empty: nothing added",
        });
    }
    Ok(())
}
