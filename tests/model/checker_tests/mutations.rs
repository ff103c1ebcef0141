//! Every way to forge a history is caught, and by the rule that is there for it.

use std::collections::BTreeSet;

use super::Invariant::*;
use super::*;

const SKU: &str = "padlock";

/// A day of the shop with something of everything in it.
struct Day {
    story: Story,
    first: usize,
    second: usize,
    unknown: usize,
    replay: usize,
    both: usize,
    refused: usize,
    sold_out: usize,
    early_sold_out: usize,
    paid: usize,
}

fn day() -> Day {
    let mut story = Story::new(&[(SKU, 10), ("lantern", 2)]);
    story.account(1, 10_000);
    let first = story.place("first", &[(SKU, 3)], (100, 200));
    let second = story.place("second", &[(SKU, 2)], (300, 400));
    // Its connection broke; asked again, it was a replay.
    let unknown = story.place("third", &[(SKU, 1)], (410, 420));
    let replay = story.again(unknown, (430, 440));
    story.seen[unknown].outcome = ObservedOutcome::Unknown;
    let both = story.place("fourth", &[("lantern", 2), (SKU, 1)], (450, 500));
    let early_sold_out = story.place("fifth", &[("lantern", 1)], (450, 520));
    let refused = story.refused("sixth", SKU, (530, 540));
    // Asked for before somebody gave something back, and answered after.
    let sold_out = story.place("seventh", &[(SKU, 5)], (550, 700));
    story.take_back(second);
    story.change(SKU, 4, "restock", None, Uuid::nil());
    story.place("seventh", &[(SKU, 5)], (710, 720));
    let paid = story.pay(first, (730, 740));
    story.pay(both, (735, 750));
    story.take_back(both);
    story.assert_sound();
    Day { story, first, second, unknown, replay, both, refused, sold_out, early_sold_out, paid }
}

impl Day {
    /// The stock's entry of the order that a request placed.
    fn entry(&mut self, place: usize) -> &mut RecordedEntry {
        let at = self.at(place);
        &mut self.story.recorded.stock.entries[at]
    }

    fn at(&self, place: usize) -> usize {
        let order = Some(self.story.order_of(place));
        let entries = &self.story.recorded.stock.entries;
        entries.iter().position(|e| e.order == order && e.key == SKU).unwrap()
    }

    fn fresh_entry(&mut self, token: &str) {
        let order = OrderId(Uuid::from_u128(99));
        self.story.change(SKU, -1, "order", Some(order), Uuid::from_u128(99));
        self.story.recorded.orders.push(RecordedOrder {
            id: order,
            user: UserId(Uuid::from_u128(1)),
            token: token.to_owned(),
            status: "pending".to_owned(),
            total_cents: 100,
            lines: vec![(SKU.to_owned(), 1)],
        });
    }
}

/// Forges a day, and tells which rules see it.
#[track_caller]
fn caught(what: &str, rules: &[Invariant], forge: impl Fn(&mut Day)) {
    let mut day = day();
    forge(&mut day);
    let found = day.story.check();
    let by: BTreeSet<Invariant> = found.iter().map(|violation| violation.invariant).collect();
    let expected: BTreeSet<Invariant> = rules.iter().copied().collect();
    assert_eq!(by, expected, "{what}:\n{}", lines(&found));
}

