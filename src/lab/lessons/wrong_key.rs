//! Lesson `wrong-key`: one account pays two orders at once, each under a lock on the order. Then
//! the same load runs under this lock and under a lock on the account.

use anyhow::{Context as _, ensure};
use uuid::Uuid;

use super::{Lesson, Shown};
use crate::lab::crowd::{Crowd, nobody_meets};
use crate::lab::headers::{LabHeaders, PAUSE, WAIT};
use crate::lab::run::Journey;
use crate::lab::runner;
use crate::lab::stage::{Answer, Stage, order_of};

pub(super) const LESSON: Lesson = Lesson {
    number: 13,
    name: "wrong-key",
    claim: "A lock on the order's id does nothing for a balance that two orders share.",
    question: "Every payment takes a good lock, on the id of the order that is paid. One account \
               pays two orders at once. What does the lock do?",
    guesses: &[
        "it keeps the two payments apart",
        "nothing: each has its own lock at once",
        "one of the two is refused",
    ],
    right: 1,
    crowd: Some(CROWD),
    shows: &["wrong-key", "owner"],
    takeaway: [
        "A lock is on what is *changed*, not on what is at hand: here the balance, not the order.",
        "Every test of such a lock is green, because the lock works; only the ledger sees it.",
        "In this shop a write says which key it needs, and a guard that names another one is a bug \
         that is found at once.",
    ],
    play: |stage| Box::pin(play(stage)),
};

const CROWD: Crowd = Crowd { stock: 60, buyers: 8, orders: 48, work_ms: 2, lease: true };

const PRICE: i64 = 100;
const MONEY: i64 = 1_000;

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let purse = purse(stage).await?;
    let pay = |label: &str, replica, order: Uuid, wish: &LabHeaders| {
        let path = format!("/api/orders/{order}/pay");
        stage.post_as(&purse.token, label, replica, &path, "", wish)
    };
    stage.say("A has the lock on its order, has read a balance of 1,000, and is held.").await;
    let held = LabHeaders::under("wrong-key").with(PAUSE, "read");
    let a = pay("A pays", 0, purse.orders[0], &held);
    stage.until_held(&a).await?;
    let trying = LabHeaders::under("wrong-key").with(WAIT, "try");
    let b = pay("B pays", 1, purse.orders[1], &trying);
    let b = balance(&stage.answer(b).await?)?;
    stage.say("B takes the lock on its own order at once, reads 1,000 too, and writes 900.").await;
    let a = balance(&stage.finish(a).await?)?;
    stage.say("A writes 900. Two orders of 100 are paid, and 100 are gone.").await;
    let pair = a == (MONEY, MONEY - PRICE) && b == (MONEY, MONEY - PRICE);

    stage.say("Now a crowd: one account, many orders, under either lock.").await;
    let mut specs = CROWD.under(stage, &["wrong-key", "owner"]);
    for spec in &mut specs {
        spec.journey = Journey::Pay;
    }
    runner::arms(stage, &specs).await?;
    let outcome = stage.outcome.lock();
    ensure!(outcome.arms.len() == 2, "an arm is missing");
    let (wrong, right) = (&outcome.arms[0], &outcome.arms[1]);
    Ok(Shown::by_a_crowd(
        nobody_meets(&specs[0]),
        pair && wrong.forks > 0 && !wrong.ok && right.ok && right.forks == 0,
        format!(
            "2 orders of {PRICE} paid, {} taken · a crowd under wrong-key: {} forks, {} cents \
             never taken · under a lock on the account: {} forks",
            MONEY - a.1,
            wrong.forks,
            wrong.drift,
            right.forks
        ),
    ))
}

/// An account for this run, and two orders to pay.
struct Purse {
    token: String,
    orders: Vec<Uuid>,
}

async fn purse(stage: &Stage) -> anyhow::Result<Purse> {
    let (_, token) = stage.house.payer().await?;
    let wish = LabHeaders::under("row-lock");
    let money = format!("{{\"amount_cents\":{MONEY}}}");
    let rich = stage.post_as(&token, "top up", 0, "/api/me/top-ups", &money, &wish).done().await?;
    ensure!(rich.is_done(), "no money: {}", rich.body);
    let sku = stage.item(10).await?;
    let mut orders = Vec::new();
    for _ in 0..2 {
        let order = stage.post_as(&token, "an order", 0, "/api/orders", &order_of(&sku), &wish);
        orders.push(order.done().await?.order().context("no order")?);
    }
    Ok(Purse { token, orders })
}

fn balance(paid: &Answer) -> anyhow::Result<(i64, i64)> {
    let number = |name: &str| paid.body.pointer(name).and_then(serde_json::Value::as_i64);
    let both = number("/balance/before").zip(number("/balance/after"));
    both.with_context(|| format!("not paid: {:?} {}", paid.status, paid.body))
}
