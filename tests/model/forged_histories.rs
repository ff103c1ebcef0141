//! Every kind of forged history violates the invariant that covers it.

use holdfast_checker::Invariant::*;
use holdfast_checker::*;
use holdfast_shop::OrderId;
use uuid::Uuid;

use crate::history::{CUP, History, TEA, USER, account, done, insufficient};

/// Requests of [`sample_history`], by their index in `seen`.
const FIRST: usize = 0;
const SECOND: usize = 1;
const UNKNOWN: usize = 2;
const REPLAY: usize = 3;
const BOTH: usize = 4;
const SOLD_OUT_CUP: usize = 5;
const REJECTED: usize = 6;
const SOLD_OUT_TEA: usize = 7;
const PAID: usize = 9;

/// A history with every kind of request and outcome.
fn sample_history() -> History {
    let mut history = History::new(&[(TEA, 10), (CUP, 2), (&account(), 10_000)]);
    history.place("first", &[(TEA, 3)], (100, 200));
    history.place("second", &[(TEA, 2)], (300, 400));
    // Its connection was lost; the retry was a replay.
    history.place("third", &[(TEA, 1)], (410, 420));
    history.again(UNKNOWN, (430, 440));
    history.seen[UNKNOWN].outcome = ObservedOutcome::Unknown;
    history.place("fourth", &[(CUP, 2), (TEA, 1)], (450, 500));
    history.place("fifth", &[(CUP, 1)], (450, 520));
    let one = ObservedOperation::Place(vec![(TEA.to_owned(), 1)]);
    history.observe("sixth", one, (530, 540), ObservedOutcome::Rejected);
    // Sent before a return, and answered after it.
    history.place("seventh", &[(TEA, 5)], (550, 700));
    history.return_order(SECOND);
    history.restock(TEA, 4);
    history.place("seventh", &[(TEA, 5)], (710, 720));
    history.pay(FIRST, (730, 740));
    history.pay(BOTH, (735, 750));
    history.return_order(BOTH);
    history.assert_found("unchanged", &[]);
    history
}

/// Forges the history, and asserts which invariants are violated.
#[track_caller]
fn caught(what: &str, rules: &[Invariant], forge: impl Fn(&mut History)) {
    let mut history = sample_history();
    forge(&mut history);
    history.assert_found(what, rules);
}

fn order_with_key(history: &mut History, key: &str) {
    let order = history.record_order(key, &[(TEA.to_owned(), 1)]);
    history.change(TEA, -1, "order", Some(order), Uuid::from_u128(99));
}

#[test]
fn forged_entries_are_caught() {
    caught("dropped", &[Lost, Break, Sum], |history| history.drop_entry(FIRST, TEA));
    caught("doubled", &[Twice, Break, Fork, Sum], |history| {
        let entry = history.entry(FIRST, TEA).clone();
        history.recorded.entries.push(entry);
    });
    caught("versions swapped", &[Break, Fence, RealTime], |history| {
        let version = history.entry(FIRST, TEA).version;
        history.entry(FIRST, TEA).version = history.entry(SECOND, TEA).version;
        history.entry(SECOND, TEA).version = version;
    });
    caught("a version read twice", &[Fork], |history| {
        history.entry(SECOND, TEA).version = history.entry(FIRST, TEA).version;
    });
    caught("before and after", &[Differs, Break], |history| {
        history.entry(FIRST, TEA).before += 1;
        history.entry(FIRST, TEA).after += 1;
    });
    caught("before alone", &[Differs, Break], |history| history.entry(FIRST, TEA).before += 1);
    caught("delta", &[Differs, Break, Sum], |history| {
        history.entry(FIRST, TEA).delta -= 1;
        history.entry(FIRST, TEA).after -= 1;
    });
    caught("a lower fence", &[Fence], |history| history.entry(SECOND, TEA).fence = Some(1));
    caught("no fence proves nothing", &[], |history| history.entry(SECOND, TEA).fence = None);
    caught("the value", &[Sum], |history| *history.recorded.values.get_mut(TEA).unwrap() += 1);
    caught("a negative value", &[Sum, Negative], |history| {
        history.recorded.values.insert(CUP.to_owned(), -1);
    });
    caught("more sold than existed", &[Negative], |history| {
        history.restock(CUP, -3);
        history.restock(CUP, 3);
    });
    caught("an unknown item", &[Sum], |history| {
        let mut entry = history.entry(FIRST, TEA).clone();
        (entry.key, entry.order) = ("ghost".to_owned(), None);
        entry.reason = "restock".to_owned();
        history.recorded.entries.push(entry);
    });
    caught("an unknown order", &[Unmatched], |history| {
        history.change(TEA, -1, "order", Some(OrderId(Uuid::from_u128(99))), Uuid::nil());
    });
    caught("another item's entry for an order", &[Unmatched, RealTime], |history| {
        let order = Some(history.order_of(FIRST));
        history.change(CUP, -1, "order", order, Uuid::nil());
    });
    caught("an order without its entry", &[Unmatched], |history| {
        history.record_order("eighth", &[(CUP.to_owned(), 1)]);
    });
}

