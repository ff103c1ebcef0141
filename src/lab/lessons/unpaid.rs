//! Lesson `unpaid`: order expiry. The worker that returns the stock is killed before its commit and
//! after it; then a payment and the expiry of the same order overlap, with either of them first.

use std::time::Duration;

use anyhow::Context as _;
use uuid::Uuid;

use crate::lab::headers::{HOLD_MS, LabHeaders, PAUSE};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::observe::wait_until;
use crate::lab::scenario::{InFlightRequest, LabResponse, Scenario, order_of};
use crate::shop::{Sku, UserId};

pub(super) const LESSON: Lesson = Lesson {
    number: 18,
    name: "unpaid",
    claim: "Unpaid orders go back on the shelf once, also when the worker dies half-way; of a \
            payment and a cancellation at the same instant one wins, and money and stock agree.",
    question: "The worker has put a unit back on the shelf, has committed, and is killed before it \
               takes the order out of the queue. The queue gives the order to the next worker. How \
               often does the unit come back?",
    guesses: &["once", "twice", "never"],
    right: 0,
    load: None,
    shows: &["claim.lua", "expire_orders.rs"],
    takeaway: [
        "A queue that loses nothing delivers at least once; that the effect comes once is the work \
         of the row that it changes.",
        "The order's status moves by compare-and-set in the statement that moves the stock or the \
         money, so of two who want it one does.",
        "Redis says when, and to whom; Postgres says whether, and knows every order that Redis has \
         forgotten.",
    ],
    play: |scenario| Box::pin(play(scenario)),
};

/// The shop's own strategy.
const STRATEGY: &str = "batched";
/// Strategy of a request that is held before its commit: by then its transaction has locked the
/// order's row. (Under the shop's own strategy nothing is locked while a process is held.)
const ROW_LOCK: &str = "row-lock";
/// Payment period of an order that is to expire.
const SHORT_HOLD_MS: u64 = 200;
/// Payment period of an order that is paid in time; long enough for the setup before its end.
const LONG_HOLD_MS: u64 = 900;
const PRICE: i64 = 100;
const MONEY: i64 = 1_000;

async fn play(scenario: &Scenario) -> anyhow::Result<LessonResult> {
    scenario.require_two_replicas()?;
    let before = kill_worker_at(
        scenario,
        "unpaid, 1",
        "commit",
        "after it has put the unit back, before its commit",
    )
    .await?;
    scenario.restore().await?;
    let after = kill_worker_at(
        scenario,
        "unpaid, 2",
        "committed",
        "after its commit, before it has told the queue",
    )
    .await?;
    scenario.restore().await?;
    let payer = payer(scenario).await?;
    let paid = payment_first(scenario, &payer).await?;
    let late = expiry_first(scenario, &payer).await?;
    scenario.fact("given back, worker killed before its commit", times(before));
    scenario.fact("given back, worker killed after its commit", times(after));
    Ok(LessonResult::new(
        before == 1 && after == 1 && paid && late,
        format!(
            "worker killed before its commit: back {} · after it: back {} · money first: {} · \
             money second: {}",
            times(before),
            times(after),
            if paid { "paid, nothing back" } else { "NOT as it should be" },
            if late { "refused, and the unit is back" } else { "NOT as it should be" },
        ),
    ))
}

fn times(number: i64) -> String {
    match number {
        1 => "once".to_owned(),
        number => format!("{number} times"),
    }
}

