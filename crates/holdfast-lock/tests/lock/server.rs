//! Redis for one test, in every topology, and the locks of several processes on it.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use holdfast_lock::fenced::Timing;
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks, Redis, Settings, Wait,
};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::topology::{self, RunningServers, Topology};

/// Short enough for a test, long enough for a busy machine.
pub const TTL: Duration = Duration::from_millis(900);
/// A lease that does not end during a test, however busy the machine is.
pub const LONG_TTL: Duration = Duration::from_secs(30);
/// Timeout of an acquisition that must succeed.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);

/// The Redis servers of one topology, for one test at a time. They end with the value, except those
/// that are slow to start: the next test of this process reuses them.
pub struct Server {
    running: Option<RunningServers>,
    topology: Topology,
    /// No server was changed, killed or stopped.
    reusable: Cell<bool>,
}

/// Topologies that no test uses at the moment.
static IDLE: Mutex<Vec<(Topology, RunningServers)>> = Mutex::new(Vec::new());

/// Runs each test against each topology, as a test of its own.
macro_rules! each_topology {
    ($($test:ident),+ $(,)?) => {
        $crate::server::each_topology!(@on redis Redis: $($test)+);
        $crate::server::each_topology!(@on valkey Valkey: $($test)+);
        $crate::server::each_topology!(@on cluster Cluster: $($test)+);
        $crate::server::each_topology!(@on sentinel Sentinel: $($test)+);
    };
    (@on $module:ident $topology:ident: $($test:ident)+) => {
        mod $module {
            use $crate::topology::Topology;

            $(
                #[test]
                fn $test() {
                    $crate::server::run(Topology::$topology, async |server| {
                        super::$test(server).await;
                    });
                }
            )+
        }
    };
}
pub(crate) use each_topology;

/// Runs one test, with a runtime that ends before the server is reused.
pub fn run(topology: Topology, test: impl AsyncFnOnce(&mut Server)) {
    let Some(mut server) = Server::of(topology) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(test(&mut server));
    drop(runtime);
    drop(server);
}

impl Server {
    pub fn start() -> Self {
        Self::of(Topology::Redis).unwrap()
    }

    /// Returns `None` if the program is not installed.
    pub fn of(topology: Topology) -> Option<Self> {
        let idle = {
            let mut idle = IDLE.lock().unwrap();
            let at = idle.iter().position(|(kind, _)| *kind == topology);
            at.map(|at| idle.swap_remove(at).1)
        };
        let running = Some(idle.or_else(|| topology::start(topology))?);
        Some(Self { running, topology, reusable: Cell::new(true) })
    }

    fn running(&self) -> &RunningServers {
        self.running.as_ref().unwrap()
    }

    pub fn url(&self) -> &str {
        &self.running().url
    }

    /// The reply of the server that has the key of `command`; without a key it is sent to every
    /// primary, and the last one replies. Of the Cluster's three the last one has `{a}`.
    pub fn query<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.query_each(command).pop().unwrap_or_else(|| panic!("no server replied to {command}"))
    }

    pub fn query_each<T: redis::FromRedisValue>(&self, command: &str) -> Vec<T> {
        let primaries = self.running().data.iter().filter(|(_, url)| is_primary(url));
        let replies = primaries.filter_map(|(_, url)| match topology::query(url, command) {
            Err(error) if error.redirect_node().is_some() => None,
            reply => Some(reply.unwrap()),
        });
        replies.collect()
    }

    /// Sends a command to every server that stores keys, replicas too.
    pub fn execute_on_all(&self, command: &str) {
        for (_, url) in &self.running().data {
            let _: redis::Value = topology::query(url, command).unwrap();
        }
    }

    /// SIGKILL, and a restart without data. Sentinels may promote the replica.
    pub fn restart_empty(&mut self) {
        self.mark_as_changed();
        for (server, _) in &mut self.running.as_mut().unwrap().data {
            server.restart();
        }
        for (_, url) in &self.running().data {
            topology::until("it responds again", || topology::query::<String>(url, "PING").is_ok());
        }
        if self.topology == Topology::Cluster {
            self.running().wait_until_complete();
        }
    }

    /// SIGKILL to every server that stores keys.
    pub fn kill(&mut self) {
        self.mark_as_changed();
        for (server, _) in &mut self.running.as_mut().unwrap().data {
            server.kill();
        }
    }

    /// Marks the servers as changed: no other test reuses them.
    pub fn mark_as_changed(&self) {
        self.reusable.set(false);
    }

    pub fn signal_one(&self, number: usize, signal: Signal) {
        self.mark_as_changed();
        self.running().data[number].0.signal(signal);
    }

    pub fn query_node<T: redis::FromRedisValue>(
        &self,
        number: usize,
        command: &str,
    ) -> redis::RedisResult<T> {
        topology::query(&self.running().data[number].1, command)
    }

    pub fn primary(&self) -> usize {
        self.running().data.iter().position(|(_, url)| is_primary(url)).unwrap()
    }

    /// The number of servers that are primaries by their own view.
    pub fn primaries(&self) -> usize {
        self.running().data.iter().filter(|(_, url)| is_primary(url)).count()
    }

    pub fn port(&self, number: usize) -> u16 {
        self.running().data[number].1.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Delays all replies by this time, so sentinels may start a failover.
    pub fn pause(&self, time: Duration) {
        self.mark_as_changed();
        let _: String = self.query(&format!("CLIENT PAUSE {} ALL", time.as_millis()));
    }

    pub fn signal(&self, signal: Signal) {
        self.mark_as_changed();
        for (server, _) in &self.running().data {
            server.signal(signal);
        }
    }

    /// The locks of a process, with a lease of [`TTL`].
    pub fn process(&self) -> Process {
        self.process_with_handoff_period(Timing::default().local_handoff_period)
    }

    /// The same, with a limit of local handoffs while another process waits.
    pub fn process_with_handoff_period(&self, local_handoff_period: Duration) -> Process {
        self.process_with_timing(
            Timing::default().with_ttl(TTL).with_local_handoff_period(local_handoff_period),
        )
    }

    /// The same with long times; it still polls in case a message is lost.
    pub fn process_with_long_times(&self) -> Process {
        let [grant_ttl, poll_interval] = [15, 5].map(Duration::from_secs);
        let timing = Timing::default()
            .with_ttl(LONG_TTL)
            .with_grant_ttl(grant_ttl)
            .with_poll_interval(poll_interval);
        self.process_with_timing(timing)
    }

    pub fn process_with_timing(&self, timing: Timing) -> Process {
        let mut settings = Settings::default();
        // Longer than the interval at which a poll makes a lost message good.
        settings.acquire_timeout = settings.acquire_timeout.max(3 * timing.poll_interval);
        let settings = settings.with_fenced(timing);
        Process(Locks::new(Redis::open(self.url()).unwrap(), settings).unwrap())
    }

    pub fn keys(&self) -> Vec<String> {
        self.query_each::<Vec<String>>("KEYS *").concat()
    }

    /// The existing keys, except fences, which are kept for a day.
    pub fn keys_left(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| !key.ends_with(":fence"));
        keys
    }
}

