//! Every way to forge a history is caught by the rule that is there for it.

use holdfast::shop::OrderId;
use uuid::Uuid;

use crate::checker::Invariant::*;
use crate::checker::*;
use crate::story::{CUP, Story, TEA, USER, account, done, insufficient};

/// Requests of [`day`], by their place in `seen`.
const FIRST: usize = 0;
const SECOND: usize = 1;
const UNKNOWN: usize = 2;
const REPLAY: usize = 3;
const BOTH: usize = 4;
const SOLD_OUT_CUP: usize = 5;
const REFUSED: usize = 6;
const SOLD_OUT_TEA: usize = 7;
const PAID: usize = 9;

/// A day of the shop with something of everything in it.
fn day() -> Story {
    let mut day = Story::new(&[(TEA, 10), (CUP, 2), (&account(), 10_000)]);
    day.place("first", &[(TEA, 3)], (100, 200));
    day.place("second", &[(TEA, 2)], (300, 400));
    // Its connection broke; asked again, it was a replay.
    day.place("third", &[(TEA, 1)], (410, 420));
    day.again(UNKNOWN, (430, 440));
    day.seen[UNKNOWN].outcome = ObservedOutcome::Unknown;
    day.place("fourth", &[(CUP, 2), (TEA, 1)], (450, 500));
    day.place("fifth", &[(CUP, 1)], (450, 520));
    let one = ObservedOperation::Place(vec![(TEA.to_owned(), 1)]);
    day.observe("sixth", one, (530, 540), ObservedOutcome::Rejected);
    // Asked for before somebody gave something back, and answered after.
    day.place("seventh", &[(TEA, 5)], (550, 700));
    day.take_back(SECOND);
    day.restock(TEA, 4);
    day.place("seventh", &[(TEA, 5)], (710, 720));
    day.pay(FIRST, (730, 740));
    day.pay(BOTH, (735, 750));
    day.take_back(BOTH);
    day.assert_found("as it was", &[]);
    day
}

/// Forges a day, and tells which rules see it.
#[track_caller]
fn caught(what: &str, rules: &[Invariant], forge: impl Fn(&mut Story)) {
    let mut day = day();
    forge(&mut day);
    day.assert_found(what, rules);
}

fn order_with_key(day: &mut Story, key: &str) {
    let order = day.record_order(key, &[(TEA.to_owned(), 1)]);
    day.change(TEA, -1, "order", Some(order), Uuid::from_u128(99));
}

#[test]
fn forged_entries_are_caught() {
    caught("dropped", &[Lost, Break, Sum], |day| day.drop_entry(FIRST, TEA));
    caught("doubled", &[Twice, Break, Fork, Sum], |day| {
        let entry = day.entry(FIRST, TEA).clone();
        day.recorded.entries.push(entry);
    });
    caught("versions swapped", &[Break, Fence, RealTime], |day| {
        let version = day.entry(FIRST, TEA).version;
        day.entry(FIRST, TEA).version = day.entry(SECOND, TEA).version;
        day.entry(SECOND, TEA).version = version;
    });
    caught("a version read twice", &[Fork], |day| {
        day.entry(SECOND, TEA).version = day.entry(FIRST, TEA).version;
    });
    caught("before and after", &[Differs, Break], |day| {
        day.entry(FIRST, TEA).before += 1;
        day.entry(FIRST, TEA).after += 1;
    });
    caught("before alone", &[Differs, Break], |day| day.entry(FIRST, TEA).before += 1);
    caught("delta", &[Differs, Break, Sum], |day| {
        day.entry(FIRST, TEA).delta -= 1;
        day.entry(FIRST, TEA).after -= 1;
    });
    caught("a lower fence", &[Fence], |day| day.entry(SECOND, TEA).fence = Some(1));
    caught("no fence proves nothing", &[], |day| day.entry(SECOND, TEA).fence = None);
    caught("the value", &[Sum], |day| *day.recorded.values.get_mut(TEA).unwrap() += 1);
    caught("a negative value", &[Sum, Negative], |day| {
        day.recorded.values.insert(CUP.to_owned(), -1);
    });
    caught("more sold than there was", &[Negative], |day| {
        day.restock(CUP, -3);
        day.restock(CUP, 3);
    });
    caught("an unknown item", &[Sum], |day| {
        let mut entry = day.entry(FIRST, TEA).clone();
        (entry.key, entry.order) = ("ghost".to_owned(), None);
        entry.reason = "restock".to_owned();
        day.recorded.entries.push(entry);
    });
    caught("an unknown order", &[Unmatched], |day| {
        day.change(TEA, -1, "order", Some(OrderId(Uuid::from_u128(99))), Uuid::nil());
    });
    caught("another item's entry for an order", &[Unmatched, RealTime], |day| {
        let order = Some(day.order_of(FIRST));
        day.change(CUP, -1, "order", order, Uuid::nil());
    });
    caught("an order without its entry", &[Unmatched], |day| {
        day.record_order("eighth", &[(CUP.to_owned(), 1)]);
    });
}

