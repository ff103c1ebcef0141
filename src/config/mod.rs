//! The command line, which is also the only configuration: every flag has an environment variable.
//!
//! The doc comments here are what `--help` prints. Only `main`, `app` and `bench` read this module;
//! the rest of the crate takes plain arguments.

mod environment;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use environment::variable;
use values::{address, nodes, seconds, whole};

/// A small web shop that never oversells, and a lab in which you can take its lock away.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole product: a private Postgres and Redis, and replicas of the shop before them
    Up(Up),
    /// Run one replica against a Postgres and a Redis that are already there
    Serve(Serve),
    /// Bring the database's schema up to date
    Migrate(Migrate),
    /// Manage users
    #[command(subcommand)]
    User(User),
    /// Hold ledger, orders, accounts and Redis against each other; exit 0 sound, 1 not
    Audit(Audit),
    /// Show a lesson of the lab with a real run; exit 0 if its claim was shown, 1 if not
    Lesson(Lesson),
    /// What each strategy costs on this machine: a price list, in a minute or two
    Bench(Bench),
    /// Find the largest keys in Redis without stalling it; remove those that are named
    Keys(Keys),
}

/// Options of `holdfast up`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The replicas also heed the environment variables of `holdfast serve --help`, \
    such as HOLDFAST_LOCK_TTL_MS."
)]
pub struct Up {
    /// How many replicas to run, on the listen port and the ones after it
    #[arg(long, env = "HOLDFAST_UP_REPLICAS", default_value_t = 2, value_parser = whole::<u16>(1..=16))]
    pub replicas: u16,
    /// Address of the first replica
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Folder that keeps the data between runs
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Start so many independent Redis for the lock `redlock`: 3 or 5
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = nodes)]
    pub redlock: u16,
    /// Connections to Postgres per replica; several, separated by commas, go to the replicas in
    /// turn [default: HOLDFAST_POOL_SIZE, or 16]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = whole::<u32>(1..=500))]
    pub pool_sizes: Vec<u32>,
    /// Serve the demo users (their passwords are their names) on an address that is not loopback
    #[arg(long)]
    pub demo_users_on_network: bool,
    /// Whether the lab is on: its headers, its throw-away items, its broken locks
    #[arg(long, env = "HOLDFAST_LAB", default_value = "on")]
    pub lab: Switch,
    /// How the replicas keep two changes of one value apart: none, local, setnx, setnx-expire, ttl,
    /// check-then-del, expire-only, owner, watchdog, redlock, early-release, wrong-key, fenced,
    /// row-lock, atomic, version, serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub lock: String,
}

/// Options of `holdfast serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Where Postgres is, e.g. postgres://user:password@host/name
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Where Redis is: redis://host:6379, redis-cluster://host:port,host:port for a Cluster,
    /// redis-sentinel://host:port,host:port/NAME for the master of that name
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: String,
    /// Independent Redis for the lock `redlock`, separated by commas; three or five of them, each
    /// one server
    #[arg(long, env = "REDLOCK_URLS", hide_env_values = true, value_delimiter = ',')]
    pub redlock_urls: Vec<String>,
    /// What every key in Redis begins with; shops that share a Redis need one each
    #[arg(long, env = "HOLDFAST_REDIS_PREFIX", default_value = "holdfast:")]
    pub redis_prefix: String,
    /// Address to listen on
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Name of this replica in answers and on pages [default: the listen port]
    #[arg(long, env = "HOLDFAST_REPLICA")]
    pub replica: Option<String>,
    /// Connections to Postgres that this replica may hold
    #[arg(long, env = "HOLDFAST_POOL_SIZE", default_value_t = 16, value_parser = whole::<u32>(1..=500))]
    pub pool_size: u32,
    /// Whether the lab is on: its headers, its throw-away items, its broken locks
    #[arg(long, env = "HOLDFAST_LAB", default_value = "off")]
    pub lab: Switch,
    /// Whether this replica does what is to be done when nobody is asking: gives back what was not
    /// paid for, and runs the scheduled jobs (the hourly audit, purging what is old). All replicas
    /// may: each thing is done once
    #[arg(long, env = "HOLDFAST_JOBS", default_value = "on")]
    pub jobs: Switch,
    /// How long an unpaid order keeps its units, in seconds
    #[arg(long, env = "HOLDFAST_PAY_WITHIN_S", default_value_t = 900, value_parser = whole::<u64>(1..=604_800))]
    pub pay_within_s: u64,
    /// How two changes of one value are kept apart, and for how long
    #[command(flatten)]
    pub lock: LockSettings,
    /// How much one client may ask
    #[command(flatten)]
    pub limits: LimitSettings,
}

