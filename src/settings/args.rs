//! Options of `holdfast serve`; each has an environment variable.

use std::net::SocketAddr;

use clap::Args;

use crate::redis_connection::RedisTlsArgs;
use holdfast_base::flags::{address, whole_number};
use holdfast_services::LabMode;

/// Minimum length of a new password: that of NIST SP 800-63B.
pub const MIN_PASSWORD_LENGTH: u16 = 8;

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// URL of Postgres: postgres://user:password@host/name?sslmode=verify-full
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// URL of Redis: redis://host:6379, redis-cluster://host:port,host:port for a Cluster,
    /// redis-sentinel://host:port,host:port/NAME for the master of that name; with TLS they begin
    /// with rediss
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: String,
    /// URLs of the independent Redis servers of the lock `redlock`; three or five, each a single
    /// server, separated by commas
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
    /// URLs of all replicas, to which the race on the first page sends its orders; separated by
    /// commas, or that of a balancer in front of them. Their hosts must be among --public-hosts
    /// [default: this replica]
    #[arg(long, value_name = "URLS", env = "HOLDFAST_REPLICAS", value_delimiter = ',')]
    pub replica_urls: Vec<String>,
    /// Maximum number of connections to Postgres of this replica; three more serve audits, and one
    /// tells the other replicas that it runs
    #[arg(long, env = "HOLDFAST_POOL_SIZE", default_value_t = 16, value_parser = whole_number::<u32>(1..=500))]
    pub pool_size: u32,
    /// Connections to Postgres that requests on items of the lab may hold at a time; one user gets
    /// three quarters of them. So paused requests leave the others to the shop [default: a quarter
    /// of the pool]
    #[arg(long, env = "HOLDFAST_LAB_CONNECTIONS", value_parser = whole_number::<u32>(1..=500))]
    pub lab_connections: Option<u32>,
    /// Whether the lab is on: its headers, throw-away items and broken locks. The admin may run its
    /// lessons; with public, every signed-in user may
    #[arg(long, env = "HOLDFAST_LAB", default_value = "off")]
    pub lab: LabMode,
    /// Visitors on this machine may run lessons without signing in: `up` knows that no proxy is in
    /// front
    #[arg(long, env = "HOLDFAST_LOCAL_VISITORS", default_value = "off", hide = true)]
    pub local_visitors: Switch,
    /// URL of the class for its students' devices; `up --class` sets it
    #[arg(long, env = "HOLDFAST_CLASS_URL", hide = true)]
    pub class_url: Option<String>,
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
    /// Time after a signal for which requests are accepted and /readyz is 503, in seconds; longer
    /// than a balancer needs to notice
    #[arg(long, env = "HOLDFAST_DRAIN_S", default_value_t = 5, value_parser = whole_number::<u64>(0..=300))]
    pub drain_s: u64,
    /// Host names under which clients know this shop: shop.example.org or *.example.org, separated
    /// by commas. Other requests get 421, except for /healthz, /readyz and /metrics. Ports are
    /// ignored [default: any]
    #[arg(long, value_name = "HOSTS", env = "HOLDFAST_PUBLIC_HOSTS", value_delimiter = ',')]
    pub public_hosts: Vec<String>,
    #[command(flatten)]
    pub lock: LockArgs,
    #[command(flatten)]
    pub limits: RateLimitArgs,
}

#[derive(Debug, Clone, Args)]
pub struct LockArgs {
    /// Strategy: none, check-then-decrement, local, setnx, setnx-expire, ttl, check-then-del,
    /// expire-only, owner, watchdog, redlock, early-release, wrong-key, fenced, row-lock, atomic,
    /// version, serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub strategy: String,
    /// Expiry of a lock that is not released, in milliseconds; `fenced` and `batched` have 3 s,
    /// renewed
    #[arg(long, env = "HOLDFAST_LOCK_TTL_MS", default_value_t = 10_000, value_parser = whole_number::<u64>(1_000..=600_000))]
    pub lock_ttl_ms: u64,
    /// Pause between two attempts of a polling waiter, in milliseconds, with ± 50 % jitter
    #[arg(long, env = "HOLDFAST_LOCK_RETRY_MS", default_value_t = 50, value_parser = whole_number::<u64>(1..=10_000))]
    pub lock_retry_ms: u64,
    /// Timeout of a waiter, in milliseconds; 0: a single attempt
    #[arg(long, env = "HOLDFAST_LOCK_TIMEOUT_MS", default_value_t = 5_000, value_parser = whole_number::<u64>(0..=7_000))]
    pub lock_timeout_ms: u64,
    /// Allow an unsafe strategy on the shop's own items: one that can oversell without any failure
    /// (none, check-then-decrement, local, early-release, wrong-key, queue), or a lock of the
    /// lessons (setnx, setnx-expire, ttl, check-then-del, expire-only). Items of the lab need
    /// nothing
    #[arg(long, value_name = "SWITCH", env = "HOLDFAST_UNSAFE_LOCK", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on")]
    pub unsafe_lock: Switch,
    /// Change the lock that the database records to one that does not exclude it. Stop all other
    /// replicas first
    #[arg(long)]
    pub change_lock: bool,
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
    /// Rate limit of attempts to sign in as one user, over all addresses that the user has not used
    /// before; each known address has the same limit of its own, so that an attacker cannot lock
    /// the user out [default: 10/m:10; off while the lab is on]
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_SIGN_IN_NAME")]
    pub limit_sign_in_name: Option<String>,
    /// Rate limit of an address for races on the first page, also while the lab is on
    #[arg(long, value_name = "LIMIT", env = "HOLDFAST_LIMIT_RACE", default_value = "30/m")]
    pub limit_race: String,
    /// Upper bound of a user's unpaid orders: 1 to 1,000,000; or off. Other replicas see an order
    /// after a second [default: 200; off while the lab is on]
    #[arg(long, value_name = "ORDERS", env = "HOLDFAST_LIMIT_UNPAID")]
    pub limit_unpaid: Option<String>,
    /// Proxies in front of this replica: addresses or networks (10.0.0.0/8), separated by commas.
    /// X-Forwarded-For, whose addresses may have ports, is trusted only from these
    #[arg(long, value_name = "NETWORKS", env = "HOLDFAST_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,
    /// Connections that one address (of IPv6, a network of 64 bits) may have open, or off; further
    /// ones are closed at once. Those of trusted proxies are not counted; with few open files
    /// (ulimit -n) it is at most half of them [default: 4096; off while the lab is on]
    #[arg(long, value_name = "NUMBER", env = "HOLDFAST_LIMIT_CONNECTIONS")]
    pub limit_connections: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}
