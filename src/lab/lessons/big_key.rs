//! # Big key
//!
//! A Redis of the lesson's own, with the same large hash three times, one after the other. Each is
//! removed in another way, while a client reads a small key every millisecond. What it had to wait
//! at most is what everybody had to wait; what Redis says of its own commands is the same without
//! the client.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Script, cmd};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Lesson, Shown};
use crate::embedded::Spare;
use crate::jobs::keys::{self, BATCH, With};
use crate::lab::stage::Stage;
use crate::lock::Redis;

pub(super) const LESSON: Lesson = Lesson {
    number: 20,
    name: "big-key",
    claim: "DEL of a hash of a million fields stops everybody for half a second; batches and \
            UNLINK for a few milliseconds.",
    question: "A hash has grown to a million fields, and nobody needs it any more. What does DEL of \
               this one key cost the others?",
    guesses: &[
        "nothing: it is one command, and Redis needs microseconds for those",
        "everybody waits until each of its fields has been given back",
        "only those who read this hash have to wait",
    ],
    right: 1,
    crowd: None,
    shows: &["remove.rs"],
    takeaway: [
        "Redis carries out one command at a time, and DEL is as long as the key is large; so is an \
         expiry, a RENAME onto it, or an HGETALL.",
        "UNLINK takes the name away and lets a thread of its own do the rest; where there is none, \
         HSCAN and one HDEL for a few hundred fields leave gaps for everybody else.",
        "`holdfast keys` finds what is big before somebody deletes it; and a server may make DEL \
         lazy too: lazyfree-lazy-user-del, off in Redis, on in Valkey since 8.",
    ],
    play: |stage| Box::pin(play(stage)),
};

/// A million takes three seconds to fill, and that three times; so it is a quarter of one. On two
/// cores and in a hash that has grown, `DEL` of these takes about 0.1 s, and of a million 0.44 to
/// 0.6 s: more than four times as much, because less and less of it is in a cache.
const FIELDS: u64 = 250_000;
/// Fields per script; nobody is listening then.
const FILL: u64 = 50_000;
/// How much longer `DEL` keeps a client waiting, at least. Seen: 20 times and more.
///
/// Batches take seconds, and in some of them a machine of two cores does something else; that is
/// not what they cost. So their time is cut into stretches as long as `DEL` keeps everybody
/// waiting, and the middle one counts: in such a stretch, how long did a client wait at most?
const AT_LEAST: f64 = 4.0;
/// A way that should go unnoticed is tried again if the machine was busy with something else.
const ROUNDS: usize = 3;
const EVERY: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "big";

/// What one way of removing it cost others.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The longest that a client waited for its answer, in the middle one of the stretches.
    stall: Duration,
    /// The longest ever, with whatever else the machine did meanwhile.
    longest: Duration,
    /// How long a command that removes, or looks for what to remove, takes Redis.
    command: Duration,
    took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Del,
    Batches,
    Unlink,
}

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let spare = Spare::start().await?;
    let mut redis = connect(&spare.url).await?;
    let lazy = ["SET", "lazyfree-lazy-user-del", "no"];
    cmd("CONFIG").arg(&lazy).exec_async(&mut redis).await?;
    cmd("SET").arg("small").arg("tea").exec_async(&mut redis).await?;

    let fields = FIELDS / 1_000;
    let idle = Prober::start(&spare.url).await?;
    sleep(Duration::from_millis(200)).await;
    stage.fact("a client's longest wait, nothing removed", ms(longest(&idle.stop().await?)));
    stage.say(format!("A Redis of its own, a hash of {fields},000 fields; a client reads.")).await;
    let del = once(&spare, &mut redis, Way::Del, None).await?;
    stage.say(format!("DEL: the client waited {}.", ms(del.stall))).await;
    let batches = best(&spare, &mut redis, Way::Batches, &del).await?;
    let words = format!("The same hash, {BATCH} fields at a time: the client waited at most");
    stage.say(format!("{words} {}, {} in all.", ms(batches.stall), ms(batches.took))).await;
    let unlink = best(&spare, &mut redis, Way::Unlink, &del).await?;
    stage.say(format!("UNLINK: the client waited at most {}.", ms(unlink.stall))).await;

    let each = del.command.as_secs_f64() / FIELDS as f64;
    stage.fact("DEL, for each field", format!("{:.2} µs", each * 1e6));
    stage.fact("so for a million fields, about", format!("{:.0} ms", each * 1e9));
    for (way, cost) in [("DEL", del), ("batches", batches), ("UNLINK", unlink)] {
        let took = format!("{:.2} ms", cost.command.as_secs_f64() * 1e3);
        stage.fact(&format!("{way}: a command takes Redis, as it says"), took);
    }
    stage.fact("batches: the longest wait of all", ms(batches.longest));
    let noticed = batches.stall.max(unlink.stall);
    let command = batches.command.max(unlink.command);
    let ratio = del.stall.as_secs_f64() / noticed.as_secs_f64().max(1e-6);
    Ok(Shown::that(
        ratio > AT_LEAST && del.command.as_secs_f64() > AT_LEAST * command.as_secs_f64(),
        format!(
            "{fields},000 fields, a client's longest wait: DEL {} · batches of {BATCH} {} · UNLINK \
             {}; DEL of a million would take about {:.0} ms",
            ms(del.stall),
            ms(batches.stall),
            ms(unlink.stall),
            each * 1e9,
        ),
    ))
}

/// The quietest of some rounds: other programs of this machine only ever add to a wait.
async fn best(
    spare: &Spare,
    redis: &mut MultiplexedConnection,
    way: Way,
    del: &Cost,
) -> anyhow::Result<Cost> {
    let mut best = once(spare, redis, way, Some(del.stall)).await?;
    for _ in 1..ROUNDS {
        if best.stall.as_secs_f64() * AT_LEAST * 1.5 < del.stall.as_secs_f64() {
            break;
        }
        let cost = once(spare, redis, way, Some(del.stall)).await?;
        if cost.stall < best.stall {
            best = cost;
        }
    }
    Ok(best)
}

