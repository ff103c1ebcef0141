//! What a leader has another replica execute, because that one holds the lease of its queue's key
//! ([`crate::engine::delegation`]).
//!
//! If a command can't be forwarded, or an answer does not come in time, the leader waits for the
//! lease, as if there were no delegation. With the lease, the commands without an answer are
//! resolved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::fenced::FENCES_PER_GRANT;
use holdfast_lock::{Delivery, FencedGuard, LeaseId, LockKey};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{Instrument as _, debug_span};

use super::locks::AcquiredLocks;
use super::pace::Pace;
use crate::Shop;
use crate::engine::batch::entry::EntryResult;
use crate::engine::command_queue::{LeaderQueue, QueueEntry, TakenEntries};
use crate::engine::delegation::mailbox::Mailbox;
use crate::engine::delegation::{ForwardedOrder, RemoteLease, ms};
use crate::engine::duplicates::LOOKUP_TIMEOUT;
use crate::engine::leader::responses::Responses;
use crate::engine::reply::Answer;
use crate::failure::{Component, Error};
use crate::store::items::{invalidate_item, item_fence};
use crate::store::key_records::{self, Replay};
use holdfast_base::metrics::define_metrics;

/// Time within which an answer comes, unless its holder is dead, paused or cut off. Far longer than
/// a batch, and shorter than a lease: who waits for a dead holder's lease is queued by its end.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which a new holder of the lease waits for answers on their way: less than to resolve
/// their commands takes.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_millis(3);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

define_metrics! {
    FORWARDED: "holdfast_forwarded_commands_total", Counter ["result"] &[],
        "batched: commands that were forwarded to the replica with the item's lease, by result";
    FORWARDED_WAITING: "holdfast_forwarded_commands_waiting", Gauge [] &[],
        "batched: commands that were forwarded and have no answer yet";
}

/// How forwarding to a holder ended.
pub enum ForwardEnd {
    /// Nothing waits.
    Idle,
    /// The lease is another's by now, or free.
    LeaseMoved,
    /// The holder can't execute all of the commands, or does not answer; or the lease comes here.
    LeaseNeeded,
}

/// A command that was forwarded and has no answer yet.
struct ForwardedEntry {
    entry: QueueEntry,
    lease: Arc<RemoteLease>,
    sent_at: Instant,
}

/// The commands of one leader that another replica executes.
pub struct Forwarder {
    shop: Shop,
    /// In the order in which they were sent.
    forwarded: BTreeMap<u64, ForwardedEntry>,
    /// How many of them [`FORWARDED_WAITING`] counts.
    counted: usize,
    /// Where their answers arrive.
    mailbox: Mailbox,
    /// When the next of them are sent.
    pace: Pace,
    /// The last lease whose process did not execute a command, because it has no leader under it.
    pub(super) refused_by: Option<LeaseId>,
}

impl Forwarder {
    /// Forwards commands of the queue of `key`.
    pub fn new(shop: &Shop, key: &LockKey) -> Self {
        Self {
            shop: shop.clone(),
            forwarded: BTreeMap::new(),
            counted: 0,
            mailbox: shop.engine.delegation.mailboxes().open(key.clone()),
            pace: Pace::new(),
            refused_by: None,
        }
    }

    pub fn has_forwarded(&self) -> bool {
        !self.forwarded.is_empty()
    }

    /// Waits until there are answers. A dropped future loses none.
    pub async fn answered(&mut self) {
        self.mailbox.arrival().await;
    }

    /// Forwards the commands to that holder as they come, and responds with its answers.
    pub async fn forward_to(
        &mut self,
        lease: RemoteLease,
        queue: &LeaderQueue,
        responses: &mut Responses,
    ) -> ForwardEnd {
        let delegation = self.shop.engine.delegation.clone();
        loop {
            self.take_answers(queue, responses).await;
            if self.refused_by.as_ref() == Some(&lease.id) {
                return ForwardEnd::LeaseMoved;
            }

            let waiting = queue.waiting();
            let held = self.pace.held(waiting, Instant::now());
            // While orders are expected, it stays: a new leader would not know of them.
            if waiting == 0 && self.forwarded.is_empty() && held.is_none() {
                return ForwardEnd::Idle;
            }

            let oldest = self.forwarded.values().next().map(|forwarded| forwarded.sent_at);
            let late_at = oldest.unwrap_or_else(Instant::now) + ANSWER_TIMEOUT;
            // First: commands that keep arriving do not put it off.
            if late_at <= Instant::now() {
                delegation.note_missing_answer(&lease.id, late_at - ANSWER_TIMEOUT);
                return ForwardEnd::LeaseNeeded;
            }

            let has_due = waiting > 0 && held.is_none();
            if has_due || queue.has_entries_that_stay() {
                // A command without a leader waits for it: the lease comes here soon.
                let is_in_use_here = self.shop.locks.leases().is_in_use_here(&queue.key);
                if is_in_use_here || !delegation.may_forward_to(&lease.id) {
                    return ForwardEnd::LeaseNeeded;
                }
                let TakenEntries { batch, dead } = queue.take_forwardable();
                responses.reject(dead, Error::deadline_passed()).await;
                if !batch.is_empty()
                    && let Some(end) = self.send(&lease, batch, queue).await
                {
                    return end;
                }
                if queue.has_entries_that_stay() {
                    return ForwardEnd::LeaseNeeded;
                }
                continue;
            }

            let (complete_size, held_until) = held.unwrap_or((1, late_at));
            tokio::select! {
                () = queue.arrived(complete_size) => {}
                () = self.mailbox.arrival() => {}
                () = sleep_until(late_at.min(held_until)) => {}
            }
        }
    }

