//! What a visitor's file makes long: it is drawn up to a bound, off the workers, and what the
//! product itself writes still opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast_lab::run::LabRun;
use holdfast_lab::store;
use holdfast_shop::db;
use holdfast_testkit::{TestShop, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::interval;
use uuid::Uuid;

use crate::lab::{oversold, upload, upload_to};
use crate::visitor::{Page, Visitor};

const JUDGED: &str = "/lab/judged";
const MAX_PAGE_BYTES: usize = 2_000_000;
const NOT_DRAWN: &str = "Not drawn: this page draws 3,000 events at most";
const NOT_ALL_DRAWN: &str = "Not everything is drawn: this page shows 5,000 events at most";

/// A judgement whose fault has violations with as many events, each of a client of its own.
fn judgement(violations: usize, events: usize) -> Vec<u8> {
    let event = |at: usize| json!({ "t_ms": at, "worker": 0, "client": at, "event": "read" });
    let events: Vec<Value> = (0..events).map(event).collect();
    let violation = json!({ "kind": "overlap", "text": "w0 c0 and w0 c1", "events": events });
    let mut judgement: Value = serde_json::from_str(include_str!("judgement.json")).unwrap();
    // Those of the faults behind it have violations, too.
    judgement["faults"].as_array_mut().unwrap().truncate(2);
    judgement["faults"][1]["violations"] = vec![violation; violations].into();
    judgement.to_string().into_bytes()
}

/// A run with as many lanes in each of its arms, each of them with as many events; every arm has
/// twelve forks of two of its lanes.
fn run(arms: usize, lanes: usize, events: usize) -> LabRun {
    let id = |arm: usize, lane: usize| Uuid::from_u128((arm * 1_000 + lane + 1) as u128);
    let template = serde_json::to_value(oversold()).unwrap();
    let mut run = template.clone();
    run["id"] = json!(Uuid::now_v7());
    run["wanted"] = json!({ "strategies": ["none"] });
    run["said"] = json!([]);

    let lane = |arm: usize, lane: usize| {
        let mut made = template["lanes"][0].clone();
        made["request_id"] = json!(id(arm, lane));
        made["label"] = json!(format!("order {}", arm * lanes + lane + 1));
        made["arm"] = json!(arm);
        let names = ["wait", "held", "read", "write", "commit", "committed", "release"];
        let event = |at: usize| {
            let key = "{sku:lab-019b2006d525371f0}";
            json!({ "t_us": 10_000 + 100 * at, "event": names[at % names.len()], "key": key, "value": 57 })
        };
        made["events"] = (0..events).map(event).collect();
        made
    };
    let all = (0..arms).flat_map(|arm| (0..lanes).map(move |of_arm| (arm, of_arm)));
    run["lanes"] = all.map(|(arm, of_arm)| lane(arm, of_arm)).collect();

    let arm = |arm: usize| {
        let mut made = template["arms"][0].clone();
        let entry = made["forked"][0]["entries"][0].clone();
        let entry = |lane: usize| {
            let mut entry = entry.clone();
            entry["request_id"] = json!(id(arm, lane % lanes));
            entry
        };
        let fork = |at: usize| json!({ "version": at, "before": 57, "entries": [entry(2 * at), entry(2 * at + 1)] });
        made["forked"] = (0..12).map(fork).collect();
        made["samples"] = vec![made["samples"][0].clone(); 150].into();
        made
    };
    run["arms"] = (0..arms).map(arm).collect();
    serde_json::from_value(run).unwrap()
}

fn assert_short(page: &Page) {
    assert_eq!(page.status, 200, "{}", page.words());
    assert!(page.text.len() <= MAX_PAGE_BYTES, "{} bytes", page.text.len());
}

/// The worst file: 80 violations of 1,000 events, each on a lane of its own. Four visitors send it
/// while others order, on a server with as few workers as there are cores.
#[tokio::test(flavor = "multi_thread")]
async fn orders_complete_beside_uploads_of_the_worst_file() {
    let shop = TestShop::start(1).await;
    let file = Arc::new(judgement(80, 1_000));
    assert!(file.len() < 4 * 1024 * 1024, "{} bytes are refused unread", file.len());
    let page = upload_to(JUDGED, &Visitor::new(&shop), "", &file).await;
    assert_short(&page);
    assert_eq!(page.text.matches("<article class=\"violation-report\"").count(), 80);
    assert_eq!(page.text.matches(NOT_DRAWN).count(), 80 - 3);

    let (is_over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let uploaders: Vec<_> = (0..4)
        .map(|_| {
            let (visitor, file) = (Visitor::new(&shop), Arc::clone(&file));
            let (is_over, opened) = (Arc::clone(&is_over), Arc::clone(&opened));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let page = upload_to(JUDGED, &visitor, "", &file).await;
                    assert!([200, 429, 503].contains(&page.status.as_u16()), "{}", page.words());
                    opened.fetch_add(usize::from(page.status == 200), Ordering::Relaxed);
                }
            })
        })
        .collect();

    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let mut orders = 0;
    while orders < 40 || opened.load(Ordering::Relaxed) < 4 {
        orders += 1;
        alice.orders(&sku, 1).ok().await;
        let ready = shop.http.get(shop.url(0, "/readyz")).send().await.unwrap();
        assert_eq!(ready.status(), 200);
    }
    is_over.store(true, Ordering::Relaxed);
    for uploader in uploaders {
        uploader.await.unwrap();
    }
    shop.assert_sound().await;
}

