//! Queues of commands that wait to be executed in batches, one per key in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::batch::{Entry, EntryResult};
use super::in_flight::InFlight;
use super::queue_limit::AdaptiveQueueLimit;
use crate::lock::LockKey;
use crate::shop::RequestOptions;
use crate::shop::command::Command;

/// A command in a queue.
#[derive(Debug)]
pub(super) struct BatchEntry {
    pub command: Arc<dyn Command>,
    pub options: RequestOptions,
    pub joined_at: Instant,
    /// True if this process holds the lock of its idempotency key.
    pub has_key_lock: bool,
    /// Set once its idempotency key was looked up.
    pub looked_up: bool,
    pub in_flight: InFlight,
    pub reply: oneshot::Sender<EntryResult>,
}

impl BatchEntry {
    /// Returns whether its caller still waits and its deadline has not passed.
    pub fn is_alive(&self, now: Instant) -> bool {
        now < self.options.deadline && !self.reply.is_closed()
    }

    pub fn entry(&self) -> Entry<'_> {
        Entry { command: self.command.as_ref(), options: &self.options }
    }

    pub fn respond(self, result: EntryResult) {
        // First, because a client with its response may use the key again at once.
        drop(self.in_flight);
        let _ = self.reply.send(result);
    }
}

/// The queues of all keys. A key has a queue while a leader serves it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Queues(Arc<Mutex<HashMap<LockKey, Queue>>>);

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<BatchEntry>,
    /// Number of borrowed entries, which will be put back and count as waiting.
    borrowed: usize,
    limit: AdaptiveQueueLimit,
    /// A number of waiting entries, and the signal that the queue has reached it.
    arrived: (usize, Arc<Notify>),
}

impl Queue {
    fn waiting(&self) -> usize {
        self.entries.len() + self.borrowed
    }
}

/// The result of joining a queue.
pub(super) enum Joined {
    /// A leader must be started.
    First,
    /// A leader serves the queue.
    Behind,
    /// The queue is full.
    Full,
}

/// Entries that were taken from a queue.
#[derive(Default)]
pub(super) struct TakenEntries {
    pub batch: Vec<BatchEntry>,
    /// Entries whose caller has gone or whose deadline has passed.
    pub dead: Vec<BatchEntry>,
}

impl Queues {
    pub fn join(&self, key: &LockKey, entry: BatchEntry) -> Joined {
        let mut queues = self.0.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.waiting() >= queue.limit.max_length() => Joined::Full,
            Some(queue) => {
                queue.entries.push_back(entry);
                if queue.waiting() == queue.arrived.0 {
                    queue.arrived.1.notify_one();
                }
                Joined::Behind
            }
            None => {
                let queue = Queue { entries: VecDeque::from([entry]), ..Queue::default() };
                queues.insert(key.clone(), queue);
                Joined::First
            }
        }
    }

    /// Takes the first entries, at most `max` that are alive.
    pub fn take(&self, key: &LockKey, max: usize) -> TakenEntries {
        let mut taken = TakenEntries::default();
        let now = Instant::now();
        if let Some(queue) = self.0.lock().get_mut(key) {
            while taken.batch.len() < max
                && let Some(entry) = queue.entries.pop_front()
            {
                if entry.is_alive(now) { taken.batch.push(entry) } else { taken.dead.push(entry) }
            }
        }
        taken
    }

    /// Takes all entries, until all or some are put back. They count as waiting.
    pub fn borrow(&self, key: &LockKey) -> Vec<BatchEntry> {
        let mut queues = self.0.lock();
        let Some(queue) = queues.get_mut(key) else { return Vec::new() };
        queue.borrowed = queue.entries.len();
        std::mem::take(&mut queue.entries).into()
    }

    /// Puts entries back, in front of those that joined since.
    pub fn put_back(&self, key: &LockKey, entries: Vec<BatchEntry>) {
        if let Some(queue) = self.0.lock().get_mut(key) {
            queue.borrowed = 0;
            for entry in entries.into_iter().rev() {
                queue.entries.push_front(entry);
            }
        }
    }

    /// Records an executed batch and the time since the previous one.
    pub fn executed(&self, key: &LockKey, commands: usize, took: Duration) {
        if let Some(queue) = self.0.lock().get_mut(key) {
            queue.limit.executed(commands, took);
        }
    }

    pub fn waiting(&self, key: &LockKey) -> usize {
        self.0.lock().get(key).map_or(0, Queue::waiting)
    }

    /// Waits until at least `count` entries wait.
    pub async fn arrived(&self, key: &LockKey, count: usize) {
        let notified = self.0.lock().get_mut(key).map(|queue| {
            queue.arrived.0 = count;
            queue.arrived.1.clone()
        });
        let Some(notified) = notified else { return };
        while self.waiting(key) < count {
            notified.notified().await;
        }
    }

    /// Drops the queue and all entries in it.
    fn close(&self, key: &LockKey) {
        self.0.lock().remove(key);
    }

    /// Closes the queue if it is empty. Returns whether it did.
    pub fn close_if_empty(&self, key: &LockKey) -> bool {
        let mut queues = self.0.lock();
        let empty = queues.get(key).is_none_or(|queue| queue.waiting() == 0);
        if empty {
            queues.remove(key);
        }
        empty
    }
}

/// Closes the queue when its leader panics: its entries are dropped, and the next command starts a
/// new leader.
pub(super) struct CloseOnPanic {
    queues: Queues,
    key: LockKey,
}

