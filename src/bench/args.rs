//! Options of `holdfast bench`.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use super::runs::{BATCHED, UNITS};
use crate::redis_connection::RedisTlsArgs;
use holdfast_base::flags::{seconds, whole_number};

/// Default selection; the other strategies cost the same as one of these, or are slow by design.
const DEFAULT_STRATEGIES: [&str; 11] = [
    "none",
    "local",
    "owner",
    "watchdog",
    "redlock",
    "fenced",
    "row-lock",
    "atomic",
    UNITS,
    "pre-deduct",
    BATCHED,
];

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Without --on-your-servers the benchmark starts a temporary shop on 127.0.0.1, \
    with its data below /var/tmp, and ignores DATABASE_URL and REDIS_URL. For a strategy that oversold in any \
    run, the table shows by how much instead of a rate. Progress is printed on stderr, the table \
    on stdout."
)]
pub struct BenchArgs {
    /// Number of rounds; every other round runs in reverse order
    #[arg(long, default_value_t = 2, overrides_with = "rounds", value_parser = whole_number::<u32>(1..=100))]
    pub rounds: u32,
    /// Length of a run in seconds, without its warm-up
    #[arg(long, default_value_t = 1.0, overrides_with = "seconds", value_parser = seconds)]
    pub seconds: f64,
    /// Number of clients that order the hot item
    #[arg(long, default_value_t = 64, overrides_with = "connections", value_parser = whole_number::<u16>(1..=1_000))]
    pub connections: u16,
    /// Only these strategies, separated by commas
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', num_args = 1..,
        default_values = DEFAULT_STRATEGIES)]
    pub only: Vec<String>,
    /// Only this load, without the table of the strategies and their picture
    #[arg(long, conflicts_with_all = ["only", "on_your_servers"])]
    pub arm: Option<Arm>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE", overrides_with = "json")]
    pub json: Option<PathBuf>,
    /// Also draw the results as SVG
    #[arg(long, value_name = "FILE", overrides_with = "svg")]
    pub svg: Option<PathBuf>,
    /// Also print this project's own goals of performance (docs/PERFORMANCE.md), each with what was
    /// measured here
    #[arg(long, overrides_with = "goals")]
    pub goals: bool,
    #[command(flatten)]
    pub servers: ServerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arm {
    /// The mixed load over one to three replicas: beside the orders of one item under batched, 12 %
    /// by other strategies, 6 % of two items, and 10 % cancels
    Mixed,
}

/// Not the variables alone: a shell may have them by chance.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "On your own Postgres and Redis")]
pub struct ServerArgs {
    /// Measure the servers of the variables DATABASE_URL and REDIS_URL, as for `serve`, from two
    /// replicas on this machine; with REDLOCK_URLS also the strategy redlock. The database that
    /// DATABASE_URL names is only connected to: bench makes one of its own, holdfast_bench_…, for
    /// which the user needs CREATEDB, and drops it at the end. Its keys in Redis begin with
    /// holdfast:holdfast_bench_…: and are removed at the end. The load is as much as the
    /// servers take, so use those of a staging system
    #[arg(long, conflicts_with = "goals")]
    pub on_your_servers: bool,
    /// Maximum number of connections to Postgres of each of the two replicas [default: 16]
    #[arg(long, requires = "on_your_servers", value_parser = whole_number::<u32>(1..=500))]
    pub pool_size: Option<u32>,
    #[command(flatten)]
    pub redis_tls: RedisTlsArgs,
}

/// The addresses of the user's servers.
#[derive(Debug, Clone)]
pub(super) struct ServerUrls {
    pub(super) database: String,
    pub(super) redis: String,
    /// None, three or five.
    pub(super) redlock: Vec<String>,
}

impl ServerUrls {
    /// No flags: what has a password could be read by every user of this machine.
    pub(super) fn of_environment() -> anyhow::Result<Self> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let redlock = variable("REDLOCK_URLS").unwrap_or_default();
        let redlock = redlock.split(',').filter(|url| !url.is_empty()).map(str::to_owned);
        let redlock: Vec<String> = redlock.collect();

        ensure!(
            [0, 3, 5].contains(&redlock.len()),
            "the strategy redlock needs three or five independent Redis servers, and REDLOCK_URLS \
             names {}",
            redlock.len()
        );
        Ok(Self {
            database: variable("DATABASE_URL").context(
                "--on-your-servers needs the address of your Postgres: set DATABASE_URL, e.g. \
                 postgres://user:password@host/postgres",
            )?,
            redis: variable("REDIS_URL").context(
                "--on-your-servers needs the address of your Redis: set REDIS_URL, e.g. \
                 redis://host:6379",
            )?,
            redlock,
        })
    }

    /// The shop's Redis, then the nodes of the quorum.
    pub(super) fn all_redis(&self) -> impl Iterator<Item = &String> {
        [&self.redis].into_iter().chain(&self.redlock)
    }
}
