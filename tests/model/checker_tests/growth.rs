//! The work grows as n log n. Steps are counted, not time.

use super::*;

/// Orders, refusals, retries and restocks: that many observations. `spread`: how long each is.
fn long_story(length: usize, spread: u64) -> Story {
    let mut story = Story::new(&[("padlock", 20), ("lantern", 7)]);
    story.account(1, i64::try_from(length).unwrap() * 1_000);
    let mut at = 1_000_000;
    while story.seen.len() < length {
        let n = story.seen.len();
        at += 10;
        let times = (at - spread % 1_000_000, at + spread);
        let sku = if n.is_multiple_of(3) { "lantern" } else { "padlock" };
        let many = 1 + i64::try_from(n % 4).unwrap();
        let place = story.place(&format!("key {n}"), &[(sku, many)], times);
        match story.seen[place].outcome {
            ObservedOutcome::Done { .. } if n.is_multiple_of(7) => drop(story.again(place, times)),
            ObservedOutcome::Done { .. } if n.is_multiple_of(11) => drop(story.pay(place, times)),
            ObservedOutcome::Insufficient { .. } if n.is_multiple_of(5) => {
                story.change(sku, 12, "restock", None, Uuid::nil());
            }
            _ => {}
        }
    }
    story
}

/// How much more work `length` is than a quarter of it.
#[track_caller]
fn growth(length: usize, story: impl Fn(usize) -> Story, sound: bool) -> f64 {
    let steps = |length: usize| {
        let story = story(length);
        let (violations, steps) = check_counting_steps(&story.recorded, &story.seen);
        assert_eq!(violations.is_empty(), sound, "of {length}");
        let entries = story.recorded.stock.entries.len();
        let items = (length + entries + story.recorded.orders.len()) as f64;
        let most = 8.0 * items * items.log2();
        assert!((steps as f64) < most, "{steps} steps for {items}");
        steps as f64
    };
    steps(length) / steps(length / 4)
}

#[test]
fn work_grows_as_n_log_n() {
    for (length, spread) in [(200_000, 3), (40_000, 5_000), (40_000, 900_000_000)] {
        let times = growth(length, |length| long_story(length, spread), true);
        assert!(times < 4.7, "{times}");
    }
}

#[test]
fn invalid_history_costs_no_more_work() {
    let wrong = |length: usize| {
        let mut story = long_story(length, 3);
        for (n, seen) in story.seen.iter_mut().enumerate() {
            match &mut seen.outcome {
                ObservedOutcome::Insufficient { available, .. } => *available -= 1,
                ObservedOutcome::Done { changes, .. } if n.is_multiple_of(2) => {
                    changes[0].before += 1
                }
                _ => {}
            }
            (seen.invoked_us, seen.completed_us) =
                (2_000_000_000 - seen.completed_us, 2_000_000_000 - seen.invoked_us);
        }
        for entry in &mut story.recorded.stock.entries {
            entry.version %= 7;
            entry.fence = entry.fence.map(|fence| -fence);
        }
        story
    };
    let times = growth(40_000, wrong, false);
    assert!(times < 4.7, "{times}");
}
