//! Queues of commands that wait to be executed in batches, one per key in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::LockKey;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::entry::{BatchEntry, CommandSpan, EntryResult};
use super::in_flight::InFlightKey;
use super::queue_limit::AdaptiveQueueLimit;
use crate::shop::RequestOptions;
use crate::shop::command::Command;

#[derive(Debug)]
pub(super) struct QueueEntry {
    pub command: Arc<dyn Command>,
    pub options: RequestOptions,
    pub joined_at: Instant,
    pub key_lock_requested: bool,
    pub looked_up: bool,
    pub in_flight: InFlightKey,
    pub span: CommandSpan,
    pub reply: oneshot::Sender<EntryResult>,
}

impl QueueEntry {
    pub fn is_alive(&self, now: Instant) -> bool {
        now < self.options.deadline && !self.reply.is_closed()
    }

    pub fn entry(&self) -> BatchEntry<'_> {
        BatchEntry {
            command: self.command.as_ref(),
            options: &self.options,
            stage: self.span.stage(),
        }
    }

    pub fn respond(self, result: EntryResult) {
        // First, because a client with its response may use the key again at once.
        drop(self.in_flight);
        let _ = self.reply.send(result);
    }
}

/// The queues of all keys. A key has a queue while a leader serves it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandQueues(Arc<Mutex<HashMap<LockKey, CommandQueue>>>);

#[derive(Debug, Default)]
struct CommandQueue {
    entries: VecDeque<QueueEntry>,
    /// Number of borrowed entries, which will be put back and count as waiting.
    borrowed: usize,
    limit: AdaptiveQueueLimit,
    /// A number of waiting entries, and the signal that the queue has reached it.
    arrived: (usize, Arc<Notify>),
}

impl CommandQueue {
    fn waiting(&self) -> usize {
        self.entries.len() + self.borrowed
    }
}

pub(super) enum EnqueueResult {
    /// A leader must be started.
    First,
    Behind,
    Full,
}

#[derive(Default)]
pub(super) struct TakenEntries {
    pub batch: Vec<QueueEntry>,
    /// Entries whose caller has gone or whose deadline has passed.
    pub dead: Vec<QueueEntry>,
}

impl CommandQueues {
    pub fn join(&self, key: &LockKey, entry: QueueEntry) -> EnqueueResult {
        let mut queues = self.0.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.waiting() >= queue.limit.max_length() => EnqueueResult::Full,
            Some(queue) => {
                queue.entries.push_back(entry);
                if queue.waiting() == queue.arrived.0 {
                    queue.arrived.1.notify_one();
                }
                EnqueueResult::Behind
            }
            None => {
                let queue =
                    CommandQueue { entries: VecDeque::from([entry]), ..CommandQueue::default() };
                queues.insert(key.clone(), queue);
                EnqueueResult::First
            }
        }
    }

    pub fn of_leader(&self, key: LockKey) -> LeaderQueue {
        LeaderQueue { queues: self.clone(), key }
    }
}

/// The queue of one key, as its leader uses it. If the leader panics, the entries are dropped,
/// and the next command starts a new leader.
pub(super) struct LeaderQueue {
    queues: CommandQueues,
    pub key: LockKey,
}

impl LeaderQueue {
    fn with<T>(&self, act: impl FnOnce(&mut CommandQueue) -> T) -> Option<T> {
        self.queues.0.lock().get_mut(&self.key).map(act)
    }

    pub fn take(&self, max: usize) -> TakenEntries {
        let mut taken = TakenEntries::default();
        let now = Instant::now();
        self.with(|queue| {
            while taken.batch.len() < max
                && let Some(entry) = queue.entries.pop_front()
            {
                if entry.is_alive(now) { taken.batch.push(entry) } else { taken.dead.push(entry) }
            }
        });
        taken
    }

    /// Takes all entries, until all or some are put back. They count as waiting.
    pub fn borrow(&self) -> Vec<QueueEntry> {
        let borrowed = self.with(|queue| {
            queue.borrowed = queue.entries.len();
            std::mem::take(&mut queue.entries).into()
        });
        borrowed.unwrap_or_default()
    }

