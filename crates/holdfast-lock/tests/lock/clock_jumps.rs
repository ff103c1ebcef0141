//! Clocks that jump, in real processes: a client's time of day, and that of Redis.
//!
//! `shim.rs` is built with `rustc` and loaded into them. Where that is impossible (no `rustc`, or
//! no `LD_PRELOAD` as on macOS) the tests are skipped, and fail in CI. `tests/model` covers what a
//! jump does to the protocol, as a clock that runs slow and as a Redis that forgets.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_lock::fenced::Timing;
use holdfast_lock::{Guards, LockKey, Locks, Redis, Released, Settings};
use tokio::task::JoinHandle;

use crate::history::{History, Hold, assert_exclusive, hold_once};
use crate::server::{Process, Server, TTL, fence, until};
use crate::topology::skip;

/// A clock that can be shifted while those who look at it run.
struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    fn new() -> Option<Self> {
        let clock = Self { folder: tempfile::Builder::new().prefix("hc-").tempdir().unwrap() };
        clock.jump_to(0);
        if !cfg!(target_os = "linux") {
            skip("clocks can be shifted on Linux only (LD_PRELOAD)");
            return None;
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lock/shim.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let built = Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "cdylib", "-C", "panic=abort", "-O", "-o"])
            .arg(clock.library())
            .arg(source)
            .status();
        match built {
            Ok(status) => assert!(status.success(), "tests/lock/shim.rs does not compile"),
            Err(error) => {
                skip(&format!("rustc, which builds tests/lock/shim.rs, does not start: {error}"));
                return None;
            }
        }
        Some(clock)
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shim.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shift")
    }

    /// Shifts the clock by `seconds` from the true time.
    fn jump_to(&self, seconds: i64) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        // Never half written, never empty: that would be a jump of its own.
        std::fs::rename(new, self.file()).unwrap();
    }

    fn env(&self) -> [(&OsStr, OsString); 2] {
        [
            (OsStr::new("LD_PRELOAD"), self.library().into()),
            (OsStr::new("HOLDFAST_TEST_CLOCK"), self.file().into()),
        ]
    }

    /// A Redis that looks at it.
    fn server(&self) -> Jumping {
        let folder = tempfile::Builder::new().prefix("hj-").tempdir().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .args([OsStr::new("--unixsocket"), folder.path().join("redis.sock").as_os_str()])
            .args([OsStr::new("--dir"), folder.path().as_os_str()])
            .envs(self.env())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed; script/bootstrap sees to it");
        let server = Jumping { child, folder };
        let started = Instant::now();
        while server.try_ask::<String>("PING").is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "redis-server does not answer");
            std::thread::yield_now();
        }
        let seconds = || server.ask::<(i64, i64)>("TIME").0;
        let before = seconds();
        self.jump_to(3_600);
        assert!(seconds() - before >= 3_600, "Redis does not see its clock jump");
        self.jump_to(0);
        server
    }
}

/// A Redis whose clock jumps. It ends with the value.
struct Jumping {
    child: Child,
    folder: tempfile::TempDir,
}

impl Jumping {
    fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.path().join("redis.sock").display())
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).unwrap()
    }

    fn try_ask<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let mut words = command.split(' ');
        redis::cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).query(&mut connection)
    }

    fn process(&self) -> Process {
        process_at(&self.url())
    }

    /// A task that waits for `{a}`, when Redis knows that it does.
    async fn waiter(&self, process: &Process) -> JoinHandle<Guards> {
        let process = process.clone();
        let waiter = tokio::spawn(async move { process.take("{a}").await });
        until("it waits", async || self.ask::<i64>("ZCARD holdfast:lock:{a}:queue") == 1).await;
        waiter
    }

    async fn is_empty_soon(&self) {
        until("nothing but fences is left", async || {
            self.ask::<Vec<String>>("KEYS *").iter().all(|key| key.ends_with(":fence"))
        })
        .await;
    }
}

impl Drop for Jumping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn process_at(url: &str) -> Process {
    let fenced = Timing { ttl: TTL, ..Timing::default() };
    let settings = Settings { fenced, ..Settings::default() };
    Process(Locks::new(Redis::open(url).unwrap(), settings).unwrap())
}

const CHILD: &str = "HOLDFAST_TEST_CHILD_OF";
const CHILDS_TURNS: usize = 150;