/// How much one client may ask of all replicas together. A limit that is not set is off while the
/// lab is on: there the load comes from one hand.
#[derive(Debug, Clone, Args)]
pub struct LimitSettings {
    /// How much one signed-in user may ask: RATE/s, RATE/m or RATE/h, and :BURST for how many of
    /// them may come at once; or off [default: 50/s:200; off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_CLIENT")]
    pub limit_client: Option<String>,
    /// How much one address may ask (of IPv6, one network of 64 bits) [default: 500/s:2000; off
    /// while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_ADDRESS")]
    pub limit_address: Option<String>,
    /// How often one address may try to sign in or up [default: 60/m:30; off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_SIGN_IN")]
    pub limit_sign_in: Option<String>,
    /// How often anybody may try to sign in as one user, from addresses where that user has not
    /// signed in before; from each of those it is as often again [default: 10/m:10; off while the
    /// lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_SIGN_IN_NAME")]
    pub limit_sign_in_name: Option<String>,
    /// Proxies before this replica, as addresses or networks (10.0.0.0/8), separated by commas:
    /// only they are believed whom a request comes from, by X-Forwarded-For
    #[arg(long, value_name = "NETWORKS", env = "HOLDFAST_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,
}

/// The lock and its times.
#[derive(Debug, Clone, Args)]
pub struct LockSettings {
    /// Strategy: none, local, setnx, setnx-expire, ttl, check-then-del, expire-only, owner,
    /// watchdog, redlock, early-release, wrong-key, fenced, row-lock, atomic, version,
    /// serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub strategy: String,
    /// How long a lock lives if nobody gives it back, in milliseconds
    #[arg(long, env = "HOLDFAST_LOCK_TTL_MS", default_value_t = 10_000, value_parser = whole::<u64>(1_000..=600_000))]
    pub lock_ttl_ms: u64,
    /// Pause between two attempts of a waiter, in milliseconds (jittered by half of it)
    #[arg(long, env = "HOLDFAST_LOCK_RETRY_MS", default_value_t = 50, value_parser = whole::<u64>(1..=10_000))]
    pub lock_retry_ms: u64,
    /// How long a waiter tries before it gives up, in milliseconds
    #[arg(long, env = "HOLDFAST_LOCK_TIMEOUT_MS", default_value_t = 5_000, value_parser = whole::<u64>(0..=7_000))]
    pub lock_timeout_ms: u64,
}

/// Options of `holdfast migrate`.
#[derive(Debug, Clone, Args)]
pub struct Migrate {
    /// Where Postgres is
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Put the demo catalogue and the demo users into an empty database
    #[arg(long)]
    pub seed: bool,
}

/// The `user` subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum User {
    /// Add a user; the password is asked for, or read from HOLDFAST_PASSWORD
    Add(UserAdd),
}

/// Options of `holdfast user add`.
#[derive(Debug, Clone, Args)]
pub struct UserAdd {
    /// The user's name: 1 to 64 of a-z 0-9 . _ -
    pub name: String,
    /// May restock and run the lab
    #[arg(long)]
    pub admin: bool,
    /// Where Postgres is [default: the running `holdfast up` of --data]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Folder of a running `holdfast up`, asked when no DATABASE_URL is given
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// The password, instead of being asked for it
    #[arg(long, env = "HOLDFAST_PASSWORD", hide_env_values = true, hide = true)]
    pub password: Option<String>,
}

/// Options of `holdfast audit`.
#[derive(Debug, Clone, Args)]
pub struct Audit {
    /// Where Postgres is [default: the running `holdfast up` of --data]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Where Redis is, as for `serve`; without it, Redis is left out
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,
    /// Folder of a running `holdfast up`, asked when no DATABASE_URL is given
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `holdfast lesson`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "It is run at the `holdfast up` of --data, if one runs there with its lab on; \
    otherwise at a shop of its own on 127.0.0.1, which is removed at the end.\n\n\
    Exit code 0: its claim was shown. 1: it was not. 2: it could not be played, or not to its end; \
    stderr says why."
)]
pub struct Lesson {
    /// Which; without a name, all there are are listed
    pub name: Option<String>,
    /// Folder of a running `holdfast up`
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Print the whole run as JSON instead
    #[arg(long)]
    pub json: bool,
}

