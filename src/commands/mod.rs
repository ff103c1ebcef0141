//! The command line: one file for each subcommand, with its arguments.
//!
//! The doc comments are the text of `--help`. Every flag of `serve` has an environment variable.

mod audit;
mod class;
mod course;
mod database;
mod environment;
mod healthcheck;
mod judge;
mod ledger;
mod lesson;
mod migrate;
mod serve;
mod site;
mod up;
mod user;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::audit::AuditArgs;
use self::healthcheck::HealthcheckArgs;
use self::ledger::LedgerArgs;
use self::lesson::LessonArgs;
use self::migrate::MigrateArgs;
use self::site::SiteArgs;
use self::user::UserSubcommand;
use crate::bench::{self, BenchArgs};
use crate::settings::ServeArgs;
use holdfast_judge::course::CourseCommand;
use holdfast_judge::service::run_instance;
use holdfast_judge::{JudgeOptions, JudgedArgs, run_worker, write_judged};
use holdfast_services::UpArgs;

/// A small web shop that never oversells, and a lab in which you can take its lock away.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the whole product: a private Postgres, a private Redis, and replicas of the shop
    Up(UpArgs),
    /// Run one replica against an existing Postgres and Redis
    Serve(Box<ServeArgs>),
    /// Check that the replica on this machine is ready; exit code 0 if it is, 1 if not
    Healthcheck(HealthcheckArgs),
    /// Apply pending migrations to the database
    Migrate(MigrateArgs),
    /// Manage users
    #[command(subcommand)]
    User(UserSubcommand),
    /// Check ledgers, orders and accounts against each other; exit code 0 if they agree, 1 if not
    Audit(AuditArgs),
    /// Print the SQL of a ledger for a table of your own Postgres: before, after, transaction, time
    /// and client of every change
    Ledger(LedgerArgs),
    /// Run a lesson of the lab; exit code 0 if its claim was shown, 1 if not
    Lesson(LessonArgs),
    /// Measure the cost of each strategy on this machine, in a minute or two
    Bench(BenchArgs),
    /// Judge any lock behind an adapter, under load and faults; exit code 0 if no update was lost,
    /// 1 if one was, 2 if it could not be judged
    Judge(Box<JudgeOptions>),
    /// Make the site: a static folder with recorded races and runs, which needs no server
    Site(SiteArgs),
    /// Write docs/JUDGED.md from the judgements in docs/judged
    #[command(hide = true)]
    Judged(JudgedArgs),
    /// Write your own lock: eight levels, each with one more fault
    #[command(subcommand)]
    Course(CourseCommand),
    /// A worker of `holdfast judge`
    #[command(hide = true)]
    JudgeWorker,
    /// Keeps an instance of a service for `holdfast judge service`
    #[command(hide = true)]
    JudgeInstance,
}

impl Cli {
    /// Parses the command line and the environment.
    pub fn from_environment() -> Result<Self, clap::Error> {
        let command = environment::ignore_empty_variables(Self::command());
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

impl CliCommand {
    /// Runs the command; returns whether its answer is yes, if it has one.
    pub async fn run(self) -> anyhow::Result<bool> {
        match self {
            Self::Up(options) => Box::pin(up::up(options)).await?,
            Self::Serve(options) => serve::serve(&options).await?,
            Self::Healthcheck(options) => healthcheck::healthcheck(&options).await?,
            Self::Migrate(options) => migrate::migrate(&options).await?,
            Self::User(command) => user::user(command).await?,
            Self::Audit(options) => return audit::audit(options).await,
            Self::Ledger(options) => return ledger::ledger(options).await,
            Self::Lesson(options) => return lesson::lesson(options).await,
            Self::Bench(options) => bench::bench(&options).await?,
            Self::Judge(options) => return judge::run(&options).await,
            Self::Judged(options) => write_judged(&options)?,
            Self::Site(options) => Box::pin(site::site(options)).await?,
            Self::Course(command) => return course::course(command).await,
            Self::JudgeWorker => Box::pin(run_worker()).await?,
            Self::JudgeInstance => run_instance().await?,
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Cli;

    fn error_of(line: &[&str]) -> String {
        let parsed = Cli::try_parse_from([&["holdfast"], line].concat());
        parsed.expect_err("it is refused").to_string()
    }

    #[test]
    fn quorum_has_three_or_five_nodes() {
        for right in ["0", "3", "5"] {
            assert!(Cli::try_parse_from(["holdfast", "up", "--redlock", right]).is_ok(), "{right}");
        }
        for wrong in ["1", "2", "4", "6", "7", "many"] {
            let error = error_of(&["up", "--redlock", wrong]);
            assert!(error.contains("3 or 5"), "{error}");
        }
    }

    #[test]
    fn rejected_number_names_its_range() {
        for wrong in ["0", "17", "two"] {
            let error = error_of(&["up", "--replicas", wrong]);
            assert!(error.contains("a whole number, 1 to 16"), "{error}");
        }
    }
}
