//! More than the shop can carry: who can't be served in time is told so at once, and the others
//! are served.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::common::{Shop, body, problem, until};
use crate::figures::{figures, value};
use crate::queue::{Barrier, answer, fresh_key, is_replayed, keyed, send};

/// Two batches, which always fit: `ALWAYS` in `src/shop/combine/pace.rs`.
const ROOM: usize = 512;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_line_is_short_and_refuses_at_once() {
    let shop = Shop::start_with(1, &[("HOLDFAST_LOCK_TIMEOUT_MS", "7000")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(10_000).await;
    let order = |key: &str| keyed(&shop, &alice, 0, key, &sku, 1);
    let done = fresh_key();
    body(order(&done).send().await.unwrap(), StatusCode::CREATED).await;
    // One order takes so long that nobody behind it is served in time …
    let slow = send(order(&fresh_key()).header("Holdfast-Work-Ms", "1500"));
    shop.until_idle_behind("select price_cents").await;
    let behind = send(order(&fresh_key()));
    // … and then the lock is somebody else's.
    let mut barrier = Barrier::before_item(&shop, &sku).await;
    body(answer(slow).await, StatusCode::CREATED).await;
    let crowd: Vec<_> = (1..ROOM).map(|_| send(order(&fresh_key()))).collect();
    barrier.until_queued(ROOM).await;
    let key = fresh_key();
    let began = Instant::now();
    let refused = order(&key).send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(problem(refused, 503).await, "overloaded");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let told = figures(&shop, 0).await;
    assert_eq!(value(&told, "holdfast_line_full_total"), Some(1.0));
    // A finished key is looked up before it is refused.
    let replayed = order(&done).send().await.unwrap();
    assert!(is_replayed(&replayed) && replayed.status() == 201, "{replayed:?}");
    barrier.open().await;
    for sent in crowd.into_iter().chain([behind]) {
        body(answer(sent).await, StatusCode::CREATED).await;
    }
    until("the refused key succeeds", async || {
        order(&key).send().await.unwrap().status() == StatusCode::CREATED
    })
    .await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["sold"], &audit["ok"]), (&(ROOM + 3).into(), &true.into()));
}