#[test]
fn dropped_doubled_or_swapped_entries_are_caught() {
    caught("dropped", &[Lost, Break, Sum], |day| {
        let at = day.at(day.first);
        day.story.recorded.stock.entries.remove(at);
    });
    caught("dropped, and the shelf and the chain forged to match", &[Lost], |day| {
        let at = day.at(day.story.seen.len() - 3);
        let entry = day.story.recorded.stock.entries.remove(at);
        for later in &mut day.story.recorded.stock.entries[at..] {
            if later.key == SKU {
                later.before -= entry.delta;
                later.after -= entry.delta;
            }
        }
        day.story.recorded.stock.values.get_mut(SKU).unwrap().now -= entry.delta;
    });
    caught("doubled", &[Twice, Break, Fork, Sum], |day| {
        let entry = day.entry(day.first).clone();
        day.story.recorded.stock.entries.push(entry);
    });
    let again = [Twice, Fork, Break, Sum];
    caught("doubled under a new number", &again, |day| {
        let mut entry = day.entry(day.first).clone();
        entry.seq = 1_000_000;
        entry.fence = None;
        day.story.recorded.stock.entries.push(entry);
    });

    caught("a cancel doubled", &[Fork, Break, Sum], |day| {
        let entries = &mut day.story.recorded.stock.entries;
        let entry = entries.iter().find(|entry| entry.reason == "cancel").unwrap().clone();
        entries.push(entry);
    });
    // The copy also follows entries of later requests and changes the stock that a sold-out
    // response reported.
    let later = [Twice, Break, Sum, RealTime, SoldOut];
    caught("doubled under a new version", &later, |day| {
        let mut entry = day.entry(day.first).clone();
        (entry.seq, entry.version, entry.fence) = (1_000_000, 1_000_000, None);
        day.story.recorded.stock.entries.push(entry);
    });
    caught("swapped", &[Break, Fence, RealTime], |day| {
        let (first, second) = (day.entry(day.first).version, day.entry(day.second).version);
        day.entry(day.first).version = second;
        day.entry(day.second).version = first;
    });
    caught("numbered in another order than versions", &[], |day| {
        for entry in &mut day.story.recorded.stock.entries {
            entry.seq = -entry.seq;
        }
    });
}

#[test]
fn forged_entry_values_are_caught() {
    caught("before", &[Differs, Break], |day| day.entry(day.first).before += 1);
    caught("after", &[Differs, Break], |day| day.entry(day.first).after -= 1);
    caught("before and after", &[Differs, Break], |day| {
        day.entry(day.first).before += 1;
        day.entry(day.first).after += 1;
    });
    caught("delta", &[Differs, Break, Sum], |day| {
        day.entry(day.first).delta -= 1;
        day.entry(day.first).after -= 1;
    });
    caught("the shelf", &[Sum], |day| {
        day.story.recorded.stock.values.get_mut(SKU).unwrap().now += 1;
    });
    caught("the shelf, below zero", &[Sum, Negative], |day| {
        day.story.recorded.stock.values.get_mut("lantern").unwrap().now = -1;
    });
    caught("the opening", &[Sum, Break], |day| {
        day.story.recorded.stock.values.get_mut(SKU).unwrap().opening = 1;
    });
    caught("two reads of one version", &[Fork], |day| {
        day.entry(day.second).version = day.entry(day.first).version;
    });
    caught("a fence that is back-dated", &[Fence], |day| {
        day.entry(day.second).fence = Some(1);
    });
    caught("an entry without a fence proves nothing about fences", &[], |day| {
        day.entry(day.second).fence = None;
    });
    caught("more sold than there was", &[Negative], |day| {
        day.story.change("lantern", -3, "restock", None, Uuid::nil());
        day.story.change("lantern", 3, "restock", None, Uuid::nil());
    });
    caught("an item that is not there", &[Sum], |day| {
        let mut entry = day.entry(day.first).clone();
        (entry.key, entry.order, entry.reason) = ("ghost".to_owned(), None, "restock".to_owned());
        day.story.recorded.stock.entries.push(entry);
    });
    caught("an order that is not there", &[Unmatched], |day| {
        day.story.change(SKU, -1, "order", Some(OrderId(Uuid::from_u128(99))), Uuid::nil());
    });
    let stray = [Unmatched, RealTime, SoldOut];
    caught("another item's entry for an order", &stray, |day| {
        let order = Some(day.story.order_of(day.first));
        day.story.change("lantern", -1, "order", order, Uuid::nil());
    });
}