    /// Puts entries back, in front of those that joined since.
    pub fn put_back(&self, entries: Vec<QueueEntry>) {
        self.with(|queue| {
            queue.borrowed = 0;
            for entry in entries.into_iter().rev() {
                queue.entries.push_front(entry);
            }
        });
    }

    pub fn record_batch(&self, commands: usize, took: Duration) {
        self.with(|queue| queue.limit.record_batch(commands, took));
    }

    pub fn waiting(&self) -> usize {
        self.with(|queue| queue.waiting()).unwrap_or(0)
    }

    pub async fn arrived(&self, count: usize) {
        let notified = self.with(|queue| {
            queue.arrived.0 = count;
            queue.arrived.1.clone()
        });
        let Some(notified) = notified else { return };
        while self.waiting() < count {
            notified.notified().await;
        }
    }

    pub fn close_if_empty(&self) -> bool {
        let mut queues = self.queues.0.lock();
        let empty = queues.get(&self.key).is_none_or(|queue| queue.waiting() == 0);
        if empty {
            queues.remove(&self.key);
        }
        empty
    }
}

impl Drop for LeaderQueue {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queues.0.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};

    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::super::in_flight::InFlightKeys;
    use super::super::queue_limit::{MAX_BATCH_SIZE, MAX_QUEUE_LENGTH};
    use super::*;
    use crate::probe::Probe;
    use crate::shop::command::place_order::PlaceOrder;
    use crate::shop::failure::Error;
    use crate::shop::model::RequestedLine;
    use crate::shop::strategy::batched;
    use crate::shop::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, Sku, UserId};

    type ResponseReceiver = oneshot::Receiver<EntryResult>;

    fn key() -> LockKey {
        LockKey::new("{sku:tea}").unwrap_or_else(|_| unreachable!())
    }

    /// An order, identified by its `quantity`.
    fn entry(quantity: i64) -> (QueueEntry, ResponseReceiver) {
        let sku = Sku::try_from("tea".to_owned()).unwrap_or_else(|_| unreachable!());
        let (user, lines) = (UserId(Uuid::nil()), [RequestedLine { sku, quantity }]);
        let command =
            PlaceOrder::new(user, IdempotencyKey::generate(), &lines, DEFAULT_PAYMENT_WINDOW);
        let command = Arc::new(command.unwrap_or_else(|_| unreachable!()));
        let options = RequestOptions {
            strategy: &batched::STRATEGY,
            wait: None,
            queue_options: crate::locks::QueueOptions::default(),
            ttl: None,
            probe: Probe::Off,
            lab_items_only: false,
            in_lab: false,
            payment_window: DEFAULT_PAYMENT_WINDOW,
            deadline: Instant::now() + Duration::from_secs(60),
            request_id: Uuid::nil(),
        };
        let in_flight = InFlightKeys::default().register(command.idempotency());
        let in_flight = in_flight.unwrap_or_else(|_| unreachable!());
        let (reply, response) = oneshot::channel();
        let joined_at = Instant::now();
        let entry = QueueEntry {
            command,
            options,
            joined_at,
            key_lock_requested: false,
            looked_up: false,
            in_flight,
            span: CommandSpan::waiting(),
            reply,
        };
        (entry, response)
    }

    /// Joins the queue, and keeps the receiver of the response.
    fn join(
        queues: &CommandQueues,
        responses: &mut Vec<ResponseReceiver>,
        quantity: i64,
    ) -> EnqueueResult {
        let (entry, response) = entry(quantity);
        responses.push(response);
        queues.join(&key(), entry)
    }

    fn taken(queues: &CommandQueues) -> Vec<i64> {
        let batch = queues.of_leader(key()).take(MAX_BATCH_SIZE).batch;
        let quantity = |entry: QueueEntry| -entry.command.conditional_update().unwrap().stock[0].1;
        batch.into_iter().map(quantity).collect()
    }

    /// Registers the key of a command when the response wakes its receiver.
    struct Retry(Arc<dyn Command>, InFlightKeys, AtomicBool);

    impl Wake for Retry {
        fn wake(self: Arc<Self>) {
            self.2.store(self.1.register(self.0.idempotency()).is_ok(), Ordering::Relaxed);
        }
    }

    #[test]
    fn key_is_free_before_the_response() {
        let (mut entry, mut response) = entry(1);
        let keys = InFlightKeys::default();
        entry.in_flight = keys.register(entry.command.idempotency()).unwrap();
        let retry = Arc::new(Retry(entry.command.clone(), keys, AtomicBool::new(false)));
        let waker = retry.clone().into();
        assert!(response.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        entry.respond(Err(Error::GivenUp("tried").into()));
        assert!(retry.2.load(Ordering::Relaxed), "a retry with the same key is refused");
    }

    #[test]
    fn full_queue_rejects_while_entries_are_borrowed() {
        let queues = CommandQueues::default();
        let leader = queues.of_leader(key());
        let mut responses = Vec::new();
        let mut join = || join(&queues, &mut responses, 1);
        assert!(matches!(join(), EnqueueResult::First));
        for at in 1..MAX_QUEUE_LENGTH {
            assert!(matches!(join(), EnqueueResult::Behind), "{at}");
        }
        assert!(matches!(join(), EnqueueResult::Full));
        let mut all = leader.borrow();
        assert_eq!(all.len(), MAX_QUEUE_LENGTH);
        assert!(matches!(join(), EnqueueResult::Full), "they still wait");
        assert!(!leader.close_if_empty());
        all.truncate(MAX_QUEUE_LENGTH - 2);
        leader.put_back(all);
        assert!(matches!(join(), EnqueueResult::Behind));
        assert!(matches!(join(), EnqueueResult::Behind));
        assert!(matches!(join(), EnqueueResult::Full));
    }

    #[test]
    fn slow_queue_admits_fewer() {
        let queues = CommandQueues::default();
        let leader = queues.of_leader(key());
        let mut responses = Vec::new();
        let mut join = || join(&queues, &mut responses, 1);
        assert!(matches!(join(), EnqueueResult::First));
        leader.record_batch(1, Duration::from_secs(1));
        for at in 1..2 * MAX_BATCH_SIZE {
            assert!(matches!(join(), EnqueueResult::Behind), "{at}");
        }
        assert!(matches!(join(), EnqueueResult::Full));
        leader.take(1);
        assert!(matches!(join(), EnqueueResult::Behind));
    }

    #[test]
    fn arrival_is_signalled_at_the_awaited_count() {
        let queues = CommandQueues::default();
        let leader = queues.of_leader(key());
        let mut responses = Vec::new();
        join(&queues, &mut responses, 1);
        assert!(leader.arrived(2).now_or_never().is_none());
        join(&queues, &mut responses, 2);
        assert_eq!(taken(&queues), [1, 2]);
        let mut arrived = pin!(leader.arrived(2));
        assert!(arrived.as_mut().now_or_never().is_none(), "both were taken since");
        join(&queues, &mut responses, 3);
        assert!(arrived.as_mut().now_or_never().is_none(), "only one");
        join(&queues, &mut responses, 4);
        assert!(arrived.now_or_never().is_some());
        assert!(leader.arrived(1).now_or_never().is_some());
    }

    #[test]
    fn batches_are_first_in_first_out() {
        let queues = CommandQueues::default();
        let leader = queues.of_leader(key());
        let mut responses = Vec::new();
        for quantity in 1..=MAX_BATCH_SIZE {
            join(&queues, &mut responses, quantity as i64);
        }
        let early = leader.borrow();
        join(&queues, &mut responses, 300);
        leader.put_back(early);
        assert_eq!(taken(&queues), (1..=MAX_BATCH_SIZE as i64).collect::<Vec<_>>());
        // An entry whose caller has gone is left out.
        join(&queues, &mut responses, 301);
        responses.remove(MAX_BATCH_SIZE);
        assert_eq!(taken(&queues), [301]);
        assert!(taken(&queues).is_empty() && leader.close_if_empty());
    }
}