impl CloseOnPanic {
    pub fn of(queues: &Queues, key: &LockKey) -> Self {
        Self { queues: queues.clone(), key: key.clone() }
    }
}

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queues.close(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::super::in_flight::InFlightKeys;
    use super::super::queue_limit::{MAX_BATCH_SIZE, MAX_QUEUE_LENGTH};
    use super::*;
    use crate::probe::Probe;
    use crate::shop::command::place_order::PlaceOrder;
    use crate::shop::model::WantedLine;
    use crate::shop::strategy::batched;
    use crate::shop::{IdempotencyKey, Sku, USUAL_HOLD, UserId};

    type Response = oneshot::Receiver<EntryResult>;

    fn key() -> LockKey {
        LockKey::new("{sku:tea}").unwrap_or_else(|_| unreachable!())
    }

    /// An order, identified by its `quantity`.
    fn entry(quantity: i64) -> (BatchEntry, Response) {
        let sku = Sku::try_from("tea".to_owned()).unwrap_or_else(|_| unreachable!());
        let (user, lines) = (UserId(Uuid::nil()), [WantedLine { sku, quantity }]);
        let command = PlaceOrder::new(user, IdempotencyKey::mint(), &lines, USUAL_HOLD);
        let command = Arc::new(command.unwrap_or_else(|_| unreachable!()));
        let options = RequestOptions {
            strategy: &batched::STRATEGY,
            wait: None,
            manner: crate::lock::Manner::default(),
            ttl: None,
            probe: Probe::Off,
            hold: USUAL_HOLD,
            deadline: Instant::now() + Duration::from_secs(60),
            request_id: Uuid::nil(),
        };
        let in_flight = InFlightKeys::default().register(command.idempotency());
        let in_flight = in_flight.unwrap_or_else(|_| unreachable!());
        let (reply, response) = oneshot::channel();
        let joined_at = Instant::now();
        let entry = BatchEntry {
            command,
            options,
            joined_at,
            has_key_lock: false,
            looked_up: false,
            in_flight,
            reply,
        };
        (entry, response)
    }

    /// Joins the queue, and keeps the receiver of the response.
    fn join(queues: &Queues, responses: &mut Vec<Response>, quantity: i64) -> Joined {
        let (entry, response) = entry(quantity);
        responses.push(response);
        queues.join(&key(), entry)
    }

    fn taken(queues: &Queues) -> Vec<i64> {
        let batch = queues.take(&key(), MAX_BATCH_SIZE).batch;
        let quantity = |entry: BatchEntry| -entry.command.reservation().unwrap().stock[0].1;
        batch.into_iter().map(quantity).collect()
    }

    #[test]
    fn full_queue_rejects_while_entries_are_borrowed() {
        let queues = Queues::default();
        let mut responses = Vec::new();
        let mut join = || join(&queues, &mut responses, 1);
        assert!(matches!(join(), Joined::First));
        for at in 1..MAX_QUEUE_LENGTH {
            assert!(matches!(join(), Joined::Behind), "{at}");
        }
        assert!(matches!(join(), Joined::Full));
        let mut all = queues.borrow(&key());
        assert_eq!(all.len(), MAX_QUEUE_LENGTH);
        assert!(matches!(join(), Joined::Full), "they still wait");
        assert!(!queues.close_if_empty(&key()));
        all.truncate(MAX_QUEUE_LENGTH - 2);
        queues.put_back(&key(), all);
        assert!(matches!(join(), Joined::Behind));
        assert!(matches!(join(), Joined::Behind));
        assert!(matches!(join(), Joined::Full));
    }

    #[test]
    fn slow_queue_admits_fewer() {
        let queues = Queues::default();
        let mut responses = Vec::new();
        let mut join = || join(&queues, &mut responses, 1);
        assert!(matches!(join(), Joined::First));
        queues.executed(&key(), 1, Duration::from_secs(1));
        for at in 1..2 * MAX_BATCH_SIZE {
            assert!(matches!(join(), Joined::Behind), "{at}");
        }
        assert!(matches!(join(), Joined::Full));
        queues.take(&key(), 1);
        assert!(matches!(join(), Joined::Behind));
    }

    #[test]
    fn arrival_resolves_when_enough_entries_wait() {
        let queues = Queues::default();
        let mut responses = Vec::new();
        join(&queues, &mut responses, 1);
        let key = key();
        assert!(queues.arrived(&key, 2).now_or_never().is_none());
        join(&queues, &mut responses, 2);
        assert_eq!(taken(&queues), [1, 2]);
        let mut arrived = pin!(queues.arrived(&key, 2));
        assert!(arrived.as_mut().now_or_never().is_none(), "both were taken since");
        join(&queues, &mut responses, 3);
        assert!(arrived.as_mut().now_or_never().is_none(), "only one");
        join(&queues, &mut responses, 4);
        assert!(arrived.now_or_never().is_some());
        assert!(queues.arrived(&key, 1).now_or_never().is_some());
    }

    #[test]
    fn batches_are_in_order_of_arrival() {
        let queues = Queues::default();
        let mut responses = Vec::new();
        for quantity in 1..=MAX_BATCH_SIZE {
            join(&queues, &mut responses, quantity as i64);
        }
        let early = queues.borrow(&key());
        join(&queues, &mut responses, 300);
        queues.put_back(&key(), early);
        assert_eq!(taken(&queues), (1..=MAX_BATCH_SIZE as i64).collect::<Vec<_>>());
        // An entry whose caller has gone is left out.
        join(&queues, &mut responses, 301);
        responses.remove(MAX_BATCH_SIZE);
        assert_eq!(taken(&queues), [301]);
        assert!(taken(&queues).is_empty() && queues.close_if_empty(&key()));
    }
}
