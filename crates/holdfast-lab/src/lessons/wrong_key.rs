//! Lesson `wrong-key`: one account pays two orders at once, each under a lock on the order. Then
//! the same load runs under this lock and under a lock on the account.

use anyhow::Context as _;

use super::{DefaultLoad, Journey, LabResponse, LessonResult, Payer, Scenario, Supply};
use holdfast_base::messages::message;
use holdfast_shop::Cents;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 60, buyers: 8, orders: 48, work_ms: 2, lease: true };

const PRICE: i64 = 100;
const MONEY: i64 = 1_000;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let payer = Payer::create(lab, MONEY).await?;
    let orders = payer.orders(lab, &lab.item(10).await?, 2).await?;
    lab.scene("two-payments");
    lab.say(message!("run-wrong-key-step-1"));

    let a = payer.pay(lab, message!("run-label-a-pays"), 0, orders[0], "wrong-key");
    let a = a.pause_at("read").await?;
    let b = payer.pay(lab, message!("run-label-b-pays"), 1, orders[1], "wrong-key").trying();
    let b_paid = balance(&b.response().await?)?;
    lab.say(message!("run-wrong-key-step-2"));

    let a_paid = balance(&lab.finish(a).await?)?;
    let (after, taken) = (a_paid.1, MONEY - a_paid.1);
    lab.say(message!(
        "run-wrong-key-step-3",
        after = Cents(after),
        price = Cents(PRICE),
        taken = Cents(taken)
    ));
    let pair = a_paid == (MONEY, MONEY - PRICE) && b_paid == a_paid;

    lab.say(message!("run-wrong-key-step-4"));
    let mut specs = LOAD.under(lab, &["wrong-key", "owner"]);
    for spec in &mut specs {
        spec.journey = Journey::Pay;
    }
    let arms = lab.run_arms(&specs).await?;

    let wrong = &arms[0];
    let right = &arms[1];
    let forked = wrong.forks > 0 && !wrong.ok;
    lab.evidence(message!("run-wrong-key-fact-1", price = Cents(PRICE)), Cents(taken), pair);
    lab.evidence(message!("run-wrong-key-fact-2"), wrong.forks, forked);
    lab.evidence(message!("run-wrong-key-fact-3"), right.forks, right.is_sound());

    let verdict = message!(
        "run-wrong-key-verdict",
        price = Cents(PRICE),
        taken = Cents(taken),
        after = Cents(after)
    );
    let result = LessonResult::of_scenes(pair, verdict);
    Ok(result.and_load(specs[0].hindrance(Supply::Any), forked && right.is_sound()))
}

fn balance(paid: &LabResponse) -> anyhow::Result<(i64, i64)> {
    let [before, after] = ["/balance/before", "/balance/after"]
        .map(|name| paid.body.pointer(name).and_then(serde_json::Value::as_i64));
    before.zip(after).with_context(|| format!("not paid: {:?} {}", paid.status, paid.body))
}