#[test]
fn forged_responses_are_caught() {
    caught("acknowledged, and nowhere", &[Lost], |history| {
        history.seen[REJECTED].outcome = done(OrderId(Uuid::from_u128(77)), vec![]);
    });
    caught("the order of another request", &[Lost], |history| {
        let other = history.order_of(SECOND);
        let changes = history.changes(FIRST).clone();
        history.seen[FIRST].outcome = done(other, changes);
    });
    caught("a replay with other values", &[Differs], |history| {
        history.changes(REPLAY)[0].after += 1
    });
    caught("other units than requested", &[Differs], |history| {
        history.seen[FIRST].operation = ObservedOperation::Place(vec![(TEA.to_owned(), 2)]);
    });
    caught("a line without its change", &[Differs], |history| drop(history.changes(BOTH).pop()));
    caught("the same item in two lines is summed", &[], |history| {
        let line = |units| (TEA.to_owned(), units);
        history.seen[FIRST].operation = ObservedOperation::Place(vec![line(1), line(2)]);
    });
    caught("rejected, and executed", &[Rejected], |history| order_with_key(history, "sixth"));
    caught("sold out, and executed", &[Rejected], |history| order_with_key(history, "fifth"));
    caught("executed by a rejected attempt, acknowledged by another", &[Rejected], |history| {
        let mut attempt = history.seen[REJECTED].clone();
        attempt.key = "first".to_owned();
        history.entry(FIRST, TEA).request = attempt.request.unwrap();
        history.seen.push(attempt);
    });
    caught("unknown, and not executed", &[], |history| {
        history.seen[REJECTED].outcome = ObservedOutcome::Unknown;
    });
    caught("unknown, and executed", &[], |history| {
        history.seen[REJECTED].outcome = ObservedOutcome::Unknown;
        order_with_key(history, "sixth");
    });
    caught("unknown, and executed twice", &[Twice], |history| {
        history.seen[REJECTED].outcome = ObservedOutcome::Unknown;
        order_with_key(history, "sixth");
        order_with_key(history, "sixth");
    });
    caught("two first responses", &[Twice], |history| {
        let changes = history.changes(REPLAY).clone();
        history.seen[REPLAY].outcome = done(history.order_of(REPLAY), changes);
        history.seen[UNKNOWN].outcome = history.seen[REPLAY].outcome.clone();
    });
    caught("a replay before the first response", &[RealTime], |history| {
        (history.seen[REPLAY].invoked_us, history.seen[REPLAY].completed_us) = (240, 250);
    });
}

#[test]
fn forged_payments_are_caught() {
    caught("marked as paid", &[Unmatched], |history| {
        history.order(REPLAY).status = "paid".to_owned()
    });
    caught("dropped", &[Lost, Break, Sum], |history| history.drop_entry(FIRST, &account()));
    caught("a refund dropped", &[Unmatched, Sum], |history| drop(history.recorded.entries.pop()));
    caught("of another order", &[Lost, Unmatched], |history| {
        history.entry(FIRST, &account()).order = Some(history.order_of(REPLAY));
    });
    caught("rejected", &[Rejected], |history| {
        history.seen[PAID].outcome = ObservedOutcome::Rejected
    });
    caught("other values", &[Differs], |history| history.changes(PAID)[0].after += 1);
    caught("insufficient funds, with enough money", &[SoldOut], |history| {
        let operation = ObservedOperation::Pay(history.order_of(REPLAY));
        history.observe("payment", operation, (800, 810), insufficient(&account(), 11_000, 500));
    });
}

