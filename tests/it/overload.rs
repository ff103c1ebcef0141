//! More than the shop can carry: who can't be served in time is told so at once, and the others
//! are served.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast::shop::idempotency::{Claim, ORDERS_PATH, Stored};
use holdfast::shop::{Key, UserId};
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

/// On one thread: all have asked before the first look begins.
#[tokio::test]
async fn of_thousands_who_are_refused_at_once_whoever_is_finished_has_the_answer() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let finished = fresh_key();
    let order = || keyed(&shop, &alice, 0, &finished, &sku, 1).send();
    let placed = body(order().await.unwrap(), StatusCode::CREATED).await;
    let (user, fingerprint): (_, Vec<u8>) =
        sqlx::query_as("select user_id, fingerprint from idempotency where key = $1")
            .bind(&finished)
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    let fingerprint: [u8; 32] = fingerprint.try_into().unwrap();
    let there = shop.in_this_process("batched");
    let claim =
        |key: Key| Claim { user: UserId(user), path: ORDERS_PATH.to_owned(), key, fingerprint };
    let asked = (0..4_000).map(|n| {
        let key = if n % 999 == 0 { Key::try_from(finished.clone()).unwrap() } else { Key::mint() };
        let (claim, there) = (claim(key), &there);
        async move { there.combiner.looks.look(there, &claim).await }
    });
    for (n, stored) in join_all(asked).await.into_iter().enumerate() {
        match stored {
            Some(Stored::Finished(answer)) if n % 999 == 0 => {
                let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(answer["id"], placed["id"]);
            }
            None if n % 999 != 0 => {}
            other => panic!("{n}: {other:?}"),
        }
    }
}
