//! `holdfast ledger`: prints the SQL of a ledger for any table, and audits such ledgers.

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::audit::print_audit;
use holdfast_base::output;
use holdfast_shop::audit::AuditReport;
use holdfast_shop::audit::table_ledger::{self, TableLedger};
use holdfast_shop::db;

/// The ledger does not know how much there was to sell.
const SOUND: &str = "The books balance: all checks hold. \
                     They do not say that no more was sold than there was.";

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LedgerArgs {
    #[command(subcommand)]
    pub command: Option<LedgerCommand>,
    #[command(flatten)]
    pub sql: Option<LedgerSqlArgs>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum LedgerCommand {
    /// Find forks, breaks and drift in the ledgers of a database; exit code 0 if there are none, 1
    /// if there are, 2 if it could not look
    Audit {
        /// URL of Postgres
        #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
        database_url: String,
        /// Only find forks and breaks in entries of this time: '1 day', an interval of Postgres
        #[arg(long, value_name = "INTERVAL")]
        last: Option<String>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub struct LedgerSqlArgs {
    /// Table, with its schema if that is not public: shop.products. All names are as they are
    /// stored: without quotes, and upper and lower case differ
    #[arg(long)]
    pub table: String,
    /// Column of the primary key; can be repeated
    #[arg(long, value_name = "COLUMN", required = true)]
    pub key: Vec<String>,
    /// Column of numbers whose changes are kept
    #[arg(long, value_name = "COLUMN")]
    pub value: String,
    /// Name of the ledger, a table beside the other [default: TABLE_VALUE_ledger]
    #[arg(long)]
    pub name: Option<String>,
    /// Print the SQL that removes the ledger with all its entries
    #[arg(long)]
    pub drop: bool,
}

/// Prints the SQL, or audits; returns whether the ledgers are sound.
pub(crate) async fn ledger(options: LedgerArgs) -> anyhow::Result<bool> {
    if let Some(LedgerCommand::Audit { database_url, last, json }) = options.command {
        return print_audit(&audit(&database_url, last.as_deref()).await?, SOUND, json);
    }

    let sql = options.sql.context("name a table: --table, --key and --value")?;
    let ledger = TableLedger::new(&sql.table, sql.key, sql.value, sql.name);
    let ledger = ledger.map_err(anyhow::Error::msg)?;
    let text = if sql.drop { ledger.remove_sql() } else { ledger.install_sql() };
    output::print(&text)?;
    Ok(true)
}

async fn audit(database_url: &str, last: Option<&str>) -> anyhow::Result<AuditReport> {
    db::check_reachable(database_url).await?;
    let pool = db::pool(database_url, 2)?;
    let audit = table_ledger::check_ledgers(&pool, last).await?;
    audit.context(
        "this database has no ledger: `holdfast ledger --table … --key … --value …` prints the SQL \
         of one",
    )
}
