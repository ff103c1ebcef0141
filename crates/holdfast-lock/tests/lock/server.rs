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

use crate::topology::{self, Running, Topology};

/// Short enough for a test, long enough for a busy machine.
pub const TTL: Duration = Duration::from_millis(900);

/// Redis in some shape, for one test at a time. It ends with the value, but for those that take
/// long to make: they are kept for the next test of this process.
pub struct Server {
    running: Option<Running>,
    topology: Topology,
    /// No server was killed or stopped.
    sound: Cell<bool>,
}

/// Topologies that no test uses at the moment.
static IDLE: Mutex<Vec<(Topology, Running)>> = Mutex::new(Vec::new());

/// Runs each test against each topology, as a test of its own.
macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        $crate::server::everywhere!(@on redis Redis: $($test)+);
        $crate::server::everywhere!(@on valkey Valkey: $($test)+);
        $crate::server::everywhere!(@on cluster Cluster: $($test)+);
        $crate::server::everywhere!(@on sentinel Sentinel: $($test)+);
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
pub(crate) use everywhere;

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

    /// `None` when there is no such program here.
    pub fn of(topology: Topology) -> Option<Self> {
        let idle = {
            let mut idle = IDLE.lock().unwrap();
            let at = idle.iter().position(|(kind, _)| *kind == topology);
            at.map(|at| idle.swap_remove(at).1)
        };
        let running = Some(idle.or_else(|| topology::start(topology))?);
        Some(Self { running, topology, sound: Cell::new(true) })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn url(&self) -> &str {
        &self.running().url
    }

    /// The reply of the server that has the key of `command`; without a key it is sent to every
    /// primary, and the last one replies. Of the Cluster's three the last one has `{a}`.
    pub fn ask<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.ask_each(command).pop().unwrap_or_else(|| panic!("nobody could answer {command}"))
    }

    pub fn ask_each<T: redis::FromRedisValue>(&self, command: &str) -> Vec<T> {
        let primaries = self.running().data.iter().filter(|(_, url)| is_primary(url));
        let answers = primaries.filter_map(|(_, url)| match topology::ask(url, command) {
            Err(error) if error.redirect_node().is_some() => None,
            answer => Some(answer.unwrap()),
        });
        answers.collect()
    }

    /// Sends a command to every server that stores keys, replicas too.
    pub fn tell_each_server(&self, command: &str) {
        for (_, url) in &self.running().data {
            let _: redis::Value = topology::ask(url, command).unwrap();
        }
    }

    /// SIGKILL, and a restart without data. Sentinels may promote the replica.
    pub fn restart_empty(&mut self) {
        self.spoil();
        for (server, _) in &mut self.running.as_mut().unwrap().data {
            server.start_again();
        }
        for (_, url) in &self.running().data {
            topology::until("it answers again", || topology::ask::<String>(url, "PING").is_ok());
        }
        if self.topology == Topology::Cluster {
            self.running().wait_until_whole();
        }
    }

    /// SIGKILL to every server that stores keys.
    pub fn kill(&mut self) {
        self.spoil();
        for (server, _) in &mut self.running.as_mut().unwrap().data {
            server.kill();
        }
    }

    /// Marks it as changed: no other test gets it.
    pub fn spoil(&self) {
        self.sound.set(false);
    }

    pub fn signal_one(&self, number: usize, signal: Signal) {
        self.spoil();
        self.running().data[number].0.signal(signal);
    }

    pub fn ask_one<T: redis::FromRedisValue>(
        &self,
        number: usize,
        command: &str,
    ) -> redis::RedisResult<T> {
        topology::ask(&self.running().data[number].1, command)
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

    /// No client gets a reply for this time, so sentinels may start a failover.
    pub fn pause(&self, time: Duration) {
        self.spoil();
        let _: String = self.ask(&format!("CLIENT PAUSE {} ALL", time.as_millis()));
    }

    pub fn signal(&self, signal: Signal) {
        self.spoil();
        for (server, _) in &self.running().data {
            server.signal(signal);
        }
    }

    /// A process's worth of locks, with a lease of [`TTL`].
    pub fn process(&self) -> Process {
        self.process_of_turn(Timing::default().local_handoff_period)
    }

    /// The same, but for how long it passes a lock on inside while another process waits.
    pub fn process_of_turn(&self, local_handoff_period: Duration) -> Process {
        self.process_of_times(Timing { ttl: TTL, local_handoff_period, ..Timing::default() })
    }

    /// The same with long times; it still polls for lost messages.
    pub fn process_without_hurry(&self) -> Process {
        let [ttl, grant_ttl, poll_interval] = [30, 15, 5].map(Duration::from_secs);
        self.process_of_times(Timing { ttl, grant_ttl, poll_interval, ..Timing::default() })
    }

    pub fn process_of_times(&self, times: Timing) -> Process {
        let settings = Settings { fenced: times, ..Settings::default() };
        Process(Locks::new(Redis::open(self.url()).unwrap(), settings).unwrap())
    }

    pub fn keys(&self) -> Vec<String> {
        self.ask_each::<Vec<String>>("KEYS *").concat()
    }

    /// The keys that are there, but for the fences, which are kept a day.
    pub fn keys_left(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| !key.ends_with(":fence"));
        keys
    }
}