#[test]
fn ledger_against_real_time_is_caught() {
    // Answers and ledger agree to the last number; only the clock does not.
    let mut story = Story::new(&[(SKU, 10)]);
    story.place("late", &[(SKU, 1)], (300, 400));
    story.place("early", &[(SKU, 1)], (100, 200));
    let found = story.check();
    assert_eq!(found.len(), 1, "{}", lines(&found));
    assert_eq!((found[0].invariant, &found[0].requests[..]), (RealTime, &[0, 1][..]));
    // Overlapping, either order is fine.
    story.seen[1].completed_us = 300;
    story.assert_sound();
    // Not next to each other.
    let mut story = Story::new(&[(SKU, 10)]);
    story.place("late", &[(SKU, 1)], (300, 400));
    story.place("slow", &[(SKU, 1)], (0, 1_000));
    story.place("early", &[(SKU, 1)], (100, 200));
    assert_eq!(violated(&story), [RealTime]);
    // Whoever did it after its client had gone has no end.
    story.seen[2].outcome = ObservedOutcome::Unknown;
    story.assert_sound();
}

#[test]
fn doubled_entry_does_not_precede_itself() {
    let mut story = Story::new(&[(SKU, 9)]);
    story.place("one", &[(SKU, 1)], (0, 1_000));
    story.place("two", &[(SKU, 1)], (0, 1_000));
    let entry = RecordedEntry { seq: 100, ..story.recorded.stock.entries[1].clone() };
    story.recorded.stock.entries.push(entry);
    assert!(story.check().iter().all(|violation| violation.invariant != RealTime));
}

/// Each chain is in order for itself; what lies between them is not.
#[test]
fn contradictory_order_of_two_ledgers_is_caught() {
    {
        let mut story = Story::new(&[(SKU, 9), ("lantern", 9)]);
        story.place("one", &[(SKU, 1), ("lantern", 1)], (0, 1_000));
        story.place("two", &[(SKU, 1), ("lantern", 1)], (0, 1_000));
        story.assert_sound();
        // The lantern's two entries change places, with everything that belongs to a place.
        let entries = &mut story.recorded.stock.entries;
        let lanterns: Vec<usize> =
            (0..entries.len()).filter(|at| entries[*at].key == "lantern").skip(1).collect();
        let (a, b) = (entries[lanterns[0]].clone(), entries[lanterns[1]].clone());
        (entries[lanterns[0]].order, entries[lanterns[1]].order) = (b.order, a.order);
        for (place, entry) in [(0, b), (1, a)] {
            if let ObservedOutcome::Done { changes, .. } = &mut story.seen[place].outcome {
                changes[1].before = entry.before;
                changes[1].after = entry.after;
            }
        }
        let found = story.check();
        assert_eq!(found.len(), 1, "{}", lines(&found));
        assert_eq!(found[0].invariant, RealTime);
        assert_eq!(found[0].entries.len(), 2, "{}", lines(&found));
    }

    // The first has no item in common with the last, and comes after it by way of the middle one.
    let mut story = Story::new(&[(SKU, 9), ("lantern", 9)]);
    story.place("last asked", &[(SKU, 1)], (500, 600));
    story.place("slow", &[(SKU, 1), ("lantern", 1)], (0, 1_000));
    story.place("first asked", &[("lantern", 1)], (100, 200));
    let found = story.check();
    assert_eq!(found.len(), 1, "{}", lines(&found));
    assert_eq!((found[0].invariant, &found[0].requests[..]), (RealTime, &[0, 2][..]));
    story.seen[2].completed_us = 500;
    story.assert_sound();

    // What was sold out was so only after an order that, by another chain, came later.
    let mut story = Story::new(&[(SKU, 9), ("lantern", 1)]);
    story.place("later", &[(SKU, 1)], (500, 600));
    story.place("slow", &[(SKU, 1), ("lantern", 1)], (0, 1_000));
    story.place("sold out", &[("lantern", 1)], (100, 200));
    assert_eq!(violated(&story), [SoldOut]);
    story.seen[2].completed_us = 500;
    story.assert_sound();

    // And the other way: one that by another chain had come earlier.
    let mut story = Story::new(&[(SKU, 9), ("lantern", 1)]);
    story.place("one left", &[("lantern", 2)], (150, 200));
    story.place("slow", &[(SKU, 1), ("lantern", 1)], (0, 1_000));
    story.place("earlier", &[(SKU, 1)], (50, 100));
    assert_eq!(violated(&story), [SoldOut]);
    story.seen[0].invoked_us = 100;
    story.assert_sound();
}

