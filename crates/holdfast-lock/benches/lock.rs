//! Measures the cost of a lock for its waiters: `cargo bench -p holdfast-lock`.
//!
//! Two processes with 16 clients each compete for one lock: 2 ms of work under it, 20 ms of pause
//! after it. `fenced` and `owner` run the same load in interleaved rounds on one private Redis.
//! Printed per arm: the share of time the lock was held; the 99th percentile of the wait, also
//! relative to ideal FIFO order; the handoff within a process and between processes; the time of a
//! bare message between processes; Jain's fairness index over clients and over processes.
//!
//! The bare message is a `PUBLISH` after each round, as infrequent as that lock's changes of
//! process (but at least once in 20 acquisitions), so locks cannot be compared by it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use holdfast_lock::clock::monotonic_us;
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, LockKey, LockKind, Locks, Redis, Settings, Wait,
};
use tokio::time::Instant;

const ARMS: [&str; 2] = ["fenced", "owner"];
const PROCESSES: usize = 2;
const CLIENTS: usize = 16;
const WORK: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(20);
const WARM_UP_US: u64 = 500_000;
/// Name of the child process and of the channel that receive bare messages after a round.
const RECEIVER: &str = "receiver";
const TRIPS: usize = 200;

/// One acquisition by one client; times are of the machine's monotonic clock.
#[derive(Debug, Clone, Copy)]
struct BenchHold {
    client: usize,
    asked_us: u64,
    held_us: u64,
    released_us: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if arguments.first().map(String::as_str) == Some("--child") {
        return child(&arguments[1..]);
    }
    let seconds: u64 = setting("HOLDFAST_BENCH_SECONDS", 4);
    let rounds: usize = setting("HOLDFAST_BENCH_ROUNDS", 5);
    let server = PrivateRedis::start()?;
    println!(
        "{PROCESSES} processes with {CLIENTS} clients each, {} ms of work, {} ms of pause, \
         {rounds} rounds of {seconds} s",
        WORK.as_millis(),
        THINK.as_millis(),
    );
    let mut figures: BTreeMap<&str, Vec<RoundFigures>> = BTreeMap::new();
    for round in 0..rounds {
        let order = if round % 2 == 0 { ARMS } else { [ARMS[1], ARMS[0]] };
        for arm in order {
            let round = server.round(arm, seconds)?;
            figures.entry(arm).or_default().push(round);
        }
    }
    table(&figures);
    Ok(())
}

fn setting<T: std::str::FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

// ------------------------------------------------------------ child process

fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [arm, url, first, seconds] = arguments else { anyhow::bail!("a child's arguments") };
    if arm == RECEIVER {
        return receive(url);
    }
    let first: usize = first.parse()?;
    let end_us = monotonic_us() + seconds.parse::<u64>()? * 1_000_000;
    let runtime = runtime()?;
    let holds = runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        let locks = Locks::new(Redis::open(url)?, settings())?;
        for number in 0..CLIENTS {
            let locks = locks.clone();
            let kind = if arm == "owner" { LockKind::Owner } else { LockKind::Fenced };
            clients.spawn(async move { acquire_until(&locks, kind, first + number, end_us).await });
        }
        let mut holds = Vec::new();
        while let Some(client) = clients.join_next().await {
            holds.extend(client??);
        }
        anyhow::Ok(holds)
    })?;
    let mut out = std::io::stdout().lock();
    for hold in holds {
        let BenchHold { client, asked_us, held_us, released_us } = hold;
        writeln!(out, "{client} {asked_us} {held_us} {released_us}")?;
    }
    Ok(())
}

/// Prints the latency of each message, in µs, from the sender to a task in this process.
fn receive(url: &str) -> anyhow::Result<()> {
    let client = redis::Client::open(url)?;
    let received = async move {
        let mut channel = client.get_async_pubsub().await?;
        channel.subscribe(RECEIVER).await?;
        let mut times = Vec::new();
        let mut messages = channel.on_message();
        while times.len() < TRIPS {
            let message = messages.next().await.context("Redis hung up")?;
            times.push(monotonic_us() - message.get_payload::<u64>()?);
        }
        anyhow::Ok(times)
    };
    let times = runtime()?.block_on(async { tokio::spawn(received).await? })?;
    let mut out = std::io::stdout().lock();
    for time in times {
        writeln!(out, "{time}")?;
    }
    Ok(())
}

/// Creates a runtime with as many threads as a replica's main runtime.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.div_ceil(2))
        .enable_all()
        .build()
}

/// Returns Jain's index of fairness: 1 if all shares are equal, 1/n if one of them is everything.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

fn settings() -> Settings {
    Settings::default().with_key_prefix("bench:").with_acquire_timeout(Duration::from_secs(60))
}