/// Kills A's worker at `point`; B's worker takes over. Returns how often the unit was returned, or
/// -1 if the ledger is inconsistent afterwards.
async fn kill_worker_at(
    scenario: &Scenario,
    label: &str,
    point: &str,
    when: &str,
) -> anyhow::Result<i64> {
    let sku = scenario.item(10).await?;
    scenario.idle_worker(1, Duration::from_secs(20)).await?;
    scenario.hold_worker(0, point, ROW_LOCK).await?;
    let order = order(scenario, label, 1, &sku, SHORT_HOLD_MS).await?;
    let worker = scenario.wait_until_worker_held(0, point).await?;
    scenario.kill_worker(worker, &sku).await;
    scenario.say(format!("Nobody pays. A's worker has the order, and is killed {when}.")).await;
    scenario.idle_worker(1, Duration::ZERO).await?;
    wait_until("the order is given back", || async move {
        Ok(status(scenario, order).await? == "cancelled" && !queued(scenario, order).await?)
    })
    .await?;
    let back = times_returned(scenario, order).await?;
    let audit = scenario.audit(&sku).await?;
    scenario
        .say(format!("The queue gave it to another worker. On the shelf: {} of 10.", audit.stock))
        .await;
    let sound = audit.ok && audit.stock == 10 && audit.sold == 0;
    Ok(if sound { back } else { -1 })
}

struct Payer {
    id: UserId,
    token: String,
}

async fn payer(scenario: &Scenario) -> anyhow::Result<Payer> {
    let (id, token) = scenario.cluster.create_payer().await?;
    let money = format!("{{\"amount_cents\":{MONEY}}}");
    let headers = LabHeaders::under(STRATEGY);
    let rich = scenario
        .post_as(&token, "top up", 0, "/api/me/top-ups", &money, &headers)
        .response()
        .await?;
    anyhow::ensure!(rich.is_success(), "no money: {}", rich.body);
    Ok(Payer { id, token })
}

impl Payer {
    async fn orders(
        &self,
        scenario: &Scenario,
        label: &str,
        sku: &Sku,
        hold_ms: u64,
    ) -> anyhow::Result<Uuid> {
        let headers = LabHeaders::under(STRATEGY).with(HOLD_MS, hold_ms);
        let order =
            scenario.post_as(&self.token, label, 1, "/api/orders", &order_of(sku), &headers);
        scenario.response(order).await?.order().context("no order")
    }

    async fn balance(&self, scenario: &Scenario) -> anyhow::Result<i64> {
        let mut db = scenario.cluster.pool.acquire().await.map_err(|(_, error)| error)?;
        let balance = sqlx::query_scalar("select balance_cents from accounts where user_id = $1");
        Ok(balance.bind(self.id.0).fetch_one(&mut *db).await?)
    }

    fn pays(&self, scenario: &Scenario, order: Uuid, headers: &LabHeaders) -> InFlightRequest {
        let path = format!("/api/orders/{order}/pay");
        scenario.post_as(&self.token, "the payment", 1, &path, "", headers)
    }
}

/// The payment holds the lock on the order's row when the order is due. Returns whether it succeeds
/// and no unit is returned.
async fn payment_first(scenario: &Scenario, payer: &Payer) -> anyhow::Result<bool> {
    let sku = scenario.item(10).await?;
    let order = payer.orders(scenario, "paid in time", &sku, LONG_HOLD_MS).await?;
    let held = LabHeaders::under(ROW_LOCK).with(PAUSE, "commit");
    let pay = payer.pays(scenario, order, &held);
    scenario.wait_until_held(&pay).await?;
    scenario.say("A payment is about to commit. In this moment the order's time is over.").await;
    wait_until("the time is over", || is_due(scenario, order)).await?;
    // This order is due after the first: once it is cancelled, a worker has passed the first.
    let after = self::order(scenario, "another order", 1, &sku, 1).await?;
    wait_until("a worker has been there", || async move {
        Ok(status(scenario, after).await? == "cancelled")
    })
    .await?;
    let paid = scenario.finish(pay).await?;
    let status = status(scenario, order).await?;
    let audit = scenario.audit(&sku).await?;
    scenario
        .say(format!("The worker went past it. The payment commits: the order is {status}."))
        .await;
    let money = balance(&paid) == Some(MONEY - PRICE);
    let back = times_returned(scenario, order).await?;
    Ok(money && status == "paid" && back == 0 && audit.ok && audit.stock == 9)
}

