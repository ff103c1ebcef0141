//! Lesson `wrong-delete`: A outlives its lease and deletes B's lock; C acquires the free lock, and
//! B deletes it. After each release the lesson checks that Redis has no lock although a holder
//! still works.

use crate::lab::headers::{PAUSE, TTL_MS, under};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;

pub(super) const LESSON: Lesson = Lesson {
    number: 5,
    name: "wrong-delete",
    claim: "An expiry without an owner: A outlives its lease and deletes B's lock, B deletes C's, \
            and so on.",
    question: "A's lock ended, B has it now. A is done and deletes the key. How long does the \
               damage last?",
    guesses: &[
        "until B is done: then all is in order again",
        "until the TTL has run out once",
        "until nobody waits any more: each deletes the next one's lock",
    ],
    right: 2,
    load: None,
    shows: &["ttl"],
    takeaway: [
        "`DEL key` deletes whatever is there, and after an expiry that is somebody else's.",
        "One late holder is enough: B never was late, and deletes C's lock all the same.",
        "Whoever deletes must show that the lock is his own, in the same step.",
    ],
    play: |lab| Box::pin(play(lab)),
};

async fn play(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say("A takes the lock for 300 ms, reads 10, and is held until the lease has ended.").await;
    let short = under("ttl").with(TTL_MS, 300).with(PAUSE, "read");
    let a = lab.order_until_held("A", 0, &sku, &short).await?;
    lab.wait_until_free(&sku).await?;

    let long = under("ttl").with(PAUSE, "read");
    let b = lab.order_until_held("B", 1, &sku, &long).await?;
    let of_b = lab.holder(&sku).await?;
    lab.say("B has the lock now, for 10 s, and has read 10.").await;
    let a = lab.finish(a).await?.require_placed()?;
    let b_robbed = of_b.is_some() && lab.holder(&sku).await?.is_none();
    lab.say("A writes 9 and deletes the key: it was B's. Nobody has a lock, and B works.").await;

    let c = lab.order_until_held("C", 0, &sku, &long).await?;
    let of_c = lab.holder(&sku).await?;
    lab.say("C finds no lock, takes it, and reads 9.").await;
    let b = lab.finish(b).await?.require_placed()?;
    let c_robbed = of_c.is_some() && of_c != of_b && lab.holder(&sku).await?.is_none();
    lab.say("B writes 9 and deletes the key: it was C's. B never was late.").await;

    let d = lab.place_order("D", 1, &sku, &under("ttl")).await?.require_placed()?;
    let c = lab.finish(c).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    let left = audit.opening - audit.stock;
    lab.say(format!("D comes in beside C. Sold {}, {left} left the shelf.", audit.sold)).await;
    lab.fact("read, in order of coming", format!("{a}, {b}, {c}, {d}"));
    let robbed = usize::from(b_robbed) + usize::from(c_robbed);
    Ok(LessonResult::new(
        robbed == 2 && (a, b) == (10, 10) && (c, d) == (9, 9) && audit.sold == 4 && left < 4,
        format!(
            "{robbed} locks deleted by somebody else, one late holder: {} sold, {left} left the \
             shelf, {} breaks in the ledger",
            audit.sold, audit.breaks
        ),
    ))
}
