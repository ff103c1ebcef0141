//! Passwords: their change, the commands for users, and a flood of sign-ins.

use std::process::{Output, Stdio};

use futures_util::future::join_all;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::Command;
use uuid::Uuid;

use crate::common::requests::{Answer as _, send};
use crate::common::{Shop, User, services, until};

const NEW_PASSWORD: &str = "a new password";

async fn sign_in(shop: &Shop, user: &str, password: &str) -> Response {
    let credentials = json!({ "user": user, "password": password });
    shop.http.post(shop.url(0, "/api/sessions")).json(&credentials).send().await.unwrap()
}

async fn status_of(shop: &Shop, who: &User, replica: usize) -> u16 {
    let me = shop.get(who, replica, "/api/me").send().await.unwrap();
    me.status().as_u16()
}

fn change(shop: &Shop, who: &User, old: &str, new: &str) -> reqwest::RequestBuilder {
    let change = json!({ "old": old, "new": new });
    shop.request(who, Method::POST, 0, "/api/me/password").json(&change)
}

async fn sessions_of(shop: &Shop, name: &str) -> i64 {
    sqlx::query_scalar(
        "select count(*) from sessions s join users u on u.id = s.user_id where u.name = $1",
    )
    .bind(name)
    .fetch_one(&shop.pool)
    .await
    .unwrap()
}

async fn until_blocked(shop: &Shop, sessions: i64) {
    until("sessions wait for a row", async || shop.waiting_sessions().await == sessions).await;
}

async fn begin(shop: &Shop, statements: &str) -> PgConnection {
    let mut session = PgConnection::connect(&shop.database_url()).await.unwrap();
    let statements = AssertSqlSafe(format!("begin; {statements}"));
    sqlx::raw_sql(statements).execute(&mut session).await.unwrap();
    session
}

