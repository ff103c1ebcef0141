//! The floor under the cost of an order: the shop's own write statement, prepared, for many orders
//! of one item, sent by one connection in a loop. No other one waits for the row, nothing is read,
//! received or answered, and no other process is asked. What a strategy sells, relative to it, is
//! the share of the floor (P18).

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use holdfast_lock::{AcquireOutcome, AcquireRequest, LockKind, Locks, Redis, Settings, Wait};
use uuid::Uuid;

use holdfast_services::load::LoadReport;
use holdfast_shop::command::Command as _;
use holdfast_shop::command::place_order::PlaceOrder;
use holdfast_shop::command::state::ShopState;
use holdfast_shop::db::Pool;
use holdfast_shop::model::RequestedLine;
use holdfast_shop::store::changed_rows::ChangedRows;
use holdfast_shop::store::place::place;
use holdfast_shop::store::read::{ReadRequest, read};
use holdfast_shop::store::{BatchWrite, CommandWrite, WriteResult};
use holdfast_shop::strategy::batched;
use holdfast_shop::strategy::exclusion::Exclusion;
use holdfast_shop::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, Sku, UserId};

const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes an order of each of the `buyers` per statement, and counts the orders and the statements'
/// durations after the warm-up.
pub(super) async fn measure(
    pool: &Pool,
    redis: &Redis,
    sku: &Sku,
    buyers: &[UserId],
    [warm_up, length]: [Duration; 2],
) -> anyhow::Result<LoadReport> {
    // For its fence, which the statement requires and writes: the same statement as a leader's.
    let locks = Locks::new(redis.clone(), Settings::default())?;
    let keys = [sku.lock_key()];
    let request = AcquireRequest::new(LockKind::Fenced, &keys)
        .with_wait(Wait::Try)
        .with_deadline(tokio::time::Instant::now() + LEASE_TIMEOUT);
    let acquired = locks.acquire(request).await?;
    let AcquireOutcome::Acquired(guards) = acquired else { bail!("the item's lease is taken") };
    let exclusion = batched::STRATEGY.exclusion(&guards);

    let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
    let reads = order(buyers[0], sku)?.reads();
    let request = ReadRequest { reads, ..ReadRequest::default() };
    let mut state = read(&mut connection, &request).await?.state;

    let mut report = LoadReport::default();
    let mut begin = Instant::now() + warm_up;
    loop {
        let write = prepare(&mut state, sku, buyers, &exclusion)?;
        let sent = Instant::now();
        let result = place(&mut connection, &[&write]).await?;
        let done = Instant::now();
        ensure!(result == WriteResult::Done, "somebody else wrote the item");

        report.expected_total += buyers.len() as u64;
        if sent < begin {
            // Counted from the end of a statement, so that each counts as a whole.
            begin = begin.max(done);
            continue;
        }
        report.expected += buyers.len() as u64;
        let took = u64::try_from((done - sent).as_micros()).unwrap_or(u64::MAX);
        report.latency.saturating_record(took.max(1));
        if done >= begin + length {
            report.seconds = (done - begin).as_secs_f64();
            break;
        }
    }
    guards.release().await;
    Ok(report)
}

fn order(buyer: UserId, sku: &Sku) -> anyhow::Result<PlaceOrder> {
    let line = RequestedLine { sku: sku.clone(), quantity: 1 };
    let key = IdempotencyKey::generate();
    PlaceOrder::new(buyer, key, &[line], None, DEFAULT_PAYMENT_WINDOW)
        .ok()
        .context("an order of one unit is valid")
}

/// Decides an order of each buyer, on the state that the previous statement left.
fn prepare(
    state: &mut ShopState,
    sku: &Sku,
    buyers: &[UserId],
    exclusion: &Exclusion<'_>,
) -> anyhow::Result<BatchWrite> {
    let before = state.clone();
    let mut commands = Vec::with_capacity(buyers.len());
    for (position, buyer) in buyers.iter().enumerate() {
        let command = order(*buyer, sku)?;
        let changes = command.decide(state).ok().context("the item has stock")?;
        let response = changes.stored_response()?;
        let idempotency = command.idempotency().clone();
        let request_id = Uuid::now_v7();
        commands.push(CommandWrite { position, idempotency, changes, response, request_id });
    }

    let rows = ChangedRows::between(&before, state, batched::STRATEGY.guard, exclusion)?;
    Ok(BatchWrite { rows, now: before.now, commands, is_unread: false })
}
