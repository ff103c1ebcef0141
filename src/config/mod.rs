//! The command line and the configuration; every flag of `serve` has an environment variable.
//!
//! The doc comments are the text of `--help`. The domain and the web take plain arguments instead.

mod environment;
mod judge;
mod lock;
mod users;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use environment::variable;
pub use judge::JudgeArgs;
pub use lock::LockArgs;
pub use users::{UserAddArgs, UserCommand, UserNameArgs, UserPasswordArgs};
use values::{address, quorum_nodes, seconds, whole_number};

/// Minimum length of a new password: that of NIST SP 800-63B.
pub const MIN_PASSWORD_LENGTH: u16 = 8;

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
    User(UserCommand),
    /// Check ledgers, orders and accounts against each other; exit code 0 if they agree, 1 if not
    Audit(AuditArgs),
    /// Run a lesson of the lab; exit code 0 if its claim was shown, 1 if not
    Lesson(LessonArgs),
    /// Measure the cost of each strategy on this machine, in a minute or two
    Bench(BenchArgs),
    /// Judge any lock behind an adapter, under load and faults; exit code 0 if no update was lost,
    /// 1 if one was, 2 if it could not be judged
    Judge(JudgeArgs),
    /// A worker of `holdfast judge`
    #[command(hide = true)]
    JudgeWorker,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The replicas also read the environment variables of `holdfast serve --help`, \
    such as HOLDFAST_LOCK_TTL_MS."
)]
pub struct UpArgs {
    /// Number of replicas; they listen on the listen port and the ports after it
    #[arg(long, env = "HOLDFAST_UP_REPLICAS", default_value_t = 2, value_parser = whole_number::<u16>(1..=16))]
    pub replicas: u16,
    /// Address of the first replica
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Folder that keeps the data between runs
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Use a data folder that is a copy of another one: the copy of a running shop may be damaged
    #[arg(long)]
    pub adopt: bool,
    /// Number of independent Redis servers to start for the lock `redlock`: 3 or 5
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = quorum_nodes)]
    pub redlock: u16,
    /// Allow a listen address other than loopback; the demo users' passwords are their names
    #[arg(long)]
    pub demo_users_on_network: bool,
    /// The lab: its headers, throw-away items and broken locks; with public, every signed-in user
    /// may run its lessons
    #[arg(long, env = "HOLDFAST_LAB", default_value = "on")]
    pub lab: LabMode,
    /// Strategy of the replicas: none, local, setnx, setnx-expire, ttl, check-then-del,
    /// expire-only, owner, watchdog, redlock, early-release, wrong-key, fenced, row-lock, atomic,
    /// version, serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub lock: String,
}

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// URL of Postgres, e.g. postgres://user:password@host/name?sslmode=verify-full
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// URL of Redis: redis://host:6379, redis-cluster://host:port,host:port for a Cluster,
    /// redis-sentinel://host:port,host:port/NAME for the master of that name; with TLS they begin
    /// with rediss
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: String,
    /// URLs of the independent Redis servers of the lock `redlock`, separated by commas; three or
    /// five, each a single server
    #[arg(long, env = "REDLOCK_URLS", hide_env_values = true, value_delimiter = ',')]
    pub redlock_urls: Vec<String>,
    #[command(flatten)]
    pub redis_tls: RedisTlsArgs,
    /// Prefix of every key in Redis; shops that share a Redis need different ones
    #[arg(long, env = "HOLDFAST_REDIS_PREFIX", default_value = "holdfast:")]
    pub redis_prefix: String,
    /// Address to listen on
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Name of this replica in responses and on pages [default: the listen port]
    #[arg(long, env = "HOLDFAST_REPLICA")]
    pub replica: Option<String>,
    /// URLs of all replicas, separated by commas, to which the race on the first page sends its
    /// orders; or that of a balancer in front of them [default: this replica]
    #[arg(long, value_name = "URLS", env = "HOLDFAST_REPLICAS", value_delimiter = ',')]
    pub replica_urls: Vec<String>,
    /// Maximum number of connections to Postgres of this replica
    #[arg(long, env = "HOLDFAST_POOL_SIZE", default_value_t = 16, value_parser = whole_number::<u32>(1..=500))]
    pub pool_size: u32,
    /// Connections to Postgres that requests on items of the lab may hold at a time, so that a
    /// paused one leaves the others to the shop [default: a quarter of the pool]
    #[arg(long, env = "HOLDFAST_LAB_CONNECTIONS", value_parser = whole_number::<u32>(1..=500))]
    pub lab_connections: Option<u32>,
    /// The lab: its headers, throw-away items and broken locks. The admin may run its lessons; with
    /// public, every signed-in user may
    #[arg(long, env = "HOLDFAST_LAB", default_value = "off")]
    pub lab: LabMode,
    /// Visitors on this machine may run lessons without signing in: `up` knows that no proxy is in
    /// front
    #[arg(long, env = "HOLDFAST_LOCAL_VISITORS", default_value = "off", hide = true)]
    pub local_visitors: Switch,
    /// Background work of this replica: expiry of unpaid orders, and the scheduled jobs. All
    /// replicas may enable it: each task is executed once
    #[arg(long, env = "HOLDFAST_JOBS", default_value = "on")]
    pub jobs: Switch,
    /// Minimum length of a new password, in characters
    #[arg(long, env = "HOLDFAST_MIN_PASSWORD_LENGTH", default_value_t = MIN_PASSWORD_LENGTH, value_parser = whole_number::<u16>(3..=64))]
    pub min_password_length: u16,
    /// Cookies only for browsers that use TLS: `Secure`, with names that begin with `__Host-`
    #[arg(long, env = "HOLDFAST_SECURE_COOKIES", default_value = "off")]
    pub secure_cookies: Switch,
    /// Time for which an unpaid order keeps its units, in seconds
    #[arg(long, env = "HOLDFAST_PAY_WITHIN_S", default_value_t = 900, value_parser = whole_number::<u64>(1..=604_800))]
    pub pay_within_s: u64,
    /// Shutdown: time for which /readyz is 503 and requests are still accepted, in seconds
    #[arg(long, env = "HOLDFAST_DRAIN_S", default_value_t = 5, value_parser = whole_number::<u64>(0..=300))]
    pub drain_s: u64,
    /// Host names under which clients know this shop, separated by commas, such as shop.example.org
    /// or *.example.org: other requests are refused, except for /healthz, /readyz and /metrics
    /// [default: any]
    #[arg(long, value_name = "HOSTS", env = "HOLDFAST_PUBLIC_HOSTS", value_delimiter = ',')]
    pub public_hosts: Vec<String>,
    #[command(flatten)]
    pub lock: LockArgs,
    #[command(flatten)]
    pub limits: RateLimitArgs,
}

