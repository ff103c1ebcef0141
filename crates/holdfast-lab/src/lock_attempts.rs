//! When requests ask Redis for a lock again, as Redis reports it: its `MONITOR` repeats every
//! command, and the value of a lock names the replica. A request that polls passes no probe point
//! between two attempts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use futures_util::{Stream, StreamExt as _};
use holdfast_lock::clock::monotonic_us;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::scenario::Scenario;
use holdfast_shop::Sku;
use holdfast_story::{EventKind, TimelineEvent};

/// An attempt to acquire a lock: a `SET` of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LockAttempt {
    replica: String,
    /// By the wall clock of Redis.
    sent_us: u64,
    /// By the machine's monotonic clock, some time later.
    heard_us: u64,
}

/// The attempts on one lock since the listening began.
#[derive(Debug)]
pub(super) struct LockAttempts {
    client: redis::Client,
    heard: Arc<Mutex<Vec<LockAttempt>>>,
    /// An `ECHO` of this is heard after all that was sent before it.
    mark: String,
    mark_is_heard: Arc<AtomicBool>,
    /// Ends the listening when it is dropped.
    _listener: AbortOnDropHandle<()>,
}

impl LockAttempts {
    /// Marks the present moment: once [`Self::mark_is_heard`], so are all attempts before it.
    pub async fn mark(&self) -> anyhow::Result<()> {
        let mut connection = self.client.get_multiplexed_async_connection().await?;
        Ok(redis::cmd("ECHO").arg(&self.mark).exec_async(&mut connection).await?)
    }

    pub fn mark_is_heard(&self) -> bool {
        self.mark_is_heard.load(Ordering::Acquire)
    }

    /// Returns how many replicas have asked again.
    pub fn repeated(&self) -> usize {
        self.by_replica().values().filter(|times| times.len() > 1).count()
    }

    /// Returns the times of each replica's attempts.
    fn by_replica(&self) -> BTreeMap<String, Vec<u64>> {
        let heard = self.heard.lock();
        // The line with the least delay shows best how the two clocks differ.
        let lead_us = heard.iter().map(|it| it.heard_us.wrapping_sub(it.sent_us)).min();

        let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for attempt in heard.iter() {
            let at_us = attempt.sent_us.wrapping_add(lead_us.unwrap_or(0));
            times.entry(attempt.replica.clone()).or_default().push(at_us);
        }
        times
    }
}

impl Scenario {
    /// Listens for attempts to acquire an item's lock, from now on.
    pub(super) async fn watch_attempts(&self, sku: &Sku) -> anyhow::Result<LockAttempts> {
        let client = redis::Client::open(self.cluster.redis_url.as_str())?;
        let monitor = client.get_async_monitor().await.context("Redis refuses MONITOR")?;
        let commands = monitor.into_on_message::<String>();

        let key = self.lock_key(sku);
        let mark = Uuid::new_v4().to_string();
        let heard = Arc::<Mutex<Vec<LockAttempt>>>::default();
        let mark_is_heard = Arc::<AtomicBool>::default();

        let listener = listen(commands, key, heard.clone(), mark.clone(), mark_is_heard.clone());
        let _listener = AbortOnDropHandle::new(tokio::spawn(listener));
        Ok(LockAttempts { client, heard, mark, mark_is_heard, _listener })
    }

    /// Adds to the recorded lanes of requests when each asked again and found the lock taken: of
    /// its attempts, all of which must have been heard, the first was not again, and the last one
    /// got the lock.
    pub(super) fn note_attempts(&self, attempts: &LockAttempts, requests: &[Uuid]) {
        let times = attempts.by_replica();
        let mut outcome = self.outcome.lock();
        let lanes = outcome.lanes.iter_mut().filter(|lane| requests.contains(&lane.request_id));

        for lane in lanes {
            let own = times.get(&lane.replica).map_or(&[][..], Vec::as_slice);
            let again = own.get(1..own.len().saturating_sub(1)).unwrap_or_default();
            let tries = |at_us: &u64| {
                TimelineEvent::new((), at_us.saturating_sub(self.began_us), EventKind::Tries)
            };
            lane.events.extend(again.iter().map(tries));
            lane.events.sort_by_key(|event| event.at_us);
        }
    }
}

async fn listen(
    mut commands: impl Stream<Item = String> + Unpin,
    key: String,
    heard: Arc<Mutex<Vec<LockAttempt>>>,
    mark: String,
    mark_is_heard: Arc<AtomicBool>,
) {
    while let Some(line) = commands.next().await {
        heard.lock().extend(attempt(&line, &key, monotonic_us()));
        if line.contains(&mark) {
            mark_is_heard.store(true, Ordering::Release);
        }
    }
}

/// Reads an attempt on the lock `key` from a line of `MONITOR`:
/// `1764230000.123456 [0 127.0.0.1:50000] "SET" "KEY" "REPLICA~…" …`.
fn attempt(line: &str, key: &str, heard_us: u64) -> Option<LockAttempt> {
    let mut words = line.split('"');
    let sent = words.next()?.split_whitespace().next()?;
    let mut arguments = words.step_by(2);
    if !arguments.next()?.eq_ignore_ascii_case("set") || arguments.next()? != key {
        return None;
    }
    let (replica, _) = arguments.next()?.split_once('~')?;

    let (seconds, micros) = sent.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let sent_us = seconds.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    Some(LockAttempt { replica: replica.to_owned(), sent_us, heard_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_on_the_lock_are_read() {
        let key = "holdfast:lock:{sku:tea}";
        let line = |command: &str| format!("17.000250 [0 127.0.0.1:50000] {command}");
        let set = line(r#""SET" "holdfast:lock:{sku:tea}" "8081~0198@17" "NX" "PX" "10000""#);
        let expected =
            LockAttempt { replica: "8081".to_owned(), sent_us: 17_000_250, heard_us: 99 };
        assert_eq!(attempt(&set, key, 99), Some(expected));

        for other in [
            line(r#""SET" "holdfast:lock:{sku:rice}" "8081~0198@17" "NX""#),
            line(r#""GET" "holdfast:lock:{sku:tea}""#),
            line(r#""SET" "holdfast:lock:{sku:tea}" "value""#),
            line(r#""SET""#),
            "OK".to_owned(),
            r#"x.y [0 lua] "SET" "holdfast:lock:{sku:tea}" "8081~1""#.to_owned(),
        ] {
            assert_eq!(attempt(&other, key, 99), None, "{other}");
        }
    }
}