#[test]
fn forged_responses_are_caught() {
    caught("acknowledged, and nowhere", &[Lost], |day| {
        day.seen[REFUSED].outcome = done(OrderId(Uuid::from_u128(77)), vec![]);
    });
    caught("another's order", &[Lost], |day| {
        let other = day.order_of(SECOND);
        let changes = day.changes(FIRST).clone();
        day.seen[FIRST].outcome = done(other, changes);
    });
    caught("a replay with other values", &[Differs], |day| day.changes(REPLAY)[0].after += 1);
    caught("other units than requested", &[Differs], |day| {
        day.seen[FIRST].operation = ObservedOperation::Place(vec![(TEA.to_owned(), 2)]);
    });
    caught("a line without its change", &[Differs], |day| drop(day.changes(BOTH).pop()));
    caught("the same item in two lines is summed", &[], |day| {
        let line = |units| (TEA.to_owned(), units);
        day.seen[FIRST].operation = ObservedOperation::Place(vec![line(1), line(2)]);
    });
    caught("rejected, and done", &[Rejected], |day| order_with_key(day, "sixth"));
    caught("sold out, and done", &[Rejected], |day| order_with_key(day, "fifth"));
    caught("done by a rejected attempt, answered by another", &[Rejected], |day| {
        let mut attempt = day.seen[REFUSED].clone();
        attempt.key = "first".to_owned();
        day.entry(FIRST, TEA).request = attempt.request.unwrap();
        day.seen.push(attempt);
    });
    caught("unknown, and not done", &[], |day| {
        day.seen[REFUSED].outcome = ObservedOutcome::Unknown;
    });
    caught("unknown, and done", &[], |day| {
        day.seen[REFUSED].outcome = ObservedOutcome::Unknown;
        order_with_key(day, "sixth");
    });
    caught("unknown, and done twice", &[Twice], |day| {
        day.seen[REFUSED].outcome = ObservedOutcome::Unknown;
        order_with_key(day, "sixth");
        order_with_key(day, "sixth");
    });
    caught("two first responses", &[Twice], |day| {
        let changes = day.changes(REPLAY).clone();
        day.seen[REPLAY].outcome = done(day.order_of(REPLAY), changes);
        day.seen[UNKNOWN].outcome = day.seen[REPLAY].outcome.clone();
    });
    caught("a replay before what it replays", &[RealTime], |day| {
        (day.seen[REPLAY].invoked_us, day.seen[REPLAY].completed_us) = (240, 250);
    });
}

#[test]
fn forged_payments_are_caught() {
    caught("marked as paid", &[Unmatched], |day| day.order(REPLAY).status = "paid".to_owned());
    caught("dropped", &[Lost, Break, Sum], |day| day.drop_entry(FIRST, &account()));
    caught("a refund dropped", &[Unmatched, Sum], |day| drop(day.recorded.entries.pop()));
    caught("of another order", &[Lost, Unmatched], |day| {
        day.entry(FIRST, &account()).order = Some(day.order_of(REPLAY));
    });
    caught("rejected", &[Rejected], |day| day.seen[PAID].outcome = ObservedOutcome::Rejected);
    caught("other values", &[Differs], |day| day.changes(PAID)[0].after += 1);
    caught("insufficient funds, with enough there", &[SoldOut], |day| {
        let asked = ObservedOperation::Pay(day.order_of(REPLAY));
        day.observe("payment", asked, (800, 810), insufficient(&account(), 11_000, 500));
    });
}

#[test]
fn false_sold_out_is_caught() {
    let forge = |what: &str, place: usize, key: &str, requested: i64, available: i64| {
        caught(what, &[SoldOut], |day| {
            day.seen[place].outcome = insufficient(key, requested, available);
        });
    };
    forge("there was enough", SOLD_OUT_TEA, TEA, 1, 0);
    forge("by its own words there was enough", SOLD_OUT_TEA, TEA, 3, 3);
    forge("there never were that many", SOLD_OUT_TEA, TEA, 5, 4);
    forge("of an unknown item", SOLD_OUT_TEA, "ghost", 1, 0);
    // Nobody sees an item before its opening entry.
    forge("before the item existed", SOLD_OUT_CUP, CUP, 5, 4);
    caught("it was so later", &[SoldOut], |day| {
        (day.seen[SOLD_OUT_CUP].invoked_us, day.seen[SOLD_OUT_CUP].completed_us) = (210, 220);
    });
    caught("it was so earlier", &[SoldOut], |day| {
        day.seen[SOLD_OUT_TEA].outcome = insufficient(TEA, 11, 10);
    });
    caught("after its own key had its order", &[SoldOut], |day| {
        day.seen[SOLD_OUT_TEA].key = "fourth".to_owned();
        day.seen[SOLD_OUT_TEA].invoked_us = 450;
    });
}