#[test]
fn false_sold_out_is_caught() {
    let forge = |what: &str, place: usize, key: &str, requested: i64, available: i64| {
        caught(what, &[SoldOut], |history| {
            history.seen[place].outcome = insufficient(key, requested, available);
        });
    };
    forge("there was enough", SOLD_OUT_TEA, TEA, 1, 0);
    forge("by its own values there was enough", SOLD_OUT_TEA, TEA, 3, 3);
    forge("there were never that many", SOLD_OUT_TEA, TEA, 5, 4);
    forge("of an unknown item", SOLD_OUT_TEA, "ghost", 1, 0);
    // No request reads an item before its opening entry.
    forge("before the item existed", SOLD_OUT_CUP, CUP, 5, 4);
    caught("it was so later", &[SoldOut], |history| {
        (history.seen[SOLD_OUT_CUP].invoked_us, history.seen[SOLD_OUT_CUP].completed_us) =
            (210, 220);
    });
    caught("it was so earlier", &[SoldOut], |history| {
        history.seen[SOLD_OUT_TEA].outcome = insufficient(TEA, 11, 10);
    });
    caught("after its own key had its order", &[SoldOut], |history| {
        history.seen[SOLD_OUT_TEA].key = "fourth".to_owned();
        history.seen[SOLD_OUT_TEA].invoked_us = 450;
    });
}

/// All values of responses and ledger agree, but not with real time.
#[test]
fn ledger_against_real_time_is_caught() {
    let mut history = History::new(&[(TEA, 10)]);
    history.place("late", &[(TEA, 1)], (300, 400));
    history.place("slow", &[(TEA, 1)], (0, 1_000));
    history.place("early", &[(TEA, 1)], (100, 200));
    history.assert_found("not next to each other", &[RealTime]);

    let mut overlapping = history.clone();
    overlapping.seen[2].completed_us = 300;
    overlapping.assert_found("overlapping, either order is fine", &[]);
    history.seen[2].outcome = ObservedOutcome::Unknown;
    history.assert_found("an unknown outcome has no end", &[]);
}

#[test]
fn contradictory_chains_are_caught() {
    let mut history = History::new(&[(TEA, 9), (CUP, 9)]);
    history.place("one", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    history.place("two", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    history.assert_found("one order", &[]);
    let (one, two) = (history.entry(0, CUP).clone(), history.entry(1, CUP).clone());
    *history.entry(0, CUP) = RecordedEntry { order: one.order, ..two.clone() };
    let other = history.recorded.entries.iter_mut().rfind(|entry| entry.key == CUP).unwrap();
    *other = RecordedEntry { order: two.order, ..one };
    (history.changes(0)[1].before, history.changes(0)[1].after) = (8, 7);
    (history.changes(1)[1].before, history.changes(1)[1].after) = (9, 8);
    history.assert_found("one before two by tea, after it by cup", &[RealTime]);

    // The first has no item in common with the last, and precedes it by way of the middle one.
    let mut history = History::new(&[(TEA, 9), (CUP, 9)]);
    history.place("sent last", &[(TEA, 1)], (500, 600));
    history.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    history.place("sent first", &[(CUP, 1)], (100, 200));
    history.assert_found("real time across chains", &[RealTime]);

    let mut history = History::new(&[(TEA, 9), (CUP, 1)]);
    history.place("later", &[(TEA, 1)], (500, 600));
    history.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    history.place("sold out", &[(CUP, 1)], (100, 200));
    history.assert_found("sold out before the order that emptied it", &[SoldOut]);

    let mut history = History::new(&[(TEA, 9), (CUP, 1)]);
    history.place("one left", &[(CUP, 2)], (150, 200));
    history.place("slow", &[(TEA, 1), (CUP, 1)], (0, 1_000));
    history.place("earlier", &[(TEA, 1)], (50, 100));
    history.assert_found("one left after the order that took it", &[SoldOut]);
}

/// Each is possible alone: the order may have been executed before the first, or after the second.
#[test]
fn contradictory_rejections_are_caught() {
    let mut history = History::new(&[(TEA, 2)]);
    history.place("slow", &[(TEA, 1)], (0, 1_000));
    history.place("one left", &[(TEA, 2)], (100, 200));
    history.place("two left", &[(TEA, 3)], (300, 400));
    history.seen[2].outcome = insufficient(TEA, 3, 2);
    history.assert_found("two left after one left", &[SoldOut]);
    (history.seen[2].invoked_us, history.seen[1].completed_us) = (150, 250);
    history.assert_found("overlapping", &[]);
}

#[test]
fn response_is_parsed_by_its_guarantee() {
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