async fn acquire_until(
    locks: &Locks,
    kind: LockKind,
    client: usize,
    end_us: u64,
) -> anyhow::Result<Vec<BenchHold>> {
    let key = [LockKey::new("{hot}")?];
    let mut holds = Vec::new();
    while monotonic_us() < end_us {
        let asked_us = monotonic_us();
        let deadline = Instant::now() + Duration::from_secs(60);
        let wait = if kind == LockKind::Fenced { Wait::Notify } else { Wait::Retry };
        let ask = AcquireRequest::new(kind, &key).with_wait(wait).with_deadline(deadline);
        let AcquireOutcome::Acquired(guards) = locks.acquire(ask).await? else {
            anyhow::bail!("waited in vain")
        };
        let held_us = monotonic_us();
        work().await?;
        let released_us = monotonic_us();
        guards.release().await;
        holds.push(BenchHold { client, asked_us, held_us, released_us });
        tokio::time::sleep(THINK).await;
    }
    Ok(holds)
}

/// Waits for [`WORK`] exactly, on the worker's own I/O readiness, as for a response of Postgres;
/// tokio's timer has a resolution of 1 ms only.
#[cfg(target_os = "linux")]
#[expect(deprecated, reason = "its successor is unsafe, which this crate forbids; we own the fd")]
async fn work() -> anyhow::Result<()> {
    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

    let timer = rustix::time::timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Timespec { tv_sec: 0, tv_nsec: i64::from(WORK.subsec_nanos()) };
    let timer = tokio::io::unix::AsyncFd::new(timer)?;
    let spec = Itimerspec { it_interval: never, it_value: once };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
    let _ = timer.readable().await?;
    Ok(())
}

/// Blocks for [`WORK`] exactly, on a thread that tokio knows to block.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "the worker is told that it blocks")]
async fn work() -> anyhow::Result<()> {
    tokio::task::block_in_place(|| std::thread::sleep(WORK));
    Ok(())
}

// ----------------------------------------------------------- parent process

/// A private Redis.
struct PrivateRedis {
    child: Child,
    folder: tempfile::TempDir,
}

impl PrivateRedis {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hb-").tempdir()?;
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .arg("--unixsocket")
            .arg(folder.path().join("redis.sock"))
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server can't be started; install Redis")?;
        let server = Self { child, folder };
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while server.connection().is_err() {
            ensure!(std::time::Instant::now() < deadline, "redis-server does not answer");
            std::thread::yield_now();
        }
        Ok(server)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    fn connection(&self) -> anyhow::Result<redis::Connection> {
        Ok(redis::Client::open(self.url())?.get_connection()?)
    }

    /// Returns the median time of a bare `PUBLISH` from one process to another through Redis, over
    /// the same socket and without other load, one per `holds_apart` times of work. It is the lower
    /// bound of a handoff between processes. To be comparable it must be as infrequent, because
    /// most of its cost is to wake a sleeping process. (A `PING` returns to its sender. If it finds
    /// Redis on the core that its client leaves, no process has to wake: 10 to 20 µs, or 200 with a
    /// thread in between.)
    fn trip_p50_us(&self, holds_apart: u32) -> anyhow::Result<f64> {
        let mut receiver = Command::new(std::env::current_exe()?);
        receiver.args(["--child", RECEIVER, &self.url(), "0", "0"]).stdout(Stdio::piped());
        let receiver = receiver.spawn()?;
        let client = redis::Client::open(self.url())?;
        let sent = async move {
            let mut redis = client.get_multiplexed_async_connection().await?;
            let deadline = Instant::now() + Duration::from_secs(10);
            let numsub = || redis::cmd("PUBSUB").arg("NUMSUB").arg(RECEIVER).to_owned();
            while numsub().query_async::<(String, u8)>(&mut redis).await?.1 == 0 {
                ensure!(Instant::now() < deadline, "nobody receives");
                work().await?;
            }
            for _ in 0..TRIPS {
                for _ in 0..holds_apart {
                    work().await?;
                }
                let sent_us = monotonic_us();
                redis::cmd("PUBLISH").arg(RECEIVER).arg(sent_us).exec_async(&mut redis).await?;
            }
            anyhow::Ok(())
        };
        runtime()?.block_on(async { tokio::spawn(sent).await? })?;
        let output = receiver.wait_with_output()?;
        ensure!(output.status.success(), "a process that receives failed");
        let times = String::from_utf8(output.stdout)?;
        let mut times: Vec<f64> = times.lines().map(str::parse).collect::<Result<_, _>>()?;
        Ok(percentile(&mut times, 0.5))
    }

    fn round(&self, arm: &str, seconds: u64) -> anyhow::Result<RoundFigures> {
        let mut children = Vec::new();
        for process in 0..PROCESSES {
            let first = (process * CLIENTS).to_string();
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["--child", arm, &self.url(), &first, &seconds.to_string()]);
            children.push(command.stdout(Stdio::piped()).spawn()?);
        }
        let mut holds = Vec::new();
        for child in children {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "a process of {arm} failed");
            for line in String::from_utf8(output.stdout)?.lines() {
                let numbers: Vec<u64> =
                    line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
                let [client, asked_us, held_us, released_us] = numbers[..] else { continue };
                let client = usize::try_from(client)?;
                holds.push(BenchHold { client, asked_us, held_us, released_us });
            }
        }
        let mut figures = figures(holds)?;
        // Bounded, because it is infinite if the lock never changed its process.
        let holds_apart = figures.holds_per_change.round().min(20.0);
        figures.trip_p50_us = self.trip_p50_us(holds_apart as u32)?;
        Ok(figures)
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// --------------------------------------------------------------- statistics