/// Responses and ledger agree to the last number; only the clock does not.
#[test]
fn ledger_against_real_time_is_caught() {
    let mut story = Story::new(&[(TEA, 10)]);
    story.place("late", &[(TEA, 1)], (300, 400));
    story.place("slow", &[(TEA, 1)], (0, 1_000));
    story.place("early", &[(TEA, 1)], (100, 200));
    story.assert_found("not next to each other", &[RealTime]);

    let mut overlapping = story.clone();
    overlapping.seen[2].completed_us = 300;
    overlapping.assert_found("overlapping, either order is fine", &[]);
    story.seen[2].outcome = ObservedOutcome::Unknown;
    story.assert_found("what is unknown has no end", &[]);
}

#[test]
fn contradictory_chains_are_caught() {
    let mut story = Story::new(&[(TEA, 9), (CUP, 9)]);
    story.place("one", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    story.place("two", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    story.assert_found("one order", &[]);
    let (one, two) = (story.entry(0, CUP).clone(), story.entry(1, CUP).clone());
    *story.entry(0, CUP) = RecordedEntry { order: one.order, ..two.clone() };
    let other = story.recorded.entries.iter_mut().rfind(|entry| entry.key == CUP).unwrap();
    *other = RecordedEntry { order: two.order, ..one };
    (story.changes(0)[1].before, story.changes(0)[1].after) = (8, 7);
    (story.changes(1)[1].before, story.changes(1)[1].after) = (9, 8);
    story.assert_found("one before two by tea, after it by cup", &[RealTime]);

    // The first has no item in common with the last, and precedes it by way of the middle one.
    let mut story = Story::new(&[(TEA, 9), (CUP, 9)]);
    story.place("last asked", &[(TEA, 1)], (500, 600));
    story.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    story.place("first asked", &[(CUP, 1)], (100, 200));
    story.assert_found("real time across chains", &[RealTime]);

    let mut story = Story::new(&[(TEA, 9), (CUP, 1)]);
    story.place("later", &[(TEA, 1)], (500, 600));
    story.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    story.place("sold out", &[(CUP, 1)], (100, 200));
    story.assert_found("sold out before the order that emptied it", &[SoldOut]);

    let mut story = Story::new(&[(TEA, 9), (CUP, 1)]);
    story.place("one left", &[(CUP, 2)], (150, 200));
    story.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    story.place("earlier", &[(TEA, 1)], (50, 100));
    story.assert_found("one left after the order that took it", &[SoldOut]);
}

/// Each is right for itself: the order may have happened before the first, or after the second.
#[test]
fn contradictory_rejections_are_caught() {
    let mut story = Story::new(&[(TEA, 2)]);
    story.place("slow", &[(TEA, 1)], (0, 1_000));
    story.place("one left", &[(TEA, 2)], (100, 200));
    story.place("two left", &[(TEA, 3)], (300, 400));
    story.seen[2].outcome = insufficient(TEA, 3, 2);
    story.assert_found("two left after one left", &[SoldOut]);
    (story.seen[2].invoked_us, story.seen[1].completed_us) = (150, 250);
    story.assert_found("overlapping", &[]);
}

#[test]
fn response_is_parsed_for_what_it_promises() {
    let place = ObservedOperation::Place(vec![]);
    let parse =
        |status, body: &str| ObservedOutcome::parse(USER, &place, status, false, body.as_bytes());
    let sold_out = r#"{"type":"/problems/sold-out","sku":"tea","requested":2,"available":1}"#;
    assert_eq!(parse(409, sold_out), insufficient(TEA, 2, 1));
    for name in ["lock-busy", "lock-timeout", "lock-lost", "overloaded", "unavailable"] {
        let body = format!(r#"{{"type":"/problems/{name}"}}"#);
        assert_eq!(parse(503, &body), ObservedOutcome::Rejected, "{name}");
    }
    let unknown = r#"{"type":"/problems/unavailable","outcome":"unknown"}"#;
    assert_eq!(parse(503, unknown), ObservedOutcome::Unknown);
    assert_eq!(parse(500, r#"{"type":"/problems/internal-error"}"#), ObservedOutcome::Unknown);
    assert_eq!(parse(502, "<html>"), ObservedOutcome::Unknown);
    assert_eq!(parse(201, "cut o"), ObservedOutcome::Unknown);
}
