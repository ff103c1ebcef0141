//! The shop's own jobs on real replicas: a holder that is killed, paused or terminated; the result
//! of the audit.

use holdfast_shop::jobs::runs::{self, JobRun, RunState};
use holdfast_testkit::{Call, Sent, TestShop, User, assert_has, until};
use reqwest::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::datetime;

use crate::metrics::{metrics, value};

const DUE: OffsetDateTime = datetime!(2026-03-04 05:06 UTC);
const JOBS_ON: (&str, &str) = ("HOLDFAST_JOBS", "on");

/// A tick of the lab's job, not sent yet.
fn tick(who: &User, replica: usize) -> Call {
    let body = json!({ "due_at": DUE.format(&Rfc3339).unwrap(), "once": "row" });
    who.at(replica).request(Method::POST, "/api/lab/ticks").json(&body)
}

async fn run_of(shop: &TestShop) -> Option<JobRun> {
    runs::find(&shop.pool.clone().into(), "lab-tick", DUE).await.unwrap()
}

/// The first replica runs the tick, and is paused at that point. Returns its response to come.
async fn start_paused(shop: &TestShop, admin: &User, at: &str) -> Sent {
    let sent = tick(admin, 0).pause(at).send();
    shop.until_one_is_paused(admin, at).await;
    sent
}

async fn until_done(shop: &TestShop) -> JobRun {
    until("the run is done", async || {
        run_of(shop).await.is_some_and(|run| run.state == RunState::Done)
    })
    .await;
    run_of(shop).await.unwrap()
}

const MARKS: &str = "select count(*) from lab_marks";

/// Kills the replica whose run is paused at that point; the other one takes it over.
async fn check_kill_at(mut shop: TestShop, at: &str) {
    let admin = shop.sign_in("admin").await;
    let sent = start_paused(&shop, &admin, at).await;
    let begun = run_of(&shop).await.unwrap();
    assert_eq!((begun.state, begun.attempt), (RunState::Running, 1));
    shop.replicas[0].kill();
    assert!(sent.result().await.is_err());
    let done = until_done(&shop).await;
    assert_eq!((done.attempt, done.replica.as_str()), (2, shop.replicas[1].name()), "{at}");
    assert_eq!(shop.number(MARKS).await, 1, "killed at {at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_run_is_taken_over_once() {
    TestShop::check_each(["held", "write"], &[JOBS_ON], check_kill_at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_run_cannot_write_its_result() {
    let shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let admin = shop.sign_in("admin").await;
    let sent = start_paused(&shop, &admin, "held").await;
    shop.replicas[0].pause();
    let done = until_done(&shop).await;
    assert_eq!((done.attempt, done.replica.as_str()), (2, shop.replicas[1].name()));
    shop.replicas[0].resume();
    let late = sent.await.body;
    assert_eq!(late["outcome"], "stale", "{late}");
    let still = run_of(&shop).await.unwrap();
    assert_eq!((still.attempt, still.ended_at), (2, done.ended_at));
    assert_eq!(shop.number(MARKS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_replica_hands_over_its_run() {
    let mut shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let admin = shop.sign_in("admin").await;
    let sent = start_paused(&shop, &admin, "write").await;
    shop.replicas[0].terminate();
    let done = until_done(&shop).await;
    assert_eq!((done.attempt, done.replica.as_str()), (2, shop.replicas[1].name()));
    assert!(shop.replicas[0].wait_for_exit().await, "it exits cleanly");
    sent.abort();
    assert_eq!(shop.number(MARKS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_replicas_run_each_job_once() {
    let shop = TestShop::start_with(3, &[JOBS_ON]).await;
    let admin = shop.sign_in("admin").await;
    until("both jobs are done", async || {
        let jobs = admin.reads("/api/jobs").await;
        let done = |job: &Value| !job["last_done"].is_null() || job["every_s"].is_null();
        jobs["jobs"].as_array().unwrap().iter().all(done)
    })
    .await;
    let jobs = admin.reads("/api/jobs").await;
    assert_eq!(jobs["on"], true);
    let names = ["audit", "purge"];
    for (job, name) in jobs["jobs"].as_array().unwrap().iter().zip(names) {
        assert_has(job, json!({ "name": name, "every_s": 3_600 }));
        let last = &job["last_done"];
        assert_eq!((&last["state"], &last["attempt"]), (&"done".into(), &1.into()), "{job:#}");
        let who = last["replica"].as_str().unwrap();
        assert!(shop.replicas.iter().any(|replica| replica.name() == who), "{who}");
    }
    let sound = &jobs["jobs"][0]["last_done"]["result"];
    assert_has(sound, json!({ "sound": true, "failing": [] }));
    // Every run has its row.
    let mut counted = 0.0;
    for replica in 0..3 {
        let metrics = metrics(&shop, replica).await;
        for job in names {
            let line = format!("holdfast_job_attempts_total{{job=\"{job}\",outcome=\"done\"}}");
            counted += value(&metrics, &line).unwrap_or(0.0);
        }
    }
    let rows = shop.number("select count(*) from job_runs").await;
    assert_eq!(counted, rows as f64);
}

#[tokio::test]
async fn disabled_jobs_do_not_run() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_JOBS", "off")]).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    tick(&admin, 0).fails(403, "forbidden").await;
    assert_eq!(admin.reads("/api/jobs").await["on"], false);
    alice.get("/api/jobs").fails(403, "forbidden").await;
    assert_eq!(shop.number("select count(*) from job_runs").await, 0);
}