fn is_primary(url: &str) -> bool {
    let role: redis::RedisResult<Vec<redis::Value>> = topology::query(url, "ROLE");
    role.is_ok_and(|role| role.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
}

impl Drop for Server {
    fn drop(&mut self) {
        let slow_to_make = matches!(self.topology, Topology::Cluster | Topology::Sentinel);
        if self.reusable.get() && slow_to_make && !std::thread::panicking() {
            let _: String = self.query("FLUSHALL");
            IDLE.lock()
                .unwrap()
                .extend(self.running.take().map(|running| (self.topology, running)));
        }
    }
}

#[derive(Clone)]
pub struct Process(pub Locks);

impl Process {
    pub async fn acquire(&self, key: &str, wait: Wait, timeout: Duration) -> AcquireOutcome {
        self.try_acquire(&[key], wait, timeout).await.unwrap()
    }

    pub async fn try_acquire(
        &self,
        keys: &[&str],
        wait: Wait,
        timeout: Duration,
    ) -> Result<AcquireOutcome, holdfast_lock::Error> {
        let keys: Vec<LockKey> = keys.iter().map(|key| LockKey::new(*key).unwrap()).collect();
        let deadline = tokio::time::Instant::now() + timeout;
        let request =
            AcquireRequest::new(LockKind::Fenced, &keys).with_wait(wait).with_deadline(deadline);
        self.0.acquire(request).await
    }

    pub async fn lock(&self, key: &str) -> Guards {
        match self.acquire(key, Wait::Notify, ACQUIRE_TIMEOUT).await {
            AcquireOutcome::Acquired(guards) => guards,
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether the lock is free, without keeping it.
    pub async fn is_free(&self, key: &str) -> bool {
        match self.acquire(key, Wait::Try, Duration::from_secs(5)).await {
            AcquireOutcome::Acquired(guards) => {
                guards.release().await;
                true
            }
            _ => false,
        }
    }
}

pub fn fence(guards: &Guards, key: &str) -> i64 {
    guards.fence(&LockKey::new(key).unwrap()).unwrap()
}

pub async fn ping(redis: &Redis) -> Result<(), holdfast_lock::redis::Error> {
    redis.query::<String>(::redis::cmd("PING")).await.map(drop)
}

pub async fn until<F: AsyncFnMut() -> bool>(what: &str, mut condition: F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Spawns a task that waits for `key`, and returns once its waiter is queued in Redis.
pub async fn enqueue(
    server: &Server,
    process: &Process,
    key: &'static str,
) -> tokio::task::JoinHandle<Guards> {
    let before: usize = server.query(&format!("ZCARD holdfast:lock:{key}:queue"));
    let waiter = {
        let process = process.clone();
        tokio::spawn(async move { process.lock(key).await })
    };
    until("it waits", async || {
        let queue: usize = server.query(&format!("ZCARD holdfast:lock:{key}:queue"));
        queue > before
    })
    .await;
    waiter
}

/// Waits until the process that holds the lock listens, which begins in the background: a message
/// that comes earlier is lost, and the holder learns of a waiter when it renews.
pub async fn until_holder_listens(server: &Server, key: &str) {
    let value: String = server.query(&format!("GET holdfast:lock:{key}"));
    let (process, _) = value.split_once('.').unwrap();
    let channels = format!("PUBSUB CHANNELS *{process}");
    until("the holder listens", async || {
        server.query_each::<Vec<String>>(&channels).iter().any(|found| !found.is_empty())
    })
    .await;
}

/// Waits until the holder is notified that another process waits.
pub async fn until_notified_of_waiter(held: &Guards, key: &str) {
    let key = LockKey::new(key).unwrap();
    let guard = held.get(&key).unwrap().as_fenced().unwrap();
    let notified = timeout(ACQUIRE_TIMEOUT, guard.wait_until_wanted()).await;
    notified.expect("the holder is notified of the waiter");
    assert!(guard.is_wanted());
}
