//! Lesson `wrong-delete`: A outlives its lease and deletes B's lock; C acquires the free lock, and
//! B deletes it; D acquires it then, and C deletes it.

use super::{LessonResult, Scenario, sales};
use holdfast_base::messages::message;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.scene_of_item("chain", 10).await?;
    lab.say(message!("run-wrong-delete-step-1"));
    let mut a = lab.order("A", 0, &sku, "ttl").lease_ms(300).pause_at("read").await?;
    lab.watch_lease(&mut a, &sku, None).await?;

    let b = lab.order("B", 1, &sku, "ttl").pause_at("read").await?;
    let of_b = lab.holder(&sku).await?;
    lab.say(message!("run-wrong-delete-step-2"));
    let a = lab.finish(a).await?.require_placed()?;
    let b_robbed = of_b.is_some() && lab.holder(&sku).await?.is_none();
    lab.say(message!("run-wrong-delete-step-3"));

    let c = lab.order("C", 0, &sku, "ttl").pause_at("read").await?;
    let of_c = lab.holder(&sku).await?;
    lab.say(message!("run-wrong-delete-step-4"));
    let b = lab.finish(b).await?.require_placed()?;
    let c_robbed = of_c.is_some() && of_c != of_b && lab.holder(&sku).await?.is_none();
    lab.say(message!("run-wrong-delete-step-5"));

    let d = lab.order("D", 1, &sku, "ttl").pause_at("read").await?;
    let of_d = lab.holder(&sku).await?;
    lab.say(message!("run-wrong-delete-step-6"));
    let c = lab.finish(c).await?.require_placed()?;
    let d_robbed = of_d.is_some() && of_d != of_c && lab.holder(&sku).await?.is_none();
    lab.say(message!("run-wrong-delete-step-7"));
    let d = lab.finish(d).await?.require_placed()?;

    let audit = lab.audit(&sku).await?;
    let left = audit.opening - audit.stock;
    lab.say(message!("run-wrong-delete-step-8", sold = audit.sold, left));
    let robbed = [b_robbed, c_robbed, d_robbed].into_iter().filter(|robbed| *robbed).count();
    let both_twice = (a, b) == (10, 10) && (c, d) == (9, 9);
    lab.evidence(message!("run-wrong-delete-fact-2"), robbed, robbed == 3);
    lab.evidence(message!("run-wrong-delete-fact-1"), format!("{a}, {b}, {c}, {d}"), both_twice);

    Ok(LessonResult::of_scenes(
        robbed == 3 && both_twice && audit.sold == 4 && left < 4,
        message!("run-wrong-delete-verdict", robbed, sales = sales(&audit), breaks = audit.breaks),
    ))
}