fn is_primary(url: &str) -> bool {
    let role: redis::RedisResult<Vec<redis::Value>> = topology::ask(url, "ROLE");
    role.is_ok_and(|role| role.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
}

impl Drop for Server {
    fn drop(&mut self) {
        let slow_to_make = matches!(self.topology, Topology::Cluster | Topology::Sentinel);
        if self.sound.get() && slow_to_make && !std::thread::panicking() {
            let _: String = self.ask("FLUSHALL");
            IDLE.lock()
                .unwrap()
                .extend(self.running.take().map(|running| (self.topology, running)));
        }
    }
}

#[derive(Clone)]
pub struct Process(pub Locks);

impl Process {
    pub async fn ask(&self, key: &str, wait: Wait, patience: Duration) -> AcquireOutcome {
        self.try_ask(&[key], wait, patience).await.unwrap()
    }

    pub async fn try_ask(
        &self,
        keys: &[&str],
        wait: Wait,
        patience: Duration,
    ) -> Result<AcquireOutcome, holdfast_lock::Error> {
        let keys: Vec<LockKey> = keys.iter().map(|key| LockKey::new(*key).unwrap()).collect();
        let deadline = tokio::time::Instant::now() + patience;
        let ask = AcquireRequest { kind: LockKind::Fenced, wait, ttl: None, deadline, keys: &keys };
        self.0.acquire(ask).await
    }

    pub async fn take(&self, key: &str) -> Guards {
        match self.ask(key, Wait::Notify, Duration::from_secs(20)).await {
            AcquireOutcome::Acquired(guards) => guards,
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether the lock is free, without keeping it.
    pub async fn finds_it_free(&self, key: &str) -> bool {
        match self.ask(key, Wait::Try, Duration::from_secs(5)).await {
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
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Puts a task in line for `key` and returns when Redis knows it waits (or the process does).
pub async fn in_line(
    server: &Server,
    process: &Process,
    key: &'static str,
) -> tokio::task::JoinHandle<Guards> {
    let before: usize = server.ask(&format!("ZCARD holdfast:lock:{key}:queue"));
    let waiter = {
        let process = process.clone();
        tokio::spawn(async move { process.take(key).await })
    };
    until("it waits", async || {
        let queue: usize = server.ask(&format!("ZCARD holdfast:lock:{key}:queue"));
        queue > before
    })
    .await;
    waiter
}

/// Returns when the holder knows that another process waits.
pub async fn wanted(held: &Guards, key: &str) {
    let key = LockKey::new(key).unwrap();
    let guard = held.get(&key).unwrap().as_fenced().unwrap();
    let wanted = timeout(Duration::from_secs(10), guard.wait_until_wanted()).await;
    wanted.expect("the holder hears that somebody waits");
    assert!(guard.is_wanted());
}