/// Options of `holdfast bench`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "It starts a shop of its own on 127.0.0.1, with its data below /var/tmp, and \
    removes it at the end. A strategy whose books are not sound after every run has no figure, only \
    how far it oversold. Progress is on stderr, the table on stdout."
)]
pub struct Bench {
    /// How many times everything is run, forth and back
    #[arg(long, default_value_t = 2, overrides_with = "rounds", value_parser = whole::<u32>(1..=100))]
    pub rounds: u32,
    /// How long one run is, its warm-up not counted
    #[arg(long, default_value_t = 1.0, overrides_with = "seconds", value_parser = seconds)]
    pub seconds: f64,
    /// How many clients crowd on the one item
    #[arg(long, default_value_t = 64, overrides_with = "connections", value_parser = whole::<u16>(1..=1_000))]
    pub connections: u16,
    /// Only these strategies, separated by commas [default: none, local, owner, watchdog, redlock,
    /// fenced, row-lock, atomic and batched]
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', num_args = 1..)]
    pub only: Vec<String>,
    /// Connections to Postgres per replica; of several, separated by commas, each strategy is run
    /// with the one that it is fastest with
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "16", overrides_with = "pool_sizes", value_parser = whole::<u32>(1..=64))]
    pub pool_sizes: Vec<u32>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE", overrides_with = "json")]
    pub json: Option<PathBuf>,
    /// Also draw them
    #[arg(long, value_name = "FILE", overrides_with = "svg")]
    pub svg: Option<PathBuf>,
    /// Put the goals beside the figures
    #[arg(long, overrides_with = "goals")]
    pub goals: bool,
    /// What `cargo bench --bench lock` wrote to HOLDFAST_BENCH_JSON, for the goals of the lock
    /// alone
    #[arg(long, value_name = "FILE", overrides_with = "lock_json")]
    pub lock_json: Option<PathBuf>,
}

/// Options of `holdfast keys`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Looking changes nothing. It asks Redis for names a hundred at a time and leaves \
    as much time to others as it takes; of a Cluster it looks at every primary. `*` marks what \
    counts as big; memory is Redis' own estimate.\n\n\
    Nothing is removed unless --delete names it, or --delete-big is confirmed. Names are printed, \
    and read by --delete, with what can't be printed as \\xNN and a backslash as \\\\. Interrupted \
    in between, a key is left with fewer elements; the same command goes on with it.\n\n\
    Exit code 0: done. 1: not, or not all of it; stderr says why."
)]
pub struct Keys {
    /// Where Redis is, as for `serve` [default: the running `holdfast up` of --data]
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,
    /// Folder of a running `holdfast up`, asked when no REDIS_URL is given
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Look only at names like this: `*` any letters, `?` one, `[ab]` one of these
    #[arg(long, default_value = "*", conflicts_with = "delete")]
    pub pattern: String,
    /// How many are listed, the largest first
    #[arg(long, default_value_t = 20, value_parser = whole::<u16>(1..=1_000), conflicts_with = "delete")]
    pub top: u16,
    /// Which are the largest. By elements, a string's bytes count in the proportion of what is
    /// big: 10,240 of them are as much as 5,000 elements
    #[arg(long, value_name = "WHAT", default_value = "memory", conflicts_with = "delete")]
    pub by: By,
    /// A string of more bytes than this counts as big
    #[arg(long, value_name = "BYTES", default_value_t = 10_240)]
    pub big_string: u64,
    /// Anything else of more elements than this counts as big
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    pub big_elements: u64,
    /// Remove these keys, now
    #[arg(long, value_name = "KEY", num_args = 1.., conflicts_with = "delete_big")]
    pub delete: Vec<String>,
    /// Remove the big keys that are listed, after asking
    #[arg(long)]
    pub delete_big: bool,
    /// How they are removed: `unlink` at once, their memory given back in the background, or in
    /// `batches` of 500 elements, where Redis has no UNLINK
    #[arg(long, value_name = "HOW", default_value = "unlink")]
    pub with: With,
    /// Don't ask before --delete-big
    #[arg(long, short, requires = "delete_big")]
    pub yes: bool,
    /// Also remove what belongs to the shop: its locks, tokens and queues. Two may hold a lock that
    /// is removed
    #[arg(long)]
    pub force: bool,
    /// What the shop's own keys begin with
    #[arg(long, env = "HOLDFAST_REDIS_PREFIX", default_value = "holdfast:")]
    pub redis_prefix: String,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Which keys are the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Those that take the most memory.
    Memory,
    /// Those with the most elements.
    Elements,
}

/// How a big key is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum With {
    /// At once, the memory in the background.
    Unlink,
    /// Piece by piece.
    Batches,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}
