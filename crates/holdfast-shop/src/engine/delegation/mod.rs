//! Delegation: one replica executes the orders of an item, and the others send theirs to it.
//!
//! A replica whose commands need a lease that another one holds forwards them to that holder, over
//! Redis, instead of taking turns with it: a batch then has the commands of all replicas.
//! [`forward`](crate::engine::lease::forward) is the side that forwards; this module sends,
//! receives, and executes.
//!
//! Guarantees: a forwarded command is executed only under the lease to which it was addressed. Who
//! forwarded it and got no answer executes it only under a lease of its own, after it has raised
//! the row's fence and version: from then on the former holder's write matches no row. So messages
//! may be lost or late, and one that arrives twice is accepted once; a key record in Postgres
//! excludes a second execution in any case. A replica with another version of the messages, or
//! without Redis's channels, is not forwarded to, and forwards nothing while it could not receive
//! the answers. Awaited answers count against the limit of their queue.
//!
//! A command without a leader executes nothing for others, and moves the lease to its replica. So
//! nothing is forwarded while one of the own replica needs the lease, nor to a lease that not only
//! leaders have asked for, as its id says ([`LeaseId::takes_mail`]): the leader then waits itself.
//! And a leader executes what it has accepted before it lets others have the lease, within its
//! first batches under that lease. Else most of what is forwarded comes back where such commands
//! are many.
//!
//! Tests: `tests/model/delegation.rs`, `tests/it/delegation.rs`.

pub(super) mod mailbox;
mod message;
mod outbox;

use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::{Inbox, LeaseId, LockKey};
use tokio::time::Instant;
use tracing::{Span, debug_span};
use uuid::Uuid;

use super::command_queue::QueueEntry;
use super::reply::{Address, Answer, ReplyRoute};
use crate::command::Command as _;
use crate::strategy::batched;
use crate::{RequestContext, Shop};
use holdfast_base::log_limit;
use message::{DelegationMessage, MAILBOX, Seal};
pub(super) use message::{ForwardedOrder, ms};
use outbox::DelegationContext;
pub(super) use outbox::{Delegation, RemoteLease};

/// Starts to forward commands, and to execute those of other replicas, until the process ends.
/// `key` is that of the messages, which the replicas of a shop share.
pub fn start(shop: &Shop, key: Uuid) {
    let delegation = &shop.engine.delegation;
    let locks = shop.locks.leases().clone();
    let process = locks.process_id();
    let inbox = locks.inbox(MAILBOX);
    let running = DelegationContext {
        locks,
        process,
        seal: Seal::new(key),
        tasks: shop.tasks.clone(),
        inbox: inbox.state(),
    };
    if delegation.run(running) {
        // Not one of the tasks that a shutdown waits for: their commands wait for answers.
        tokio::spawn(receive(shop.clone(), inbox));
    }
}

async fn receive(shop: Shop, mut inbox: Inbox) {
    let delegation = shop.engine.delegation.clone();
    let Some(DelegationContext { process, seal, .. }) = delegation.running() else { return };
    loop {
        match seal.open(process, &inbox.next().await) {
            Some(DelegationMessage::Commands { lease, key, from, orders }) => {
                let Ok(key) = LockKey::new(key) else { continue };
                accept(&shop, &LeaseId::new(lease), &(from.into(), key), orders);
            }
            Some(DelegationMessage::Answers { key, answers }) => {
                let Ok(key) = LockKey::new(key) else { continue };
                delegation.mailboxes().deliver(&key, answers);
            }
            None => {
                // Any client that may publish in this Redis can send any number of them.
                if let Some(left_out) = log_limit::admit("foreign message") {
                    tracing::warn!(left_out, "a message is not from a replica of this shop");
                }
            }
        }
    }
}

/// Adds the commands to the queue of the lease's leader. Those that it does not take get an answer.
fn accept(shop: &Shop, lease: &LeaseId, to: &Address, orders: Vec<ForwardedOrder>) {
    let _span = debug_span!("accept", key = %to.1, commands = orders.len()).entered();
    let mut entries = Vec::with_capacity(orders.len());
    let mut answers = Vec::new();
    for order in shop.engine.delegation.first_arrivals(to, orders) {
        match entry(shop, to, &order) {
            Ok(entry) => entries.push(entry),
            Err(answer) => answers.push((to.clone(), order.number, answer)),
        }
    }
    let refused = shop.engine.queues.join_forwarded(&to.1, lease, entries);
    let refused = refused.into_iter();
    answers.extend(refused.filter_map(|(entry, answer)| entry.return_to_sender(answer)));
    shop.engine.delegation.answer(answers);
}

fn entry(shop: &Shop, to: &Address, order: &ForwardedOrder) -> Result<QueueEntry, Answer> {
    let command = order.command().ok_or(Answer::Failed)?;
    let in_flight = shop.engine.duplicates.admit(command.idempotency());
    let in_flight = in_flight.map_err(|rejection| Answer::of_rejection(&rejection))?;

    let joined_at = Instant::now();
    let context = RequestContext {
        strategy: &batched::STRATEGY,
        in_lab: order.in_lab,
        payment_window: order.payment_window(),
        deadline: joined_at + Duration::from_millis(order.left_ms),
        ..RequestContext::new(shop, order.request_id)
    };
    Ok(QueueEntry {
        command: Arc::new(command),
        context,
        joined_at,
        key_lock_requested: order.key_lock_requested,
        looked_up: false,
        stays_here: true,
        in_flight,
        request: Span::none(),
        stage: Span::none(),
        reply: ReplyRoute::Replica { to: to.clone(), number: order.number },
    })
}