#[test]
fn forged_responses_are_caught() {
    caught("acknowledged, and nowhere", &[Lost], |day| {
        day.story.seen[day.refused].outcome = ObservedOutcome::Done {
            order: OrderId(Uuid::from_u128(77)),
            changes: vec![ObservedChange { key: SKU.to_owned(), before: 5, delta: -1, after: 4 }],
            replayed: false,
        };
    });
    caught("another's order", &[Lost], |day| {
        let other = day.story.order_of(day.second);
        if let ObservedOutcome::Done { order, .. } = &mut day.story.seen[day.first].outcome {
            *order = other;
        }
    });
    caught("a replay with other values", &[Differs], |day| {
        if let ObservedOutcome::Done { changes, .. } = &mut day.story.seen[day.replay].outcome {
            changes[0].before += 1;
            changes[0].after += 1;
        }
    });
    caught("more than was asked for", &[Differs], |day| {
        day.story.seen[day.first].operation = ObservedOperation::Place(vec![(SKU.to_owned(), 2)]);
    });
    caught("a line that is not answered", &[Differs], |day| {
        if let ObservedOutcome::Done { changes, .. } = &mut day.story.seen[day.both].outcome {
            changes.pop();
        }
    });
    caught("the same line twice is summed", &[], |day| {
        let line = |many| (SKU.to_owned(), many);
        day.story.seen[day.first].operation = ObservedOperation::Place(vec![line(1), line(2)]);
    });
    caught("refused, and done", &[Rejected], |day| day.fresh_entry("sixth"));
    caught("refused by one attempt that did it, answered by another", &[Rejected], |day| {
        let mut attempt = day.story.seen[day.refused].clone();
        attempt.key = "first".to_owned();
        day.entry(day.first).request = attempt.request.unwrap();
        day.story.seen.push(attempt);
    });
    caught("sold out, and done", &[Rejected], |day| day.fresh_entry("fifth"));
    caught("unknown, and not done", &[], |day| {
        day.story.seen[day.refused].outcome = ObservedOutcome::Unknown;
    });
    caught("unknown, and done", &[], |day| {
        day.story.seen[day.refused].outcome = ObservedOutcome::Unknown;
        day.fresh_entry("sixth");
    });
    caught("unknown, and done twice", &[Twice], |day| {
        day.story.seen[day.refused].outcome = ObservedOutcome::Unknown;
        day.fresh_entry("sixth");
        let order = day.story.recorded.orders.last().unwrap().clone();
        day.story.recorded.orders.push(RecordedOrder { id: OrderId(Uuid::from_u128(98)), ..order });
        let order = Some(OrderId(Uuid::from_u128(98)));
        day.story.change(SKU, -1, "order", order, Uuid::nil());
    });
    caught("a token that did its work twice", &[Twice], |day| {
        day.story.seen[day.unknown].outcome = day.story.seen[day.replay].outcome.clone();
        for place in [day.unknown, day.replay] {
            if let ObservedOutcome::Done { replayed, .. } = &mut day.story.seen[place].outcome {
                *replayed = false;
            }
        }
    });
    caught("a replay older than what it replays", &[RealTime], |day| {
        day.story.seen[day.replay].completed_us = 250;
        day.story.seen[day.replay].invoked_us = 240;
    });
}