/// Fills the hash, and removes it in that way; the waits are cut into stretches so long, or not.
async fn once(
    spare: &Spare,
    redis: &mut MultiplexedConnection,
    way: Way,
    stretch: Option<Duration>,
) -> anyhow::Result<Cost> {
    fill(redis).await?;
    cmd("CONFIG").arg("RESETSTAT").exec_async(redis).await?;
    let client = Prober::start(&spare.url).await?;
    let began = Instant::now();
    match way {
        Way::Del => cmd("DEL").arg(KEY).exec_async(redis).await?,
        Way::Batches => piecewise(&spare.url, With::Batches).await?,
        Way::Unlink => piecewise(&spare.url, With::Unlink).await?,
    }
    let took = began.elapsed();
    until_freed(redis).await?;
    let waits = client.stop().await?;
    let longest = longest(&waits);
    let stall = stretch.map_or(longest, |stretch| in_the_middle(&waits, stretch));
    let there: bool = cmd("EXISTS").arg(KEY).query_async(redis).await?;
    ensure!(!there, "the hash is still there");
    Ok(Cost { stall, longest, command: command_of(redis, way).await?, took })
}

/// As `holdfast keys --delete` does it.
async fn piecewise(url: &str, with: With) -> anyhow::Result<()> {
    let removal = keys::remove(&Redis::open(url)?, KEY.as_bytes(), with, |_| {}).await?;
    let removal = removal.context("the hash was not there")?;
    ensure!(removal.left == 0 && removal.with == with, "it was not removed: {removal:?}");
    Ok(())
}

/// Field by field, as a hash grows. (One that was copied or restored lies in memory in the order
/// in which it is freed, and goes eight times faster: no hash of a shop's is like that.)
async fn fill(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let script = Script::new(
        "for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], 'field:' .. i, 'value:' .. i) end",
    );
    for first in (0..FIELDS).step_by(usize::try_from(FILL)?) {
        let mut call = script.key(KEY);
        call.arg(first).arg(first + FILL - 1);
        call.invoke_async::<()>(redis).await?;
    }
    let there: u64 = cmd("HLEN").arg(KEY).query_async(redis).await?;
    ensure!(there == FIELDS, "the hash has {there} fields");
    Ok(())
}

/// Waits until the background has given the memory back: a client may feel that, too.
async fn until_freed(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let info: String = cmd("INFO").arg("memory").query_async(redis).await?;
        if info.contains("lazyfree_pending_objects:0") {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the memory is not given back");
        sleep(EVERY * 5).await;
    }
}

/// The mean of those commands that way is made of, of the slowest kind.
async fn command_of(redis: &mut MultiplexedConnection, way: Way) -> anyhow::Result<Duration> {
    let names: &[&str] = match way {
        Way::Del => &["del"],
        Way::Batches => &["hscan", "hdel"],
        Way::Unlink => &["unlink"],
    };
    let info: String = cmd("INFO").arg("commandstats").query_async(redis).await?;
    let mut slowest: f64 = 0.0;
    for name in names {
        let line = format!("cmdstat_{name}:");
        let line = info.lines().find_map(|said| said.strip_prefix(&line));
        let mean = line.and_then(|said| said.split("usec_per_call=").nth(1)?.split(',').next());
        slowest = slowest.max(mean.context("Redis does not say what it did")?.parse()?);
    }
    Ok(Duration::from_secs_f64(slowest / 1e6))
}

/// When somebody asked, and how long the answer took.
type Wait = (Instant, Duration);

fn longest(waits: &[Wait]) -> Duration {
    waits.iter().map(|(_, wait)| *wait).max().unwrap_or_default()
}

/// The longest wait of each stretch, of which the middle one.
fn in_the_middle(waits: &[Wait], stretch: Duration) -> Duration {
    let Some((first, _)) = waits.first() else { return Duration::ZERO };
    let which = |asked: Instant| (asked - *first).as_micros() / stretch.as_micros().max(1);
    let stretches = waits.chunk_by(|(one, _), (next, _)| which(*one) == which(*next));
    let mut longest: Vec<Duration> = stretches.map(longest).collect();
    longest.sort();
    longest[longest.len() / 2]
}

/// A client that reads every millisecond.
struct Prober {
    enough: CancellationToken,
    reading: JoinHandle<RedisResult<Vec<Wait>>>,
}

impl Prober {
    /// Returns when it has been answered once.
    async fn start(url: &str) -> anyhow::Result<Self> {
        let mut redis = connect(url).await?;
        let enough = CancellationToken::new();
        read(&mut redis).await?;
        let reading = tokio::spawn({
            let enough = enough.clone();
            async move {
                let mut waits = Vec::new();
                while !enough.is_cancelled() {
                    waits.push((Instant::now(), read(&mut redis).await?));
                    sleep(EVERY).await;
                }
                Ok(waits)
            }
        });
        Ok(Self { enough, reading })
    }

    /// How long it waited, each time.
    async fn stop(self) -> anyhow::Result<Vec<Wait>> {
        self.enough.cancel();
        Ok(self.reading.await??)
    }
}

async fn read(redis: &mut MultiplexedConnection) -> RedisResult<Duration> {
    let began = Instant::now();
    cmd("GET").arg("small").exec_async(redis).await?;
    Ok(began.elapsed())
}

/// One on which half a second's silence is what is waited for, and no error.
async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let client = Client::open(url)?;
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
    connection.context("a Redis of the lesson's own does not answer")
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