    /// Sends the entries. Returns an end if the holder did not get them.
    async fn send(
        &mut self,
        lease: &RemoteLease,
        entries: Vec<QueueEntry>,
        queue: &LeaderQueue,
    ) -> Option<ForwardEnd> {
        let delegation = self.shop.engine.delegation.clone();
        // A root, as that of a batch.
        let span = debug_span!(parent: None, "forward", key = %queue.key, commands = entries.len());
        for entry in &entries {
            span.follows_from(&entry.request);
        }

        let sent_at = Instant::now();
        let lease = Arc::new(lease.clone());
        let numbers: Vec<u64> = entries.iter().map(|_| delegation.next_number()).collect();
        for (number, entry) in numbers.iter().zip(entries) {
            // Before they are sent: the answer may come first.
            let forwarded = ForwardedEntry { entry, lease: Arc::clone(&lease), sent_at };
            self.forwarded.insert(*number, forwarded);
        }
        self.note_forwarded(queue);
        self.pace.note_sent(sent_at);

        let orders = numbers.iter().filter_map(|number| {
            let ForwardedEntry { entry, .. } = self.forwarded.get(number)?;
            let left = entry.context.deadline.saturating_duration_since(sent_at);
            Some(ForwardedOrder {
                number: *number,
                left_ms: ms(left),
                key_lock_requested: entry.key_lock_requested,
                in_lab: entry.context.in_lab,
                request_id: entry.context.request_id,
                ..ForwardedOrder::of(entry.command.as_ref())?
            })
        });
        let orders = orders.collect();
        let delivery = delegation.forward(&queue.key, &lease.id, orders).instrument(span).await;
        let end = match delivery {
            Ok(Delivery::Published) => return None,
            Ok(Delivery::Moved(_)) => ForwardEnd::LeaseMoved,
            Ok(Delivery::NotReceived) => {
                delegation.note_silence(&lease.id);
                ForwardEnd::LeaseNeeded
            }
            // It may have been published.
            Err(error) => {
                tracing::debug!(%error, "commands may have been forwarded");
                return Some(ForwardEnd::LeaseNeeded);
            }
        };

        let unsent = numbers.iter().filter_map(|number| self.forwarded.remove(number));
        let unsent = unsent.map(|forwarded| forwarded.entry).collect();
        self.note_forwarded(queue);
        queue.put_back(unsent);
        Some(end)
    }

    /// Responds with the answers that have come. Commands that were not executed wait again, in
    /// front of the others.
    pub async fn take_answers(&mut self, queue: &LeaderQueue, responses: &mut Responses) {
        let mut done = Vec::new();
        let mut looked_up = Vec::new();
        let mut returned = Vec::new();
        let mut oldest: Option<Instant> = None;
        let answers = self.mailbox.take();
        if answers.is_empty() {
            return;
        }

        for (number, answer) in answers {
            let Some(forwarded) = self.forwarded.remove(&number) else { continue };
            let ForwardedEntry { mut entry, lease, sent_at } = forwarded;
            oldest = Some(oldest.map_or(sent_at, |oldest| oldest.min(sent_at)));
            self.shop.engine.delegation.note_answer(&lease.id);
            let replica = lease.id.process_name();
            if answer == Answer::LeaseEnded {
                self.refused_by = Some(lease.id.clone());
            }
            // A duplicate at the holder, also one with another payload, may have been refused
            // because of this command's key lock: it would be wrong to refuse both.
            let is_duplicate = matches!(answer, Answer::KeyInFlight | Answer::KeyMismatch);
            let has_key = is_duplicate && entry.key_lock_requested;
            entry.stays_here |= has_key || answer == Answer::Failed;
            let answer = if has_key { Answer::Failed } else { answer };
            let is_unread = matches!(answer, Answer::KeyInFlight | Answer::Overloaded);
            let result =
                entry.command.single_order().and_then(|order| answer.result(order, replica));
            match result {
                Some(Err(failure)) if is_unread => looked_up.push((entry, failure)),
                Some(result) => done.push((entry, result)),
                None => returned.push(entry),
            }
        }

        self.note_forwarded(queue);
        if let Some(sent_at) = oldest {
            // Before the clients have their responses, and order again.
            let answered = done.len() + looked_up.len();
            self.pace.note_answers(answered, queue.waiting(), sent_at, Instant::now());
        }
        count("executed", done.iter().filter(|(_, result)| result.is_ok()).count());
        count("rejected", done.iter().filter(|(_, result)| result.is_err()).count());
        count("rejected", looked_up.len());
        count("returned", returned.len());
        if !returned.is_empty() {
            queue.put_back(returned);
        }
        responses.respond(done).await;
        responses.release_and_reject(looked_up).await;
    }