/// As long as `holdfast judge` can make it: many faults, each with all kinds of violations.
#[tokio::test(flavor = "multi_thread")]
async fn longest_judgement_opens_up_to_the_bound() {
    let shop = TestShop::start(1).await;
    let mut judgement: Value = serde_json::from_slice(&judgement(16, 80)).unwrap();
    let mut fault = judgement["faults"][1].clone();
    for (name, value) in [("runs", 10), ("lost_in", 9), ("lost_in_with_fence", 3), ("run_seed", 12)]
    {
        fault[name] = value.into();
    }
    judgement["faults"] = vec![fault; 16].into();
    let page = upload_to(JUDGED, &Visitor::new(&shop), "", judgement.to_string().as_bytes()).await;
    assert_short(&page);
    assert!(page.text.contains(NOT_DRAWN), "{}", page.words());

    let mut texts = judgement;
    for violation in texts["faults"].as_array_mut().unwrap() {
        let long = json!({ "kind": "overlap", "text": "x".repeat(2_000), "events": [] });
        violation["violations"] = vec![long; 100].into();
    }
    let page = upload_to(JUDGED, &Visitor::new(&shop), "", texts.to_string().as_bytes()).await;
    assert_eq!(page.status, 422);
    assert!(page.words().contains("would be longer than 2 MB"), "{}", page.words());
}

/// Each judgement that comes with the program is drawn whole.
#[tokio::test(flavor = "multi_thread")]
async fn judged_locks_are_drawn_whole() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let list = visitor.get(JUDGED).await.text;
    let names = list.split("href=\"/lab/judged/").skip(1);
    let names: Vec<&str> = names.filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let page = visitor.get(&format!("{JUDGED}/{name}")).await;
        assert_short(&page);
        assert!(!page.text.contains("Not drawn"), "{name}");
    }
}

