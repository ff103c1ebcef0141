//! A Postgres whose synchronous standby is away: it responds, and ends no commit.

use holdfast_testkit::{User, fresh_key};
use sqlx::{Connection, Executor, PgConnection};

use super::{Running, TestFolder, wait_until};

/// The first write, what looked for its outcome, and the commits that try whether it is over.
const MAX_WAITING_SESSIONS: i64 = 6;

async fn set_standby(postgres: &mut PgConnection, name: &'static str) {
    let set = match name {
        "" => "alter system reset synchronous_standby_names",
        _ => "alter system set synchronous_standby_names = 'away'",
    };
    postgres.execute(set).await.expect("the superuser's");
    postgres.execute("select pg_reload_conf()").await.expect("the superuser's");
}

#[tokio::test]
async fn writes_are_refused_while_commits_wait() {
    let folder = TestFolder::new();
    let up = Running::start(&folder, &[]).await;
    let mut postgres = PgConnection::connect(&up.env().database_url).await.expect("Postgres");
    let shop = User::anonymous_of(&format!("http://127.0.0.1:{}", folder.port));
    let alice = shop.session_of("alice").await;
    let state = async || {
        let ready = shop.get("/readyz").await;
        (ready.status, ready.body["postgres"].as_str().unwrap_or_default().to_owned())
    };

    set_standby(&mut postgres, "away").await;
    let key = fresh_key();
    alice.orders("deadbolt", 1).key(&key).await.fails(503, "unavailable");
    wait_until("it is reported", async || state().await == (200, "waiting".to_owned())).await;
    for _ in 0..20 {
        alice.orders("brass-padlock", 1).await.fails(503, "unavailable");
    }
    let page = shop.get("/shop").await;
    assert!(page.status == 200 && page.text().contains("Selling is paused."), "{page}");
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut postgres).await.unwrap();
    assert!((1..=MAX_WAITING_SESSIONS).contains(&waiting), "{waiting} sessions wait");

    set_standby(&mut postgres, "").await;
    wait_until("it is over", async || state().await == (200, "ok".to_owned())).await;
    assert!(!shop.get("/shop").await.text().contains("Selling is paused."));
    wait_until("it sells again", async || {
        alice.orders("deadbolt", 1).key(&key).await.status / 100 == 2
    })
    .await;
    let orders = "select count(*) from orders where token = $1";
    let orders: i64 = sqlx::query_scalar(orders).bind(&key).fetch_one(&mut postgres).await.unwrap();
    assert_eq!(orders, 1);
    up.stop().await;
}
