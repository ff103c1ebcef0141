//! Passwords: their change, the commands for users, and a flood of sign-ins.

use futures_util::future::join_all;
use holdfast_testkit::{Reply, TestShop, User, run_program, services, until};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

const NEW_PASSWORD: &str = "a new password";

async fn sign_in(shop: &TestShop, user: &str, password: &str) -> Reply {
    shop.anonymous().signs_in(user, password).await
}

async fn status_of(who: &User, replica: usize) -> u16 {
    who.at(replica).get("/api/me").await.status
}

async fn sessions_of(shop: &TestShop, name: &str) -> i64 {
    sqlx::query_scalar(
        "select count(*) from sessions s join users u on u.id = s.user_id where u.name = $1",
    )
    .bind(name)
    .fetch_one(&shop.pool)
    .await
    .unwrap()
}

async fn until_blocked(shop: &TestShop, sessions: i64) {
    until("sessions wait for a row", async || shop.waiting_sessions().await == sessions).await;
}

async fn begin(shop: &TestShop, statements: &str) -> PgConnection {
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
    let shop = TestShop::start(2).await;
    let (alice, other) = (shop.sign_in("alice").await, shop.sign_in("alice").await);
    let bob = shop.sign_in("bob").await;
    for replica in [0, 1] {
        assert_eq!(status_of(&other, replica).await, 200);
    }
    for (old, new, field) in [("wrong", NEW_PASSWORD, "old"), ("alice", "seven77", "new")] {
        let body = alice.changes_password(old, new).fails(422, "invalid-request").await;
        assert_eq!(body["errors"][0]["field"], field);
    }
    assert_eq!(sessions_of(&shop, "alice").await, 2);

    alice.changes_password("alice", NEW_PASSWORD).await.succeeds(204);
    assert_eq!(status_of(&other, 0).await, 401);
    until("the other replica ends it too", async || status_of(&other, 1).await == 401).await;
    assert_eq!([status_of(&alice, 0).await, status_of(&bob, 0).await], [200, 200]);
    assert_eq!(sign_in(&shop, "alice", "alice").await.status, 401);
    assert_eq!(sign_in(&shop, "alice", NEW_PASSWORD).await.status, 201);
    let unauthenticated = shop.anonymous().with_token("none");
    let change = unauthenticated.changes_password(NEW_PASSWORD, "another one");
    change.fails(401, "unauthenticated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sign_in_cannot_survive_password_change() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    // The sign-in verifies the old password before the change, and begins its session after it.
    let change_first =
        begin(&shop, "update users set password_hash = password_hash || 'x' where name = 'bob'");
    let change_first = change_first.await;
    let late = shop.anonymous().signs_in("bob", "bob").send();
    until_blocked(&shop, 1).await;
    commit(change_first).await;
    late.fails(401, "unauthenticated").await;
    assert_eq!(sessions_of(&shop, "bob").await, 0);

    // The session begins before the change, which has to find it.
    let session_first = begin(
        &shop,
        "insert into sessions (token_hash, user_id, csrf, expires_at)
         select 'late', id, '', now() + interval '1 day' from users where name = 'alice' for share",
    )
    .await;
    let changed = alice.changes_password("alice", NEW_PASSWORD).send();
    until_blocked(&shop, 1).await;
    commit(session_first).await;
    assert_eq!(changed.await.status, 204);
    assert_eq!(sessions_of(&shop, "alice").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_of_two_password_changes_is_rejected() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let blocker = begin(&shop, "select from users where name = 'alice' for update").await;
    let changes =
        [NEW_PASSWORD, "another password"].map(|new| alice.changes_password("alice", new).send());
    until_blocked(&shop, 2).await;
    commit(blocker).await;
    let changed = join_all(changes.map(async |sent| sent.await.status));
    let mut changed = changed.await;
    changed.sort_unstable();
    assert_eq!(changed, [204, 422]);
}

/// An unknown name costs a hash, too: otherwise the time of a response would reveal which names
/// exist.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_sign_ins_is_rejected_early() {
    let shop = TestShop::start(1).await;
    // Not bob, whose hash costs nothing here.
    shop.anonymous().signs_up("dora", NEW_PASSWORD).ok().await;
    for name in ["dora", "unknown"] {
        // At most 9 hashes run on any machine, and at most 8 × 32 callers wait.
        let flood = join_all((0..400).map(|_| sign_in(&shop, name, "wrong")));
        let mut rejected = 0;
        for response in flood.await {
            if response.status == 503 {
                assert!(!response.header("retry-after").is_empty());
                response.fails(503, "overloaded");
                rejected += 1;
            } else {
                response.fails(401, "unauthenticated");
            }
        }
        assert!(rejected > 0, "{name}");
    }
    assert_eq!(sign_in(&shop, "alice", "alice").await.status, 201);
}

#[tokio::test]
async fn database_has_only_hashes_of_secrets() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    // The shop of `up`: those of the test's own users are cheap.
    let up = sqlx::PgPool::connect_with(holdfast_testkit::options()).await.unwrap();
    let hashes = "select count(*), count(*) filter (
                      where password_hash ~ '^\\$argon2id\\$v=19\\$m=19456,t=2,p=1\\$') from users";
    let (users, hashed): (i64, i64) = sqlx::query_as(hashes).fetch_one(&up).await.unwrap();
    assert!(users > 0 && hashed == users, "{hashed} of {users}");
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
    let shop = TestShop::start(1).await;
    let name = format!("twice-{}", Uuid::new_v4().simple());
    shop.anonymous().signs_up(&name, NEW_PASSWORD).ok().await;
    shop.anonymous().signs_up(&name, NEW_PASSWORD).fails(409, "exists").await;

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
    let shop = TestShop::start(1).await;
    let anyone = shop.anonymous();
    let created = anyone.signs_up("dora", NEW_PASSWORD).await;
    let request_id = created.header("x-request-id").to_owned();
    created.ok();
    anyone.signs_up("dora", NEW_PASSWORD).fails(409, "exists").await;

    let session = anyone.signs_in("dora", NEW_PASSWORD).ok().await;
    let dora = anyone.with_token(session["token"].as_str().unwrap());
    let me = json!({ "user": "dora", "balance_cents": 10_000, "lab_balance_cents": 100_000 });
    assert_eq!(dora.reads("/api/me").await, me);
    let ledger = dora.reads("/api/me/ledger").await;
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
    let mut shop = TestShop::start(1).await;
    shop.add_replica(&[("HOLDFAST_MIN_PASSWORD_LENGTH", "10")]);
    shop.replicas.base_urls.write().push(services().running.replicas[0].clone());

    for (replica, least) in [(0, 8), (1, 10), (2, 3)] {
        let name = format!("user-{}", Uuid::new_v4().simple());
        let anyone = shop.anonymous().at(replica);
        let rejected = anyone.signs_up(&name, &"p".repeat(least - 1)).await.succeeds(422);
        assert_eq!(rejected["errors"][0]["field"], "password");
        assert_eq!(rejected["errors"][0]["detail"], format!("{least} to 256 characters"));
        anyone.signs_up(&name, &"p".repeat(least)).ok().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_commands_change_password_and_disable() {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let url = shop.database_url();
    let run = |arguments: &[&str], password: &str| {
        let environment = [("DATABASE_URL", url.as_str()), ("HOLDFAST_PASSWORD", password)];
        let output = run_program(&[&["user"], arguments].concat(), &environment);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    for (arguments, password, why) in [
        (["passwd", "alice"], "seven77", "password: 8 to 256 characters"),
        (["passwd", "nemo"], NEW_PASSWORD, "there is no user nemo"),
        (["disable", "Émile"], "", "there is no user Émile"),
        (["enable", "nemo"], "", "there is no user nemo"),
    ] {
        let (success, text) = run(&arguments, password);
        assert!(!success && text.contains(why), "{text}");
    }
    assert_eq!(status_of(&alice, 0).await, 200);

    // A name is one user's in any case and width.
    let (success, text) = run(&["add", "Dora"], NEW_PASSWORD);
    assert!(success && text.contains("user dora added"), "{text}");
    let (success, text) = run(&["add", "DORA"], NEW_PASSWORD);
    assert!(!success && text.contains("the user dora already exists"), "{text}");

    let (success, text) = run(&["passwd", "Alice"], NEW_PASSWORD);
    assert!(success && text.contains("password of alice changed"), "{text}");
    assert!(!text.contains("disabled"), "{text}");
    until("her session has ended", async || status_of(&alice, 0).await == 401).await;
    assert_eq!(sign_in(&shop, "alice", "alice").await.status, 401);
    assert_eq!(sign_in(&shop, "alice", NEW_PASSWORD).await.status, 201);

    let (success, text) = run(&["disable", "ＢＯＢ"], "");
    assert!(success && text.contains("user bob disabled"), "{text}");
    until("his session has ended", async || status_of(&bob, 0).await == 401).await;
    assert_eq!(sign_in(&shop, "bob", "bob").await.status, 401);
    let (success, text) = run(&["passwd", "bob"], NEW_PASSWORD);
    assert!(success && text.contains("stays disabled"), "{text}");
    assert_eq!(sign_in(&shop, "bob", NEW_PASSWORD).await.status, 401);
    assert_eq!(sessions_of(&shop, "bob").await, 0);
    let (success, text) = run(&["enable", "BOB"], "");
    assert!(success && text.contains("user bob enabled"), "{text}");
    assert_eq!(sign_in(&shop, "bob", NEW_PASSWORD).await.status, 201);

    let longer = ["passwd", "bob", "--min-password-length", "64"];
    let (success, text) = run(&longer, NEW_PASSWORD);
    assert!(!success && text.contains("password: 64 to 256 characters"), "{text}");
}