/// The worker holds the lock on the order's row when the payment arrives. Returns whether the
/// payment is rejected and the unit is returned once.
async fn expiry_first(scenario: &Scenario, payer: &Payer) -> anyhow::Result<bool> {
    let sku = scenario.item(10).await?;
    for replica in [0, 1] {
        scenario.hold_worker(replica, "commit", ROW_LOCK).await?;
    }
    let order = payer.orders(scenario, "paid too late", &sku, SHORT_HOLD_MS).await?;
    let worker = tokio::select! {
        worker = scenario.wait_until_worker_held(0, "commit") => worker?,
        worker = scenario.wait_until_worker_held(1, "commit") => worker?,
    };
    let pay = payer.pays(scenario, order, &LabHeaders::under(ROW_LOCK));
    wait_until("the payment waits", || payment_waits(scenario)).await?;
    scenario
        .say("The worker is about to commit, and a payment for that order waits for its row.")
        .await;
    scenario.resume_worker(worker, &sku).await?;
    for replica in [0, 1] {
        scenario.idle_worker(replica, Duration::ZERO).await?;
    }
    let rejected = scenario.response(pay).await?;
    let audit = scenario.audit(&sku).await?;
    let why = rejected.problem().unwrap_or("nothing");
    scenario.say(format!("The order goes back, and the payment is told: {why}.")).await;
    scenario.fact("the late payment was told", why);
    let kept = payer.balance(scenario).await?;
    let back = times_returned(scenario, order).await?;
    Ok(why == "order-expired"
        && kept == MONEY - PRICE
        && back == 1
        && audit.ok
        && audit.stock == 10)
}

async fn order(
    scenario: &Scenario,
    label: &str,
    replica: usize,
    sku: &Sku,
    hold_ms: u64,
) -> anyhow::Result<Uuid> {
    let headers = LabHeaders::under(STRATEGY).with(HOLD_MS, hold_ms);
    let order = scenario.order(label, replica, sku, &headers);
    scenario.response(order).await?.order().context("no order")
}

fn balance(paid: &LabResponse) -> Option<i64> {
    paid.body.pointer("/balance/after")?.as_i64()
}

async fn status(scenario: &Scenario, order: Uuid) -> anyhow::Result<String> {
    let mut db = scenario.cluster.pool.acquire().await.map_err(|(_, error)| error)?;
    let status = sqlx::query_scalar("select status from orders where id = $1");
    Ok(status.bind(order).fetch_one(&mut *db).await?)
}

async fn is_due(scenario: &Scenario, order: Uuid) -> anyhow::Result<bool> {
    let mut db = scenario.cluster.pool.acquire().await.map_err(|(_, error)| error)?;
    let over = sqlx::query_scalar("select expires_at < now() from orders where id = $1");
    Ok(over.bind(order).fetch_one(&mut *db).await?)
}

/// Returns how often units of the order were returned, according to the ledger.
async fn times_returned(scenario: &Scenario, order: Uuid) -> anyhow::Result<i64> {
    let mut db = scenario.cluster.pool.acquire().await.map_err(|(_, error)| error)?;
    let back = sqlx::query_scalar(
        "select count(*) from stock_ledger where order_id = $1 and reason = 'expiry'",
    );
    Ok(back.bind(order).fetch_one(&mut *db).await?)
}

/// Returns whether a session of Postgres waits for a lock on an order's row.
async fn payment_waits(scenario: &Scenario) -> anyhow::Result<bool> {
    let mut db = scenario.cluster.pool.acquire().await.map_err(|(_, error)| error)?;
    let waits = sqlx::query_scalar(
        "select exists (select from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock'
                           and query like '%from orders%no key update%')",
    );
    Ok(waits.fetch_one(&mut *db).await?)
}

async fn queued(scenario: &Scenario, order: Uuid) -> anyhow::Result<bool> {
    Ok(scenario.unpaid_queue()?.has(order).await?)
}
