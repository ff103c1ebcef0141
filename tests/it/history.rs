//! The history checker on real runs: compares the responses of replicas with the ledger.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast_checker::{self as checker, Invariant, ObservedOutcome, ObservedRequest};
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::{Call, TestShop};
use uuid::Uuid;

const ORDERS: usize = 300;
const CONCURRENT_CLIENTS: usize = 32;

/// One customer: an order, in some cases with a short timeout and a retry, a payment, or a
/// cancellation.
async fn journey(observer: &RequestRecorder<'_>, n: usize, hot: &str, other: &str) {
    let key = Uuid::new_v4().to_string();
    let many = 1 + i64::try_from(n % 3).unwrap();
    let lines: &[(&str, i64)] =
        if n.is_multiple_of(4) { &[(hot, many), (other, 1)] } else { &[(hot, many)] };
    let mut outcome = ObservedOutcome::Unknown;
    if n.is_multiple_of(6) {
        let timeout = Duration::from_millis(1 + n as u64 % 25);
        outcome = observer.place(n, &key, lines, |it| it, Some(timeout)).await;
    }
    // A client without a response retries at the other replica, with the same key.
    if outcome == ObservedOutcome::Unknown {
        outcome = observer.place(n + 3, &key, lines, |it| it, None).await;
    }
    // Some clients retry although they have a response.
    if n < 30 || n.is_multiple_of(10) {
        observer.place(n, &key, lines, |it| it, None).await;
    }
    let ObservedOutcome::Done { order, .. } = outcome else { return };
    match n % 5 {
        0 => observer.act_unobserved(n, order, "cancel").await,
        1 => {
            observer.pay(n, order).await;
            observer.act_unobserved(n, order, "refund").await;
        }
        2 => drop(observer.pay(n, order).await),
        _ => {}
    }
}

async fn run(strategy: &str) {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", strategy)]).await;
    let hot = shop.shop_item(80, 100).await;
    let other = shop.shop_item(25, 100).await;
    let observer = RequestRecorder::of(&shop).await;
    let journeys = stream::iter(0..ORDERS)
        .for_each_concurrent(CONCURRENT_CLIENTS, |n| journey(&observer, n, &hot, &other));
    // Not observed: the checker accepts them by the ledger.
    let admin = shop.sign_in("admin").await;
    let restocks = async {
        let mut restocked = 0;
        for _ in 0..5 {
            // On a busy machine it waits for the row longer than a statement may take. Then it is
            // refused, and nothing may have changed.
            let reply = admin.restocks(&hot, 1).await;
            let is_done = reply.status == 200;
            assert!(is_done || reply.outcome() == (503, "overloaded"), "{reply}");
            restocked += usize::from(is_done);
        }
        restocked
    };
    let ((), restocked) = futures_util::join!(journeys, restocks);

    let (recorded, seen) = observer.history(&[&hot, &other]).await;
    let found = checker::check(&recorded, &seen);
    assert!(found.is_empty(), "{strategy}: {found:#?}");
    let entries = recorded.entries.iter().filter(|entry| entry.reason == "restock");
    assert_eq!(entries.count(), restocked, "{strategy}");

    let count =
        |fits: fn(&ObservedOutcome) -> bool| seen.iter().filter(|o| fits(&o.outcome)).count();
    let fresh = count(|o| matches!(o, ObservedOutcome::Done { replayed: false, .. }));
    let replayed = count(|o| matches!(o, ObservedOutcome::Done { replayed: true, .. }));
    let short = count(|o| matches!(o, ObservedOutcome::Insufficient { .. }));
    let unknown = count(|o| *o == ObservedOutcome::Unknown);
    let enough = fresh > 40 && replayed > 3 && short > 40 && unknown > 0;
    assert!(enough, "{fresh} done, {replayed} replayed, {short} short, {unknown} unknown");
    assert_every_response_counts(&recorded, &seen);
}

/// Asserts that the checker detects every change of a response or an entry.
fn assert_every_response_counts(recorded: &checker::RecordedState, seen: &[ObservedRequest]) {
    let mut forged = recorded.clone();
    let order = forged.entries.iter().rposition(|entry| entry.reason == "order").unwrap();
    forged.entries.remove(order);
    assert!(!checker::check(&forged, seen).is_empty(), "an entry was dropped");
    for (place, observation) in seen.iter().enumerate() {
        let mut forged = seen.to_vec();
        match &observation.outcome {
            ObservedOutcome::Done { .. } => forged[place].outcome = ObservedOutcome::Rejected,
            ObservedOutcome::Insufficient { key, requested, available } => {
                let (key, available) = (key.clone(), available + 1_000);
                let requested = requested + 1_000;
                forged[place].outcome = ObservedOutcome::Insufficient { key, requested, available };
            }
            ObservedOutcome::Rejected | ObservedOutcome::Unknown => continue,
        }
        // A forged rejection is found if no other client observed the order.
        let others = seen.iter().filter(|other| {
            other.key == observation.key && other.invoked_us != observation.invoked_us
        });
        if others.count() == 0 {
            let found = checker::check(recorded, &forged);
            assert!(!found.is_empty(), "forged: {observation:?}");
        }
    }
}

#[tokio::test]
async fn fenced_ledger_matches_responses() {
    run("fenced").await;
}

#[tokio::test]
async fn row_lock_ledger_matches_responses() {
    run("row-lock").await;
}

#[tokio::test]
async fn atomic_ledger_matches_responses() {
    run("atomic").await;
}

#[tokio::test]
async fn history_without_lock_has_violations() {
    let shop = TestShop::start(2).await;
    let sku = shop.lab_item(20).await;
    let observer = RequestRecorder::of(&shop).await;
    let broken = |request: Call| request.lock("none").work_ms(20);
    let orders = (0..60).map(|n| {
        let (observer, sku) = (&observer, sku.as_str());
        async move {
            let key = Uuid::new_v4().to_string();
            observer.place(n, &key, &[(sku, 1)], broken, None).await
        }
    });
    futures_util::future::join_all(orders).await;
    let (recorded, seen) = observer.history(&[&sku]).await;
    let found = checker::check(&recorded, &seen);
    let rules: BTreeSet<Invariant> = found.iter().map(|violation| violation.invariant).collect();
    for rule in [Invariant::Fork, Invariant::Break, Invariant::Sum, Invariant::Negative] {
        assert!(rules.contains(&rule), "{rule:?} is not among {found:#?}");
    }
    // The responses match the writes nevertheless: the ledger is wrong, not the responses.
    assert!(
        !rules.contains(&Invariant::Lost) && !rules.contains(&Invariant::Differs),
        "{found:#?}"
    );
}