#[test]
fn false_sold_out_is_caught() {
    let short = |day: &mut Day, place: usize, many: i64, there: i64| {
        day.story.seen[place].outcome = insufficient(SKU, many, there);
    };
    caught("there was enough all along", &[SoldOut], |day| {
        short(day, day.sold_out, 1, 0);
    });
    caught("by its own words there was enough", &[SoldOut], |day| {
        short(day, day.sold_out, 3, 3);
    });
    caught("there never were as many as it says", &[SoldOut], |day| {
        short(day, day.sold_out, 5, 4);
    });
    caught("it was so before", &[SoldOut], |day| {
        (
            day.story.seen[day.early_sold_out].invoked_us,
            day.story.seen[day.early_sold_out].completed_us,
        ) = (210, 220);
    });
    caught("it was so later", &[SoldOut], |day| {
        // Three are there only after the fourth order, which was asked for at 450.
        short(day, day.early_sold_out, 5, 3);
        day.story.seen[day.early_sold_out].completed_us = 449;
        day.story.seen[day.early_sold_out].invoked_us = 445;
    });
    caught("of something that is not there", &[SoldOut], |day| {
        let outcome = &mut day.story.seen[day.sold_out].outcome;
        *outcome = insufficient("ghost", 1, 0);
    });
    caught("after its own key had its order", &[SoldOut], |day| {
        day.story.seen[day.sold_out].key = "fourth".to_owned();
        day.story.seen[day.sold_out].invoked_us = 450;
    });
}

#[test]
fn sold_out_before_item_existed_is_caught() {
    let mut story = Story::new(&[(SKU, 5)]);
    story.place("first", &[(SKU, 6)], (0, 10));
    story.assert_sound();
    let none = insufficient(SKU, 6, 0);
    story.seen[0].outcome = none;
    assert_eq!(story.check()[0].invariant, SoldOut);
}

/// Each of the two was right for itself: the order may have happened before the first, and after
/// the second. Together they can't be.
#[test]
fn contradictory_rejections_are_caught() {
    let mut story = Story::new(&[(SKU, 2)]);
    story.place("slow", &[(SKU, 1)], (0, 1_000));
    story.place("one left", &[(SKU, 2)], (100, 200));
    story.place("two left", &[(SKU, 3)], (300, 400));
    let two = insufficient(SKU, 3, 2);
    story.seen[2].outcome = two;
    let found = story.check();
    assert_eq!(found.len(), 1, "{}", lines(&found));
    assert_eq!((found[0].invariant, &found[0].requests[..]), (SoldOut, &[2, 1][..]));
    (story.seen[2].invoked_us, story.seen[1].completed_us) = (150, 250);
    story.assert_sound();
}

#[test]
fn forged_money_is_caught() {
    let money = |day: &mut Day, forge: &dyn Fn(&mut Vec<RecordedEntry>)| {
        forge(&mut day.story.recorded.money.as_mut().unwrap().entries);
    };
    caught("an order marked as paid", &[Unmatched, Money], |day| {
        let id = day.story.order_of(day.replay);
        let order = day.story.recorded.orders.iter_mut().find(|order| order.id == id).unwrap();
        order.status = "paid".to_owned();
    });
    caught("a payment dropped", &[Lost, Break, Sum], |day| {
        money(day, &|entries| drop(entries.remove(1)));
    });
    caught("a refund dropped", &[Unmatched, Sum], |day| {
        money(day, &|entries| drop(entries.pop()));
    });
    caught("a payment of another order", &[Lost, Unmatched], |day| {
        let other = day.story.order_of(day.replay);
        money(day, &|entries| entries[1].order = Some(other));
    });
    caught("money from nowhere", &[Sum, Money], |day| {
        for value in day.story.recorded.money.as_mut().unwrap().values.values_mut() {
            value.now += 5;
        }
    });
    caught("a payment that was refused", &[Rejected], |day| {
        day.story.seen[day.paid].outcome = ObservedOutcome::Rejected;
    });
    caught("a payment answered with other values", &[Differs], |day| {
        if let ObservedOutcome::Done { changes, .. } = &mut day.story.seen[day.paid].outcome {
            changes[0].after += 1;
        }
    });
    caught("insufficient funds, with enough there", &[SoldOut], |day| {
        let user = UserId(Uuid::from_u128(1));
        let outcome = insufficient(&user.0.to_string(), 11_000, 500);
        let asked = ObservedOperation::Pay(day.story.order_of(day.replay));
        day.story.observe("another payment", asked, (800, 810), outcome);
    });
}
