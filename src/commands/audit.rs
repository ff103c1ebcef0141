//! `holdfast audit`: checks ledgers, orders and accounts against each other.

use std::time::Duration;

use clap::Args;

use super::database::{DatabaseArgs, find_urls};
use crate::app;
use crate::redis_connection::RedisTlsArgs;
use holdfast_base::output::{self, ProgressLine};
use holdfast_shop::audit::{self, AuditProgress, AuditReport};
use holdfast_shop::db;

const SOUND: &str = "The books balance: all checks hold.";

#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// URL of Redis, as for `serve`; with DATABASE_URL but without this, Redis is not checked
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,
    #[command(flatten)]
    pub redis_tls: RedisTlsArgs,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn audit(options: AuditArgs) -> anyhow::Result<bool> {
    // The Redis of an `up` has no certificates.
    let redis_tls = options.redis_url.as_ref().map(|_| options.redis_tls).unwrap_or_default();
    let (database_url, redis_url) = find_urls(&options.database, options.redis_url)?;
    db::check_reachable(&database_url).await?;

    let locks = redis_url.as_deref().map(|url| app::locks(url, &redis_tls)).transpose()?;
    let pool = db::pool(&database_url, 2)?;
    db::check_readable(&pool).await?;

    let mut line = ProgressLine::new(Duration::ZERO);
    let audit = audit::check_all(&pool, locks.as_ref(), |AuditProgress { done, total, check }| {
        line.draw(|| format!("check {} of {total}: {check}", done + 1));
    });
    let audit = audit.await;
    line.clear();
    let audit = audit?;

    print_audit(&audit, SOUND, options.json)
}

/// Prints the result of an audit, whose last line is `sound` if the books are; returns whether they
/// are.
pub(super) fn print_audit(audit: &AuditReport, sound: &str, as_json: bool) -> anyhow::Result<bool> {
    let text = match as_json {
        true => serde_json::to_string_pretty(audit)? + "\n",
        false => format_audit(audit, sound),
    };
    output::print(&text)?;
    Ok(audit.ok)
}

fn format_audit(audit: &AuditReport, sound: &str) -> String {
    let mut text = String::new();
    let width = audit.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &audit.checks {
        let mark = if check.ok { "ok  " } else { "FAIL" };
        text += &format!("{mark}  {:width$}  {}\n", check.name, check.detail);
    }

    for note in &audit.notes {
        text += &format!("      {note}\n");
    }

    let last = if audit.ok { sound } else { "The books do NOT balance." };
    text += &format!("\n{last}\n");
    text
}