#[derive(Debug, Clone, Default, Args)]
pub struct RedisTlsArgs {
    /// File with the authorities (PEM) that sign the certificates of Redis, beside those of the
    /// system
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_CA")]
    pub redis_ca: Option<String>,
    /// File with the client certificate (PEM) for a Redis that requires one
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_CERT")]
    pub redis_cert: Option<String>,
    /// File with the private key (PEM) of the client certificate
    #[arg(long, value_name = "FILE", env = "HOLDFAST_REDIS_KEY")]
    pub redis_key: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct RateLimitArgs {
    /// Rate limit of a signed-in user: RATE/s, RATE/m or RATE/h, and :BURST for the number of
    /// requests at once; or off [default: 50/s:200; off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_CLIENT")]
    pub limit_client: Option<String>,
    /// Rate limit of an address (of IPv6, a network of 64 bits) [default: 500/s:2000; off while the
    /// lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_ADDRESS")]
    pub limit_address: Option<String>,
    /// Rate limit of an address for sign-in and sign-up; an IPv6 network of 48 bits has four times
    /// as much [default: 60/m:30; off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_SIGN_IN")]
    pub limit_sign_in: Option<String>,
    /// Rate limit of attempts to sign in as one user, over all addresses from which that user has
    /// not signed in before; each known address has the same limit of its own [default: 10/m:10;
    /// off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_SIGN_IN_NAME")]
    pub limit_sign_in_name: Option<String>,
    /// Rate limit of an address for races on the first page, also while the lab is on
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_RACE", default_value = "30/m")]
    pub limit_race: String,
    /// Upper bound of a user's unpaid orders: 1 to 1,000,000; or off [default: 200; off while the
    /// lab is on]
    #[arg(long, value_name = "ORDERS", env = "HOLDFAST_LIMIT_UNPAID")]
    pub limit_unpaid: Option<String>,
    /// Proxies in front of this replica, as addresses or networks (10.0.0.0/8), separated by
    /// commas: X-Forwarded-For is trusted only from these
    #[arg(long, value_name = "NETWORKS", env = "HOLDFAST_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,
    /// Connections that one address (of IPv6, a network of 64 bits) may have open, or off; those of
    /// trusted proxies are not counted [default: 4096; off while the lab is on]
    #[arg(long, value_name = "NUMBER", env = "HOLDFAST_LIMIT_CONNECTIONS")]
    pub limit_connections: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct HealthcheckArgs {
    /// Address on which the replica listens; an unspecified one (0.0.0.0) means loopback
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
}

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

#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// URL of Postgres [default: the running `holdfast up` of --data]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Folder of a running `holdfast up`, used without DATABASE_URL
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
}

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

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The lesson runs on the `holdfast up` of --data if that has its lab on, otherwise \
    on a temporary shop on 127.0.0.1. It prints English, or Chinese if LC_ALL or LANG begins with zh.\n\n\
    Exit code 0: the claim was shown. 1: it was not. 2: the lesson did not finish; stderr says why."
)]
pub struct LessonArgs {
    /// Name of the lesson; without a name, all lessons are listed
    pub name: Option<String>,
    /// Folder of a running `holdfast up`
    #[arg(long, env = "HOLDFAST_DATA", default_value = ".holdfast")]
    pub data: PathBuf,
    /// Print the whole run as JSON
    #[arg(long)]
    pub json: bool,
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LabMode {
    /// Visitors on this machine run lessons; others need an admin's session.
    On,
    /// No lab.
    Off,
    /// Visitors on this machine and all signed-in users run lessons.
    Public,
}

impl LabMode {
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Public => "public",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}
