//! Executes a single command under the locks of its strategy.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::{Instrument as _, debug_span};

use super::duplicates::{InFlightKey, KeyLocks, LOOKUP_TIMEOUT, keeps_lock};
use crate::command::Command;
use crate::engine::batch;
use crate::engine::batch::entries::Batch;
use crate::engine::batch::entry::BatchEntry;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::failure::{Component, Error, Execution, Failure};
use crate::{RequestContext, Shop};

const REPLAY_LOOKUP_DELAY: Duration = Duration::from_millis(250);

struct PreparedCommand {
    locks: AcquiredLocks,
    key_locks: KeyLocks,
    _in_flight: InFlightKey,
}

/// Executes a command in a task of its own, which outlives the request.
pub(super) async fn run(
    shop: &Shop,
    context: &RequestContext,
    command: Arc<dyn Command>,
) -> Result<Execution, Failure> {
    // Dropped with this future: a command that still waits for its locks is then given up.
    let (caller, caller_gone) = oneshot::channel::<()>();
    let execution = run_for(caller_gone, shop.clone(), context.clone(), command);
    let result = shop.tasks.spawn(execution.in_current_span()).await;
    drop(caller);
    result.unwrap_or_else(|_| Err(Error::task_ended(Component::CommandTask).into()))
}

async fn run_for(
    caller_gone: oneshot::Receiver<()>,
    shop: Shop,
    context: RequestContext,
    command: Arc<dyn Command>,
) -> Result<Execution, Failure> {
    let command = command.as_ref();
    let preparing = prepare(&shop, &context, command).instrument(debug_span!("wait"));
    let prepared = tokio::select! {
        prepared = preparing => prepared,
        _ = caller_gone => return Err(Error::GivenUp("its caller has gone").into()),
    };

    // From here to its end, whether the caller waits or not: a write may be under way.
    let failure = match prepared {
        Ok(Either::Left(prepared)) => {
            match run_under_locks(&shop, &context, command, prepared).await {
                Err(failure) if failure.precedes_read() => failure,
                result => return result,
            }
        }
        Ok(Either::Right(replayed)) => return Ok(replayed),
        Err(failure) => failure,
    };
    // The key of a rejected command is looked up: an earlier request may have executed it.
    shop.engine.duplicates.replay_or(command.idempotency(), failure).await
}

async fn prepare(
    shop: &Shop,
    context: &RequestContext,
    command: &dyn Command,
) -> Result<Either<PreparedCommand, Execution>, Failure> {
    let request = command.idempotency();
    let in_flight = shop.engine.duplicates.admit(request)?;

    let mut key_locks = KeyLocks::new(&shop.locks, context.strategy.lock_in_redis().is_some());
    if !request.is_generated {
        key_locks.acquire(&[request]).await.into_iter().collect::<Result<(), _>>()?;
    }

    let acquired = acquire(shop, context, command).await;
    if !matches!(acquired, Ok(Either::Left(_))) {
        // Before the response, because the client may use the key again at once.
        key_locks.release([request].into_iter()).await;
    }

    Ok(match acquired? {
        Either::Left(locks) => {
            Either::Left(PreparedCommand { locks, key_locks, _in_flight: in_flight })
        }
        Either::Right(replayed) => Either::Right(replayed),
    })
}

/// Acquires the locks. After [`REPLAY_LOOKUP_DELAY`] it also looks up the key, so that a duplicate
/// need not wait for the locks.
async fn acquire(
    shop: &Shop,
    context: &RequestContext,
    command: &dyn Command,
) -> Result<Either<AcquiredLocks, Execution>, Failure> {
    let acquiring = pin!(AcquiredLocks::acquire(shop, context, command));
    let lookup = pin!(async {
        sleep(REPLAY_LOOKUP_DELAY).await;
        shop.engine.duplicates.find(command.idempotency(), LOOKUP_TIMEOUT).await
    });

    match select(acquiring, lookup).await {
        Either::Left((acquired, _)) => Ok(Either::Left(acquired?)),
        Either::Right((Some(replay), _)) => Ok(Either::Right(replay?)),
        // The holder may have left its lock to expire because Postgres is unavailable.
        Either::Right((None, acquiring)) => match shop.pool.recent_failure() {
            Some(outage) => Err(Error::from(outage).into()),
            None => Ok(Either::Left(acquiring.await?)),
        },
    }
}

async fn run_under_locks(
    shop: &Shop,
    context: &RequestContext,
    command: &dyn Command,
    prepared: PreparedCommand,
) -> Result<Execution, Failure> {
    let PreparedCommand { mut locks, mut key_locks, _in_flight } = prepared;
    let stage = &debug_span!("held");
    let entries = &[BatchEntry { command, context, stage }];

    if let Some(taken) = &mut locks.taken {
        taken.keep_on_drop();
    }
    let strategy = shop.engine.data_paths.strategy_of_rows(context.strategy, command);
    let batch = Batch { shop, strategy, entries, has_leader: false };
    let (results, state) = batch::run(batch, &mut locks).await;
    let Some(result) = results.into_iter().next() else {
        return Err(Error::Bug("a command got no result".to_owned()).into());
    };

    locks.end_taken(&result).await;
    // The locks first, which others wait for.
    locks.end(context, matches!(state, LockState::LeaveToExpire(_))).await;

    let request = command.idempotency();
    if keeps_lock(&result) {
        key_locks.leave_to_expire(request);
    } else {
        key_locks.release([request].into_iter()).await;
    }
    result
}