/// As long as the lab makes it: six arms, 24 lanes of each, all forks.
#[tokio::test(flavor = "multi_thread")]
async fn longest_run_opens_and_is_saved() {
    let (source, target) = (TestShop::start(1).await, TestShop::start(1).await);
    let run = run(6, 24, 12);
    let path = format!("/lab/runs/{}", run.id);
    let (visitor, other) = (Visitor::new(&source), Visitor::new(&target));
    let json = serde_json::to_vec(&run).unwrap();
    let opened = upload(&visitor, "", &json).await;
    assert_eq!((opened.status.as_u16(), &opened.location), (303, &path), "{}", opened.words());
    let page = visitor.get(&path).await;
    assert_short(&page);
    assert!(!page.text.contains("Not everything is drawn"));

    let file = visitor.get(&format!("{path}/file")).await;
    assert_eq!(upload(&other, "", file.text.as_bytes()).await.status, 303, "{}", file.text.len());
    assert_short(&other.get(&path).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_run_is_refused_and_drawn_up_to_the_bound() {
    let shop = TestShop::start(1).await;
    let visitor = Visitor::new(&shop);
    let long = run(24, 1, 800);
    let file = serde_json::to_vec(&long).unwrap();
    let refused = upload(&visitor, "", &file).await;
    assert_eq!(refused.status, 422);
    assert!(refused.words().contains("This run has more than 5,000 events"), "{}", refused.words());

    // One that an older version has stored.
    assert!(store::import(&shop.pool.clone().into(), &long).await.unwrap());
    for path in ["", "/file"] {
        let page = visitor.get(&format!("/lab/runs/{}{path}", long.id)).await;
        assert_eq!(page.status, 200, "{}", page.words());
        assert!(page.text.contains(NOT_ALL_DRAWN), "{} bytes", page.text.len());
        let json = if path.is_empty() { 0 } else { file.len() };
        assert!(page.text.len() - json <= MAX_PAGE_BYTES, "{} bytes", page.text.len());
    }
    let of_api = visitor.get(&format!("/api/lab/runs/{}", long.id)).await;
    let of_api: LabRun = serde_json::from_str(&of_api.text).unwrap();
    assert_eq!(of_api.outcome.lanes.len(), long.outcome.lanes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_race_is_drawn() {
    let shop = TestShop::with_peers(&[]).await;
    let visitor = Visitor::new(&shop);
    let race = json!({ "lock": "none", "buyers": 200, "stock": 100 });
    let race = shop.http.post(shop.url(0, "/api/race")).json(&race).send().await.unwrap();
    let race: Value = race.json().await.unwrap();
    let path = format!("/race/{}", race["id"].as_str().unwrap());
    until("the race is done", async || visitor.get(&format!("{path}/film")).await.status == 200)
        .await;
    for part in ["", "/film", "/file", "/picture.svg"] {
        assert_short(&visitor.get(&format!("{path}{part}")).await);
    }
}

/// The blocks of results that sessions of this database have read, the replica's included: it has
/// ended, and so have they.
async fn read_blocks(shop: &mut TestShop) -> i64 {
    let mut replica = shop.replicas.remove(0);
    replica.terminate();
    assert!(replica.wait_for_exit().await);
    until("the sessions of the program are closed, and counted", async || {
        let others = "select count(*) from pg_stat_activity
                       where datname = current_database() and application_name = 'holdfast'";
        shop.number(others).await == 0
    })
    .await;
    shop.number(
        "select (toast_blks_read + toast_blks_hit)::bigint from pg_statio_user_tables
          where relname = 'lab_runs'",
    )
    .await
}

/// Whoever lists runs, or waits for one, lets Postgres read none of their results.
#[tokio::test(flavor = "multi_thread")]
async fn list_of_runs_reads_no_result() {
    let mut shop = TestShop::start(1).await;
    // A vacuum would be counted, too.
    shop.execute("alter table lab_runs set (toast.autovacuum_enabled = off)").await;
    let run = run(6, 24, 12);
    let path = format!("/lab/runs/{}", run.id);
    let file = serde_json::to_vec(&run).unwrap();
    assert_eq!(upload(&Visitor::new(&shop), "", &file).await.status, 303);
    let stored = read_blocks(&mut shop).await;

    shop.add_replica(&[]);
    let visitor = Visitor::new(&shop);
    for list in ["/lab/runs", "/api/lab/runs"] {
        let page = visitor.get(list).await;
        assert!(page.text.contains(&run.id.to_string()), "{list}: {}", page.words());
    }
    let pool = db::pool(&shop.database_url(), 1).unwrap();
    assert!(store::revision(&pool, run.id).await.unwrap().unwrap().is_over);
    drop(pool);
    assert_eq!(read_blocks(&mut shop).await, stored);

    shop.add_replica(&[]);
    assert_short(&Visitor::new(&shop).get(&path).await);
    assert!(read_blocks(&mut shop).await > stored, "its own page reads the result");
}

/// Reads a page of two megabytes at a few kilobytes a second: the connection, and with it the place
/// of the page, ends long before the page does.
#[tokio::test]
async fn slow_reader_does_not_keep_its_page() {
    let shop = TestShop::start(1).await;
    let run = run(6, 24, 12);
    assert!(store::import(&shop.pool.clone().into(), &run).await.unwrap());

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let address = shop.replicas[0].base_url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut connection = socket.connect(address).await.unwrap();
    let head = format!("GET /lab/runs/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", run.id);
    connection.write_all(head.as_bytes()).await.unwrap();

    let mut ticks = interval(Duration::from_millis(100));
    let (mut chunk, mut received) = ([0; 1_024], 0);
    while let Ok(length @ 1..) = connection.read(&mut chunk).await {
        received += length;
        assert!(received < 1_000_000, "it is still being sent");
        ticks.tick().await;
    }
    assert!(received > 0);
}

/// A class behind one address opens a file at once; whoever sends more waits, and no other does.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_address_are_limited() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1")]).await;
    let visitor = Visitor::new(&shop);
    let sent_from = async |address: &str| {
        let form = visitor.form_request(JUDGED, "").header("X-Forwarded-For", address);
        form.send().await.unwrap().status().as_u16()
    };
    let statuses: Vec<u16> =
        stream::iter(0..300).map(|_| sent_from("192.0.2.1")).buffered(8).collect().await;
    // Of those under way at the same time, any may be the first to be refused.
    let opened = statuses.iter().filter(|status| **status == 400).count();
    assert!(opened >= 60 && statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| [400, 429].contains(status)), "{statuses:?}");
    assert_eq!(sent_from("192.0.2.2").await, 400, "another address");
}