    /// Resolves the commands that were forwarded and have no answer, under the own lease. Raises
    /// the version and the fence of the row first: from then on, no former holder writes it. So a
    /// command without a record was not executed, and waits again.
    pub async fn resolve(
        &mut self,
        locks: &mut AcquiredLocks,
        queue: &LeaderQueue,
        responses: &mut Responses,
    ) {
        self.await_late_answers(queue, responses).await;
        let forwarded = std::mem::take(&mut self.forwarded);
        let highest_grant = forwarded.values().map(|it| it.lease.fence).max();
        let entries: Vec<QueueEntry> = forwarded.into_values().map(|it| it.entry).collect();
        self.note_forwarded(queue);
        let Some(highest_grant) = highest_grant else { return };

        tracing::info!(key = %queue.key, commands = entries.len(), "forwarded commands have no answer");
        let replays = match timeout(
            RESOLVE_TIMEOUT,
            self.look_up_behind_fence(&entries, highest_grant, locks, &queue.key),
        )
        .await
        {
            Ok(Ok(replays)) => replays,
            Ok(Err(error)) => return report_unknown(entries, &error, responses).await,
            Err(_) => {
                return report_unknown(entries, &Error::postgres_timeout(), responses).await;
            }
        };

        let mut done: Vec<(QueueEntry, EntryResult)> = Vec::new();
        let mut again = Vec::new();
        for (mut entry, replay) in entries.into_iter().zip(replays) {
            match replay {
                Some(replay) => done.push((entry, replay)),
                None => {
                    // The former holder may have locked its key.
                    entry.key_lock_requested = true;
                    entry.stays_here = true;
                    again.push(entry);
                }
            }
        }
        count("resolved", done.len());
        count("returned", again.len());
        queue.put_back(again);
        responses.respond(done).await;
    }

    /// Waits for the answers that the former holder sent before it released the lease.
    async fn await_late_answers(&mut self, queue: &LeaderQueue, responses: &mut Responses) {
        let until = Instant::now() + LATE_ANSWER_TIMEOUT;
        loop {
            self.take_answers(queue, responses).await;
            if self.forwarded.is_empty() || timeout_at(until, self.mailbox.arrival()).await.is_err()
            {
                return;
            }
        }
    }

    async fn look_up_behind_fence(
        &self,
        entries: &[QueueEntry],
        highest_grant: i64,
        locks: &mut AcquiredLocks,
        key: &LockKey,
    ) -> Result<Vec<Option<Replay>>, Error> {
        let Some(order) = entries.iter().find_map(|entry| entry.command.single_order()) else {
            return Err(Error::Bug("only orders are forwarded".to_owned()));
        };

        while let Some(fence) = locks.lease().map(FencedGuard::fence) {
            // The fences of a former holder are those of its grant. If Redis lost its counter, they
            // may be higher than this lease's; and if it had lost it before, the holder may have
            // raised its own above the row's.
            let mut connection = self.shop.pool.acquire().await?;
            // A statement may be in flight on it if this is dropped.
            connection.close_on_drop(true);
            let row = item_fence(&mut connection, order.sku).await?;
            let floor = row.max(highest_grant + FENCES_PER_GRANT) + FENCES_PER_GRANT;
            if fence > floor && invalidate_item(&mut connection, order.sku, fence).await? == fence {
                let requests: Vec<_> =
                    entries.iter().map(|entry| entry.command.idempotency()).collect();
                let replays = key_records::look_up(&mut connection, &requests).await?;
                connection.close_on_drop(false);
                return Ok(replays);
            }

            // Before Redis is awaited.
            connection.close_on_drop(false);
            drop(connection);
            locks.raise_fences(vec![(key.clone(), floor)]).await?;
        }
        Err(Error::LockLost(key.clone()))
    }

