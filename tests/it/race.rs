//! Races over the API: real orders of throw-away buyers on two replicas, without signing in; a
//! holder that is paused, their limits, their queue, and what happens when a replica is stopped.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::purge::order_and;
use holdfast_lab::race::execute::RACE_TIMEOUT;
use holdfast_lab::race::runner::prune;
use holdfast_testkit::{BUSY_MACHINE, Call, TestShop, until};

fn race(shop: &TestShop, lock: &str, buyers: u32, stock: i64) -> Call {
    let race = json!({ "lock": lock, "buyers": buyers, "stock": stock });
    shop.anonymous().post("/api/race").json(&race)
}

async fn run(shop: &TestShop, lock: &str, buyers: u32, stock: i64) -> Value {
    race(shop, lock, buyers, stock).succeeds(200).await
}

/// Pauses the first of two buyers of one unit.
fn paused(shop: &TestShop, lock: &str) -> Call {
    let race = json!({ "lock": lock, "buyers": 2, "stock": 1, "pause": true });
    shop.anonymous().post("/api/race").json(&race)
}

/// Returns when that happened to a buyer.
fn time(race: &Value, buyer: usize, event: &str) -> u64 {
    let mut events = race["lanes"][buyer]["events"].as_array().unwrap().iter();
    let event = events.find(|it| it["event"] == event).unwrap_or_else(|| panic!("{event}: {race}"));
    event["t_us"].as_u64().unwrap()
}

fn values(race: &Value, event: &str) -> Vec<i64> {
    let lanes = race["lanes"].as_array().unwrap().iter();
    let events = lanes.flat_map(|lane| lane["events"].as_array().unwrap());
    let events = events.filter(|it| it["event"] == event);
    events.filter_map(|it| it["value"].as_i64()).collect()
}

fn results(race: &Value) -> Vec<&str> {
    let lanes = race["lanes"].as_array().unwrap().iter();
    lanes.map(|lane| lane["result"].as_str().unwrap()).collect()
}