async fn commit(mut session: PgConnection) {
    sqlx::raw_sql("commit").execute(&mut session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn password_change_ends_other_sessions() {
    let shop = Shop::start(2).await;
    let (alice, other) = (shop.sign_in("alice").await, shop.sign_in("alice").await);
    let bob = shop.sign_in("bob").await;
    for replica in [0, 1] {
        assert_eq!(status_of(&shop, &other, replica).await, 200);
    }
    for (old, new, field) in [("wrong", NEW_PASSWORD, "old"), ("alice", "seven77", "new")] {
        let body = change(&shop, &alice, old, new).refuses(422, "invalid-request").await;
        assert_eq!(body["errors"][0]["field"], field);
    }
    assert_eq!(sessions_of(&shop, "alice").await, 2);

    let changed = change(&shop, &alice, "alice", NEW_PASSWORD).send().await.unwrap();
    assert_eq!(changed.status(), 204);
    assert_eq!(status_of(&shop, &other, 0).await, 401);
    until("the other replica ends it too", async || status_of(&shop, &other, 1).await == 401).await;
    assert_eq!([status_of(&shop, &alice, 0).await, status_of(&shop, &bob, 0).await], [200, 200]);
    assert_eq!(sign_in(&shop, "alice", "alice").await.status(), 401);
    assert_eq!(sign_in(&shop, "alice", NEW_PASSWORD).await.status(), 201);
    let unauthenticated = User { name: "alice".to_owned(), token: "none".to_owned() };
    change(&shop, &unauthenticated, NEW_PASSWORD, "another one")
        .refuses(401, "unauthenticated")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sign_in_cannot_survive_password_change() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    // The sign-in verifies the old password before the change, and begins its session after it.
    let change_first =
        begin(&shop, "update users set password_hash = password_hash || 'x' where name = 'bob'");
    let change_first = change_first.await;
    let credentials = json!({ "user": "bob", "password": "bob" });
    let late = send(shop.http.post(shop.url(0, "/api/sessions")).json(&credentials));
    until_blocked(&shop, 1).await;
    commit(change_first).await;
    late.refuses(401, "unauthenticated").await;
    assert_eq!(sessions_of(&shop, "bob").await, 0);

    // The session begins before the change, which has to find it.
    let session_first = begin(
        &shop,
        "insert into sessions (token_hash, user_id, csrf, expires_at)
         select 'late', id, '', now() + interval '1 day' from users where name = 'alice' for share",
    )
    .await;
    let changed = send(change(&shop, &alice, "alice", NEW_PASSWORD));
    until_blocked(&shop, 1).await;
    commit(session_first).await;
    assert_eq!(changed.response().await.status(), 204);
    assert_eq!(sessions_of(&shop, "alice").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_of_two_password_changes_is_rejected() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let blocker = begin(&shop, "select from users where name = 'alice' for update").await;
    let changes = [NEW_PASSWORD, "another password"];
    let changes = changes.map(|new| send(change(&shop, &alice, "alice", new)));
    until_blocked(&shop, 2).await;
    commit(blocker).await;
    let changed = join_all(changes.map(async |sent| sent.response().await.status().as_u16()));
    let mut changed = changed.await;
    changed.sort_unstable();
    assert_eq!(changed, [204, 422]);
}

/// An unknown name costs a hash, too: otherwise the time of a response would reveal which names
/// exist.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_sign_ins_is_rejected_early() {
    let shop = Shop::start(1).await;
    for name in ["bob", "unknown"] {
        // At most 9 hashes run on any machine, and at most 8 × 32 callers wait.
        let flood = join_all((0..400).map(|_| sign_in(&shop, name, "wrong")));
        let mut rejected = 0;
        for response in flood.await {
            if response.status() == 503 {
                assert!(response.headers().contains_key("retry-after"));
                response.refuses(503, "overloaded").await;
                rejected += 1;
            } else {
                response.refuses(401, "unauthenticated").await;
            }
        }
        assert!(rejected > 0, "{name}");
    }
    assert_eq!(sign_in(&shop, "alice", "alice").await.status(), 201);
}

#[tokio::test]
async fn database_has_only_hashes_of_secrets() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let hashes = "select count(*) from users where password_hash ~ '^\\$argon2id\\$v=19\\$m=19456,t=2,p=1\\$'";
    assert_eq!(shop.number(hashes).await, shop.number("select count(*) from users").await);
    let stored = "select count(*) filter (where token_hash = sha256($1::bytea)),
                         count(*) filter (where sessions::text like '%' || $2 || '%')
                    from sessions";
    let stored: (i64, i64) = sqlx::query_as(stored)
        .bind(alice.token.as_bytes())
        .bind(&alice.token)
        .fetch_one(&shop.pool)
        .await
        .unwrap();
    assert_eq!(stored, (1, 0), "the hash, not the token");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_sign_up_logs_no_error() {
    let shop = Shop::start(1).await;
    let name = format!("twice-{}", Uuid::new_v4().simple());
    let sign_up = async || {
        let credentials = json!({ "user": name, "password": NEW_PASSWORD });
        shop.http.post(shop.url(0, "/api/users")).json(&credentials).send().await.unwrap()
    };
    assert_eq!(sign_up().await.status(), 201);
    sign_up().await.refuses(409, "exists").await;
    // Once the log has this marker, it has everything that Postgres wrote before.
    let marker = format!("marker_{}", Uuid::new_v4().simple());
    let statement = AssertSqlSafe(format!("select {marker}"));
    sqlx::query(statement).execute(&shop.pool).await.unwrap_err();
    let log = services().data.join("log/postgres.log");
    let read = || std::fs::read_to_string(&log).unwrap();
    until("the log has the marker", async || read().contains(&marker)).await;
    assert!(!read().contains(&name), "{name} is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_user_gets_one_welcome_credit() {
    let shop = Shop::start(1).await;
    let credentials = json!({ "user": "dora", "password": NEW_PASSWORD });
    let sign_up = async || {
        let url = shop.url(0, "/api/users");
        shop.http.post(url).json(&credentials).send().await.unwrap()
    };
    let created = sign_up().await;
    let request_id = created.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!((created.status().as_u16(), sign_up().await.status().as_u16()), (201, 409));
    let url = shop.url(0, "/api/sessions");
    let token = shop.http.post(url).json(&credentials).gives(201).await["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let dora = User { name: "dora".to_owned(), token };
    let me = json!({ "user": "dora", "balance_cents": 10_000, "lab_balance_cents": 100_000 });
    assert_eq!(shop.read(&dora, "/api/me").await, me);
    let ledger = shop.read(&dora, "/api/me/ledger").await;
    assert_eq!(ledger["items"].as_array().unwrap().len(), 1);
    let entry = &ledger["items"][0];
    let change = [&entry["before"], &entry["delta"], &entry["after"]];
    assert_eq!(change.map(Value::as_i64), [Some(0), Some(10_000), Some(10_000)]);
    assert_eq!(
        (entry["reason"].as_str(), entry["request_id"].as_str()),
        (Some("welcome"), Some(request_id.as_str()))
    );
    shop.assert_sound().await;
    // The audit reports a missing credit.
    shop.execute("delete from top_ups where amount_cents = 10000").await;
    assert_eq!(shop.failing_checks().await, ["top-ups", "money-conserved"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_password_has_minimum_length() {
    let mut shop = Shop::start(1).await;
    shop.add_replica(&[("HOLDFAST_MIN_PASSWORD_LENGTH", "10")]);
    let urls = [shop.url(0, "/api/users"), shop.url(1, "/api/users")];
    let demo = format!("{}/api/users", services().running.replicas[0]);
    for (url, least) in [(&urls[0], 8), (&urls[1], 10), (&demo, 3)] {
        let name = format!("user-{}", Uuid::new_v4().simple());
        let sign_up = |length: usize| {
            let credentials = json!({ "user": name, "password": "p".repeat(length) });
            shop.http.post(url).json(&credentials).send()
        };
        let (status, _, rejection) = sign_up(least - 1).await.unwrap().outcome().await;
        assert_eq!((status, &rejection["errors"][0]["field"]), (422, &json!("password")));
        let why = format!("{least} to 256 characters");
        assert_eq!(rejection["errors"][0]["detail"], Value::from(why));
        sign_up(least).await.unwrap().gives(201).await;
    }
}

async fn user_command(shop: &Shop, arguments: &[&str], password: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .arg("user")
        .args(arguments)
        .env("DATABASE_URL", shop.database_url())
        .env("HOLDFAST_PASSWORD", password)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn user_commands_change_password_and_disable() {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let run = async |arguments: &[&str], password: &str| {
        let output = user_command(&shop, arguments, password).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    for (arguments, password, why) in [
        (["passwd", "alice"], "seven77", "password: 8 to 256 characters"),
        (["passwd", "nemo"], NEW_PASSWORD, "there is no user nemo"),
        (["disable", "nemo"], "", "there is no user nemo"),
        (["enable", "nemo"], "", "there is no user nemo"),
    ] {
        let (success, text) = run(&arguments, password).await;
        assert!(!success && text.contains(why), "{text}");
    }
    assert_eq!(status_of(&shop, &alice, 0).await, 200);

    let (success, text) = run(&["passwd", "alice"], NEW_PASSWORD).await;
    assert!(success && !text.contains("disabled"), "{text}");
    until("her session has ended", async || status_of(&shop, &alice, 0).await == 401).await;
    assert_eq!(sign_in(&shop, "alice", "alice").await.status(), 401);
    assert_eq!(sign_in(&shop, "alice", NEW_PASSWORD).await.status(), 201);

    let (success, text) = run(&["disable", "bob"], "").await;
    assert!(success, "{text}");
    until("his session has ended", async || status_of(&shop, &bob, 0).await == 401).await;
    assert_eq!(sign_in(&shop, "bob", "bob").await.status(), 401);
    let (success, text) = run(&["passwd", "bob"], NEW_PASSWORD).await;
    assert!(success && text.contains("stays disabled"), "{text}");
    assert_eq!(sign_in(&shop, "bob", NEW_PASSWORD).await.status(), 401);
    assert_eq!(sessions_of(&shop, "bob").await, 0);
    let (success, text) = run(&["enable", "bob"], "").await;
    assert!(success, "{text}");
    assert_eq!(sign_in(&shop, "bob", NEW_PASSWORD).await.status(), 201);

    let longer = ["passwd", "bob", "--min-password-length", "64"];
    let (success, text) = run(&longer, NEW_PASSWORD).await;
    assert!(!success && text.contains("password: 64 to 256 characters"), "{text}");
}