    /// Responds to the commands whose deadline has passed by `now`, or without a time to all: with
    /// the record of the key, or that the outcome is unknown.
    pub async fn give_up(
        &mut self,
        now: Option<Instant>,
        queue: &LeaderQueue,
        responses: &mut Responses,
    ) {
        let is_late = |it: &ForwardedEntry| now.is_none_or(|now| it.entry.context.deadline <= now);
        let late = self.forwarded.extract_if(.., |_, it| is_late(it));
        let entries: Vec<QueueEntry> = late.map(|(_, forwarded)| forwarded.entry).collect();
        self.note_forwarded(queue);
        if entries.is_empty() {
            return;
        }

        let duplicates = &self.shop.engine.duplicates;
        let lookups = entries
            .iter()
            .map(|entry| duplicates.find(entry.command.idempotency(), LOOKUP_TIMEOUT));
        let found = join_all(lookups).await;
        let (done, open): (Vec<_>, Vec<_>) =
            entries.into_iter().zip(found).partition(|(_, replay)| replay.is_some());
        count("resolved", done.len());
        let done = done.into_iter().filter_map(|(entry, replay)| Some((entry, replay?)));
        responses.respond(done.collect()).await;

        let open = open.into_iter().map(|(entry, _)| entry).collect();
        report_unknown(open, &Error::task_ended(Component::LeaseHolder), responses).await;
    }

    /// Counts the commands without an answer: against the limit of the queue, and in the metric.
    fn note_forwarded(&mut self, queue: &LeaderQueue) {
        let count = self.forwarded.len();
        queue.set_forwarded(count);
        metrics::gauge!(FORWARDED_WAITING).increment(count as f64 - self.counted as f64);
        self.counted = count;
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        metrics::gauge!(FORWARDED_WAITING).decrement(self.counted as f64);
    }
}

async fn report_unknown(entries: Vec<QueueEntry>, error: &Error, responses: &mut Responses) {
    count("unknown", entries.len());
    let unknown = Error::Unavailable {
        what: Component::LeaseHolder,
        cause: error.to_string(),
        outcome_unknown: true,
    };
    responses.reject(entries, unknown).await;
}

/// Counts forwarded commands by what became of them.
fn count(result: &'static str, commands: usize) {
    metrics::counter!(FORWARDED, "result" => result).increment(commands as u64);
}

#[cfg(test)]
mod tests {
    use holdfast_lock::{Redis, Settings};

    use super::*;
    use crate::engine::command_queue::tests::{entry, key};
    use crate::failure::Failure;
    use crate::locks::ShopLocks;
    use crate::strategy::batched;
    use crate::{DEFAULT_PAYMENT_WINDOW, db};

    /// A shop that is not connected to any server.
    fn unconnected_shop() -> Shop {
        let pool = db::pool("postgres://nobody@127.0.0.1:1/none", 1).unwrap();
        let redis = Redis::open("redis://127.0.0.1:1").unwrap();
        let locks = ShopLocks::new(redis, Vec::new(), Settings::default()).unwrap();
        Shop::new(pool, locks, &batched::STRATEGY, DEFAULT_PAYMENT_WINDOW)
    }

    /// Else both may be refused: the other one for this one's key lock, and this one for the other
    /// one.
    #[tokio::test]
    async fn order_with_its_keys_lock_is_not_refused_for_a_duplicate_at_the_holder() {
        for answer in [Answer::KeyInFlight, Answer::KeyMismatch] {
            let shop = unconnected_shop();
            let queue = shop.engine.queues.of_leader(key());
            let (order, mut response) = entry(1);
            shop.engine.queues.join(&key(), order);
            let mut taken = queue.take_forwardable().batch;
            let mut entry = taken.pop().unwrap();
            entry.key_lock_requested = true;

            let mut forwarder = Forwarder::new(&shop, &key());
            let lease = Arc::new(RemoteLease { id: LeaseId::new("8082~b.1"), fence: 1 });
            let forwarded = ForwardedEntry { entry, lease, sent_at: Instant::now() };
            forwarder.forwarded.insert(7, forwarded);
            shop.engine.delegation.mailboxes().deliver(&key(), vec![(7, answer.clone())]);
            forwarder.take_answers(&queue, &mut Responses::new(&shop)).await;
            assert!(response.try_recv().is_err(), "{answer:?} was passed on");
            assert!(queue.has_entries_that_stay(), "{answer:?}: it is to be executed here");
        }
    }

    /// Else the client would be told that nothing was done, and its key would be free at once.
    #[tokio::test]
    async fn order_without_an_answer_is_not_reported_as_unwritten() {
        let (order, response) = entry(1);
        let mut responses = Responses::new(&unconnected_shop());
        report_unknown(vec![order], &Error::postgres_timeout(), &mut responses).await;
        let result = response.await.unwrap();
        assert!(
            matches!(result, Err(Failure::Error(Error::Unavailable { outcome_unknown: true, .. }))),
            "{result:?}"
        );
    }
}