fn figures(race: &Value) -> [i64; 3] {
    ["sold", "oversold", "forks"].map(|name| race[name].as_i64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_buyers_get_last_unit_without_lock() {
    let shop = TestShop::with_peers(&[]).await;
    for lock in ["none", "local"] {
        // Deterministic, so every repetition oversells.
        for _ in 0..5 {
            let race = run(&shop, lock, 2, 1).await;
            assert_eq!(race["state"], "done");
            assert_eq!(figures(&race), [2, 1, 1], "{race}");
            assert_eq!((values(&race, "read"), values(&race, "write")), (vec![1, 1], vec![0, 0]));
            assert_eq!(results(&race), ["sold", "sold"]);
            let replicas = [0, 1].map(|lane| race["lanes"][lane]["replica"].as_str().unwrap());
            assert_eq!(replicas, [shop.replicas[0].name(), shop.replicas[1].name()]);
        }
    }
    // The item's ledger is public, and the other replica knows the race.
    let race = run(&shop, "none", 2, 1).await;
    let sku = race["ledger"].as_str().unwrap().strip_prefix("/items/").unwrap().to_owned();
    let audit = shop.item_audit_at(1, &sku).await;
    assert_eq!((&audit["sold"], audit["forks"][0]["before"].as_i64()), (&json!(2), Some(1)));
    let path = format!("/api/race/{}", race["id"].as_str().unwrap());
    let other = shop.anonymous().at(1).get(&path).await;
    assert_eq!(other.succeeds(200), race);
    // It is a run, which the list of runs does not have.
    let path = format!("/api/lab/runs/{}", race["id"].as_str().unwrap());
    let run = shop.anonymous().at(1).get(&path).ok().await;
    assert_eq!((&run["arms"][0]["oversold"], &run["lanes"][1]["label"]), (&json!(1), &json!("B")));
    let list = shop.anonymous().get("/api/lab/runs").await;
    assert_eq!(list.succeeds(200)["items"], json!([]));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_lets_second_buyer_read_zero() {
    let shop = TestShop::with_peers(&[]).await;
    for lock in ["owner", "fenced", "row-lock"] {
        let race = run(&shop, lock, 2, 1).await;
        assert_eq!(figures(&race), [1, 0, 0], "{race}");
        assert_eq!(results(&race), ["sold", "sold-out"], "{race}");
        assert_eq!(values(&race, "read"), [1, 0], "{race}");
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_holder_oversells_without_fence() {
    let shop = TestShop::with_peers(&[]).await;
    for _ in 0..3 {
        let race = paused(&shop, "owner").succeeds(200).await;
        assert_eq!(figures(&race), [2, 1, 1], "{race}");
        assert_eq!((&race["pause"], values(&race, "expired")), (&json!(true), vec![300]));
        assert!(time(&race, 0, "expired") < time(&race, 1, "held"), "{race}");
        assert!(time(&race, 1, "write") < time(&race, 0, "write"), "{race}");

        let race = paused(&shop, "fenced").succeeds(200).await;
        assert_eq!(figures(&race), [1, 0, 0], "{race}");
        assert_eq!(results(&race), ["lock-lost", "sold"], "{race}");
        assert_eq!((values(&race, "expired"), values(&race, "refused")), (vec![300], vec![0]));
        assert!(time(&race, 0, "expired") < time(&race, 1, "held"), "{race}");
    }
    // The other replica knows it, too.
    let race = paused(&shop, "owner").succeeds(200).await;
    let path = format!("/api/race/{}", race["id"].as_str().unwrap());
    assert_eq!(shop.anonymous().at(1).get(&path).await.succeeds(200), race);
    shop.assert_sound().await;
}

/// Nothing runs out: without a lock A writes late as ever, and a lock without a lease lets B wait.
#[tokio::test(flavor = "multi_thread")]
async fn pause_needs_no_lease() {
    let shop = TestShop::with_peers(&[]).await;
    for (lock, expected) in [("none", [2, 1, 1]), ("local", [2, 1, 1]), ("row-lock", [1, 0, 0])] {
        let race = paused(&shop, lock).succeeds(200).await;
        assert_eq!(figures(&race), expected, "{race}");
        assert_eq!(race["lanes"][0]["result"], "sold", "{race}");
        assert!(values(&race, "expired").is_empty(), "{race}");
    }
}

/// Two have a pause at once. A third one is queued, and one without a pause waits for none of them.
#[tokio::test(flavor = "multi_thread")]
async fn third_pause_is_queued_alone() {
    let shop = TestShop::with_peers(&[]).await;
    run(&shop, "none", 2, 1).await;
    let three = (0..3).map(|_| paused(&shop, "owner").send());
    let without = async {
        until("a race is queued", async || {
            shop.number("select count(*) from lab_runs where state = 'queued'").await == 1
        })
        .await;
        race(&shop, "none", 2, 1).await
    };
    let (responses, without) = tokio::join!(futures_util::future::join_all(three), without);
    assert_eq!(without.succeeds(200)["sold"], 2);

    let (queued, done): (Vec<_>, Vec<_>) =
        responses.into_iter().partition(|response| response.status == 202);
    assert_eq!((queued.len(), done.len()), (1, 2));
    for response in done {
        assert_eq!(figures(&response.succeeds(200)), [2, 1, 1]);
    }
    for response in queued {
        let location = response.header("location").to_owned();
        assert_eq!(response.succeeds(202)["position"], 1);
        until("the queued race is done", async || {
            let race = shop.anonymous().get(&location).ok().await;
            race["state"] == "done" && figures(&race) == [2, 1, 1]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_buyers_oversell_only_without_lock() {
    let shop = TestShop::with_peers(&[]).await;
    let race = run(&shop, "none", 120, 50).await;
    assert_eq!(race["lanes"].as_array().unwrap().len(), 120);
    assert!(race["oversold"].as_i64().unwrap() > 0, "{}", race["sold"]);
    let race = run(&shop, "fenced", 40, 20).await;
    assert_eq!(figures(&race), [20, 0, 0], "{race}");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_works_with_single_replica() {
    let shop = TestShop::start(1).await;
    let race = run(&shop, "none", 2, 1).await;
    assert_eq!(figures(&race), [2, 1, 1], "{race}");
    assert_eq!(race["lanes"][0]["replica"], race["lanes"][1]["replica"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_and_foreign_races_are_rejected() {
    let mut shop = TestShop::start(1).await;
    for (lock, buyers, stock, field) in [
        ("nothing", 2, 1, "lock"),
        ("setnx", 2, 1, "lock"),
        ("none", 0, 1, "buyers"),
        ("none", 201, 1, "buyers"),
        ("none", 2, -1, "stock"),
        ("none", 2, 1_001, "stock"),
    ] {
        let rejected = race(&shop, lock, buyers, stock).succeeds(422).await;
        assert_eq!(rejected["errors"][0]["field"], field, "{lock} {buyers} {stock}");
    }
    let crowd = json!({ "lock": "owner", "buyers": 3, "stock": 1, "pause": true });
    let rejected = shop.anonymous().post("/api/race").json(&crowd).succeeds(422).await;
    assert_eq!(rejected["errors"][0]["field"], "pause");
    let post = |content_type: &str, body: &'static str| {
        let post = shop.anonymous().post("/api/race");
        post.header("Content-Type", content_type).body(body)
    };
    let race_text = "{\"lock\":\"none\",\"buyers\":2,\"stock\":1}";
    post("text/plain", race_text).fails(415, "invalid-request").await;
    let from_other_site =
        post("application/json", race_text).header("Sec-Fetch-Site", "cross-site");
    from_other_site.fails(403, "forbidden").await;
    let form = shop.anonymous().form("/race", "buyers=2");
    form.header("Origin", "https://evil.example").fails(403, "forbidden").await;
    shop.anonymous().get("/api/race/none").fails(404, "not-found").await;
    assert_eq!(shop.number("select count(*) from lab_runs").await, 0);

    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    let race = json!({ "lock": "none", "buyers": 2, "stock": 1 });
    shop.anonymous().at(1).post("/api/race").json(&race).fails(403, "forbidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn races_of_one_address_are_limited() {
    let limits = [("HOLDFAST_LIMIT_RACE", "30/h:3"), ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1")];
    let shop = TestShop::start_with(1, &limits).await;
    let from = |address: &str| race(&shop, "none", 1, 1).header("X-Forwarded-For", address);
    for _ in 0..3 {
        from("192.0.2.1").succeeds(200).await;
    }
    let rejected = from("192.0.2.1").await;
    let wait: u64 = rejected.header("retry-after").parse().unwrap();
    assert!((1..=120).contains(&wait), "{wait}");
    rejected.fails(429, "too-many-requests");
    from("192.0.2.2").succeeds(200).await;
}

/// Races beyond the bound are queued, while an order of the shop is placed in time.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_visitors_queue_while_shop_sells() {
    let shop = TestShop::with_peers(&[("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1")]).await;
    let alice = shop.sign_in("alice").await;
    let visitors = (1..=50).map(|visitor| {
        let request = race(&shop, "none", 2, 1);
        request.header("X-Forwarded-For", format!("192.0.2.{visitor}")).send()
    });
    let buying = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let began = Instant::now();
            alice.orders("key-ring", 1).ok().await;
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let (responses, slowest) = tokio::join!(futures_util::future::join_all(visitors), buying);
    assert!(slowest < Duration::from_secs(2) + BUSY_MACHINE, "an order took {slowest:?}");
    let mut queued = Vec::new();
    for response in responses {
        if response.status == 202 {
            let location = response.header("location").to_owned();
            let race = response.succeeds(202);
            assert!(race["position"].as_i64().is_some_and(|position| position >= 1), "{race}");
            queued.push(location);
        } else {
            assert_eq!(response.succeeds(200)["sold"], 2);
        }
    }
    assert!(queued.len() > 10, "{} were queued", queued.len());
    for location in queued {
        until("the queued race is done", async || {
            let race = shop.anonymous().at(1).get(&location).ok().await;
            race["state"] == "done" && race["sold"] == 2
        })
        .await;
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_rejects_races() {
    let shop = TestShop::with_peers(&[("HOLDFAST_LIMIT_RACE", "off")]).await;
    // The buyers of both running races wait for a stopped replica.
    shop.replicas[1].pause();
    let races = (0..80).map(|_| race(&shop, "none", 2, 1).timeout(Duration::from_secs(12)).send());
    // Those with a pause have a queue of their own.
    let pausing = async {
        until("the queue is full", async || {
            shop.number("select count(*) from lab_runs where state = 'queued'").await == 64
        })
        .await;
        let races = (0..3).map(|_| paused(&shop, "none").timeout(Duration::from_secs(12)).send());
        futures_util::future::join_all(races).await
    };
    let (responses, pausing) = tokio::join!(futures_util::future::join_all(races), pausing);
    shop.replicas[1].resume();
    let statuses: Vec<u16> = responses.into_iter().map(|it| it.status).collect();
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(202), count(503)), (2, 64, 14), "{statuses:?}");
    let statuses: Vec<u16> = pausing.iter().map(|it| it.status).collect();
    let queued = pausing.into_iter().find(|it| it.status == 202);
    let queued = queued.unwrap_or_else(|| panic!("{statuses:?}"));
    assert_eq!(queued.succeeds(202)["position"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_replica_ends_race_in_time() {
    let shop = TestShop::with_peers(&[]).await;
    run(&shop, "fenced", 2, 1).await;
    shop.replicas[1].pause();
    for lock in ["none", "fenced"] {
        let began = Instant::now();
        let race = run(&shop, lock, 2, 1).await;
        assert!(began.elapsed() < RACE_TIMEOUT + BUSY_MACHINE, "{:?}", began.elapsed());
        assert_eq!(results(&race), ["sold", "no-answer"], "{race}");
        assert_eq!(race["sold"], 1);
    }
    shop.replicas[1].resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_races_are_deleted_with_their_items() {
    let shop = TestShop::with_peers(&[]).await;
    let rows = "select (select count(*) from lab_runs) + (select count(*) from orders)
                     + (select count(*) from order_lines)
                     + (select count(*) from idempotency where path = '/api/orders')
                     + (select count(*) from stock_ledger where sku like 'lab-%')
                     + (select count(*) from items where kind = 'lab')";
    for lock in ["none", "fenced", "none"] {
        run(&shop, lock, 2, 1).await;
    }
    let pool = shop.pool.clone().into();
    let before = shop.number(rows).await;
    prune(&pool, 1).await.unwrap();
    assert_eq!(shop.number(rows).await, before, "their orders are pending");
    sqlx::query("update orders set status = 'cancelled'").execute(&shop.pool).await.unwrap();
    // One order of the two oldest, and one that was paid and refunded: no row is kept forever.
    let skus = "select array(select sku from lab_runs order by id limit 2)";
    let skus: Vec<String> = sqlx::query_scalar(skus).fetch_one(&shop.pool).await.unwrap();
    sqlx::query("update items set stock = 9, version = version + 1 where sku = any($1)")
        .bind(&skus)
        .execute(&shop.pool)
        .await
        .unwrap();
    let alice = shop.sign_in("alice").await;
    order_and(&alice, &[&skus[0], &skus[1]], &["cancel"]).await;
    order_and(&alice, &[&skus[0]], &["pay", "refund"]).await;
    until("the oldest races are deleted", async || {
        prune(&pool, 1).await.unwrap();
        shop.number("select count(*) from lab_runs").await == 1
    })
    .await;
    assert_eq!(shop.number("select count(*) from items where kind = 'lab'").await, 1);
    // A race, its item, its two orders with a line and a key each, and three ledger entries.
    assert_eq!(shop.number(rows).await, 1 + 1 + 2 + 2 + 2 + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_resumes_only_own_paused_order() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(1).await;
    let paused = shop.pause(&admin, alice.orders(&sku, 1), "read").await;

    for (user, can_see, status) in [(&bob, 0, 404), (&alice, 1, 204)] {
        let can_resume = user.reads("/api/race/paused").await;
        assert_eq!(can_resume.as_array().unwrap().len(), can_see, "{}", user.name);
        user.post(&format!("/api/race/paused/{}", paused.id)).succeeds(status).await;
    }
    paused.sent.ok().await;
}