#[derive(Debug, Clone, Copy)]
struct RoundFigures {
    held_share: f64,
    p99_wait_ms: f64,
    p99_to_ideal: f64,
    same_process_p50_us: f64,
    between_p50_us: f64,
    /// Acquisitions per change to another process.
    holds_per_change: f64,
    /// Time of a bare message between processes at the same interval, measured right after the
    /// round.
    trip_p50_us: f64,
    jain: f64,
    jain_processes: f64,
}

fn figures(mut holds: Vec<BenchHold>) -> anyhow::Result<RoundFigures> {
    holds.sort_by_key(|hold| hold.held_us);
    for pair in holds.windows(2) {
        ensure!(pair[1].held_us >= pair[0].released_us, "two holders at once: {pair:?}");
    }
    let begin = holds.first().context("nobody had the lock")?.asked_us + WARM_UP_US;
    holds.retain(|hold| hold.held_us >= begin);
    let (first, last) = (holds[0].held_us, holds[holds.len() - 1].released_us);
    let held: u64 = holds.iter().map(|hold| hold.released_us - hold.held_us).sum();
    let mean_hold_ms = held as f64 / holds.len() as f64 / 1_000.0;
    let mut waits: Vec<f64> =
        holds.iter().map(|hold| (hold.held_us - hold.asked_us) as f64 / 1_000.0).collect();
    let p99_wait_ms = percentile(&mut waits, 0.99);
    let others = (PROCESSES * CLIENTS - 1) as f64;
    let ideal_ms = others * mean_hold_ms - THINK.as_secs_f64() * 1_000.0;
    let (mut same, mut between) = (Vec::new(), Vec::new());
    let (mut clients, mut processes) = ([0; PROCESSES * CLIENTS], [0; PROCESSES]);
    for pair in holds.windows(2) {
        let gap = (pair[1].held_us - pair[0].released_us) as f64;
        let together = pair[0].client / CLIENTS == pair[1].client / CLIENTS;
        if together { same.push(gap) } else { between.push(gap) }
    }
    for hold in &holds {
        clients[hold.client] += 1;
        processes[hold.client / CLIENTS] += 1;
    }
    Ok(RoundFigures {
        held_share: held as f64 / (last - first) as f64,
        p99_wait_ms,
        p99_to_ideal: p99_wait_ms / ideal_ms,
        same_process_p50_us: percentile(&mut same, 0.5),
        between_p50_us: percentile(&mut between, 0.5),
        holds_per_change: holds.len() as f64 / between.len() as f64,
        trip_p50_us: f64::NAN,
        jain: jain(&clients),
        jain_processes: jain(&processes),
    })
}

fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}

fn median(rounds: &[RoundFigures], of: impl Fn(&RoundFigures) -> f64) -> f64 {
    percentile(&mut rounds.iter().map(of).collect::<Vec<_>>(), 0.5)
}

/// Returns the median ratio of a handoff between processes to a bare message of the same round.
fn between_trips(rounds: &[RoundFigures]) -> f64 {
    median(rounds, |f| f.between_p50_us / f.trip_p50_us)
}

fn table(figures: &BTreeMap<&str, Vec<RoundFigures>>) {
    println!(
        "\n{:<10}{:>8}{:>12}{:>10}{:>14}{:>14}{:>10}{:>9}{:>8}{:>11}",
        "",
        "held",
        "p99 wait",
        "/ ideal",
        "same process",
        "between",
        "PUBLISH",
        "in those",
        "Jain",
        "processes"
    );
    for arm in ARMS {
        let Some(rounds) = figures.get(arm) else { continue };
        println!(
            "{:<10}{:>7.1}%{:>9.0} ms{:>10.2}{:>11.1} µs{:>11.0} µs{:>7.0} µs{:>9.1}{:>8.3}{:>11.3}",
            arm,
            100.0 * median(rounds, |f| f.held_share),
            median(rounds, |f| f.p99_wait_ms),
            median(rounds, |f| f.p99_to_ideal),
            median(rounds, |f| f.same_process_p50_us),
            median(rounds, |f| f.between_p50_us),
            median(rounds, |f| f.trip_p50_us),
            between_trips(rounds),
            median(rounds, |f| f.jain),
            median(rounds, |f| f.jain_processes),
        );
    }
    println!(
        "{:<10}{:>8}{:>22}{:>14}{:>33}{:>8}",
        "goals", "≥ 97.0%", "≤ 1.20", "≤ 10.0 µs", "≤ 2.2", "≥ 0.950"
    );
}
