//! The queue of a leader, entry by entry.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::LockKey;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;
use uuid::Uuid;

use super::limit::{MAX_BATCH_SIZE, MAX_QUEUE_LENGTH};
use super::{CommandQueues, EnqueueResult, QueueEntry};
use crate::RequestContext;
use crate::command::Command;
use crate::command::place_order::PlaceOrder;
use crate::engine::batch::entry::EntryResult;
use crate::engine::duplicates::in_flight::InFlightKeys;
use crate::engine::reply::ReplyRoute;
use crate::failure::Error;
use crate::model::RequestedLine;
use crate::strategy::batched;
use crate::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, Sku, UserId};

type ResponseReceiver = oneshot::Receiver<EntryResult>;

pub fn key() -> LockKey {
    LockKey::new("{sku:tea}").unwrap_or_else(|_| unreachable!())
}

/// An order, identified by its `quantity`.
pub fn entry(quantity: i64) -> (QueueEntry, ResponseReceiver) {
    let sku = Sku::try_from("tea".to_owned()).unwrap_or_else(|_| unreachable!());
    let (user, lines) = (UserId(Uuid::nil()), [RequestedLine { sku, quantity }]);
    let command =
        PlaceOrder::new(user, IdempotencyKey::generate(), &lines, None, DEFAULT_PAYMENT_WINDOW);
    let command = Arc::new(command.unwrap_or_else(|_| unreachable!()));
    let context = RequestContext {
        request_id: Uuid::nil(),
        deadline: Instant::now() + Duration::from_secs(60),
        strategy: &batched::STRATEGY,
        ttl: None,
        payment_window: DEFAULT_PAYMENT_WINDOW,
        in_lab: false,
        lab: None,
    };
    let in_flight = InFlightKeys::default().register(command.idempotency());
    let in_flight = in_flight.unwrap_or_else(|_| unreachable!());
    let (reply, response) = oneshot::channel();
    let joined_at = Instant::now();
    let entry = QueueEntry {
        command,
        context,
        joined_at,
        key_lock_requested: false,
        looked_up: false,
        stays_here: false,
        in_flight,
        request: Span::none(),
        stage: Span::none(),
        reply: ReplyRoute::Caller(reply),
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

/// Joins until the queue has no place left.
fn fill(mut join: impl FnMut() -> EnqueueResult) {
    assert!(matches!(join(), EnqueueResult::First));
    for at in 1..MAX_QUEUE_LENGTH {
        assert!(matches!(join(), EnqueueResult::Behind), "{at}");
    }
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
    assert!(entry.respond(Err(Error::GivenUp("tried").into())).is_none());
    assert!(retry.2.load(Ordering::Relaxed), "a retry with the same key is refused");
}

#[test]
fn full_queue_rejects_while_entries_are_borrowed() {
    let queues = CommandQueues::default();
    let leader = queues.of_leader(key());
    let mut responses = Vec::new();
    let mut join = || join(&queues, &mut responses, 1);
    fill(&mut join);
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
fn orders_that_another_replica_executes_take_places() {
    let queues = CommandQueues::default();
    let leader = queues.of_leader(key());
    let mut responses = Vec::new();
    let mut join = || join(&queues, &mut responses, 1);
    fill(&mut join);
    let forwarded = leader.take_forwardable().batch;
    assert_eq!(forwarded.len(), MAX_BATCH_SIZE);
    assert!(matches!(join(), EnqueueResult::Full), "their answers are awaited");
    leader.set_forwarded(MAX_BATCH_SIZE - 1);
    assert!(matches!(join(), EnqueueResult::Behind), "one has its answer");
    assert!(matches!(join(), EnqueueResult::Full));
    leader.take(usize::MAX);
    assert!(!leader.close_if_empty(), "a new leader would not know of them");
    leader.set_forwarded(0);
    assert!(leader.close_if_empty());
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
