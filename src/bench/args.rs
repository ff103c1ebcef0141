//! Options of `holdfast bench`.

use std::path::PathBuf;

use clap::Args;

use holdfast_base::flags::{seconds, whole_number};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "It starts a temporary shop on 127.0.0.1, with its data below /var/tmp. For a \
    strategy that oversold in any run, the table shows by how much instead of a rate. Progress is \
    printed on stderr, the table on stdout."
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
    /// Only these strategies, separated by commas [default: none, local, owner, watchdog, redlock,
    /// fenced, row-lock, atomic and batched]
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', num_args = 1..)]
    pub only: Vec<String>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE", overrides_with = "json")]
    pub json: Option<PathBuf>,
    /// Also draw the results as SVG
    #[arg(long, value_name = "FILE", overrides_with = "svg")]
    pub svg: Option<PathBuf>,
    /// Print the goals beside the figures
    #[arg(long, overrides_with = "goals")]
    pub goals: bool,
}