/// A client whose time of day jumps to and fro, beside one whose does not: one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn client_clock_jumps_have_no_effect() {
    let Some(clock) = Clock::new() else { return };
    let server = Server::start();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clock_jumps::client_in_own_process", "--ignored", "--nocapture"])
        .env(CHILD, server.url())
        .envs(clock.env())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let history = History::default();
    let here = server.process();
    let beside = tokio::spawn({
        let (stop, history) = (stop.clone(), history.clone());
        async move {
            while !stop.load(Ordering::SeqCst) {
                hold_once(&here, &history).await;
            }
        }
    });
    let mut hours = (1..).flat_map(|n: i64| [n % 50, -n % 50]);
    until("it has had its turns", async || {
        clock.jump_to(hours.next().unwrap() * 3_600);
        child.try_wait().unwrap().is_some()
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    beside.await.unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut times = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some(numbers) = line.strip_prefix("hold ") else { continue };
        let numbers: Vec<i64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
        let [from_us, to_us, fence, time_of_day_s] = numbers[..] else { panic!("{line}") };
        let (from_us, to_us) = (from_us.cast_unsigned(), to_us.cast_unsigned());
        history.lock().unwrap().push(Hold { from_us, to_us, fence });
        times.push(time_of_day_s);
    }
    assert_eq!(times.len(), CHILDS_TURNS);
    let span = times.iter().max().unwrap() - times.iter().min().unwrap();
    assert!(span > 3_600, "its time of day did not jump");
    assert_exclusive(&history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the test above"]
async fn client_in_own_process() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let process = process_at(&url);
    for _ in 0..CHILDS_TURNS {
        let history = History::default();
        hold_once(&process, &history).await;
        let Hold { from_us, to_us, fence } = history.lock().unwrap()[0];
        let time_of_day_s = holdfast_lock::clock::unix_ms() / 1_000;
        println!("hold {from_us} {to_us} {fence} {time_of_day_s}");
    }
}

/// All leases end at once: the holder learns it, and the next fence is larger.
#[tokio::test(flavor = "multi_thread")]
async fn forward_redis_clock_ends_lease_with_notice() {
    let Some(clock) = Clock::new() else { return };
    let server = clock.server();
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    let guard = held.get(&LockKey::new("{a}").unwrap()).unwrap().as_fenced().unwrap();
    let waiter = server.waiter(&there).await;
    clock.jump_to(3_600);
    let jumped = Instant::now();
    let theirs = waiter.await.unwrap();
    guard.wait_until_lost().await;
    assert!(jumped.elapsed() < TTL, "{:?}", jumped.elapsed());
    assert!(fence(&theirs, "{a}") > fence(&held, "{a}"), "a late write can be told");
    assert_eq!(held.release().await, Released::Lost);
    assert_eq!(theirs.release().await, Released::Held);
}

/// A lease of the living is given its full time by the new clock with the next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn backward_redis_clock_keeps_live_leases() {
    let Some(clock) = Clock::new() else { return };
    let server = clock.server();
    let (here, there) = (server.process(), server.process());
    let held = here.take("{a}").await;
    let waiter = server.waiter(&there).await;
    clock.jump_to(-3_600);
    until("the lease is renewed by the new clock", async || {
        let left: i64 = server.ask("PTTL holdfast:lock:{a}");
        u128::try_from(left).is_ok_and(|left| left <= TTL.as_millis())
    })
    .await;
    assert!(!waiter.is_finished());
    let released = Instant::now();
    assert_eq!(held.release().await, Released::Held);
    let theirs = waiter.await.unwrap();
    assert!(released.elapsed() < TTL, "{:?}", released.elapsed());
    assert_eq!(theirs.release().await, Released::Held);
    server.is_empty_soon().await;
}

/// The limit: a dead holder's lease is not renewed, so it is prolonged by the jump of the clock.
#[tokio::test(flavor = "multi_thread")]
async fn backward_redis_clock_prolongs_dead_leases() {
    let Some(clock) = Clock::new() else { return };
    let server = clock.server();
    let (here, there) = (server.process(), server.process());
    here.take("{a}").await.leave_to_expire();
    clock.jump_to(-2);
    let jumped = Instant::now();
    there.take("{a}").await.release().await;
    let waited = jumped.elapsed();
    assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(2) + TTL * 2);
}
