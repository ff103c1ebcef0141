//! What admins change of other users: once per key, logged, and never so that no admin remains.

use holdfast_testkit::{Call, TestShop, User, fresh_key, until};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

const NEW_PASSWORD: &str = "Quince-jam-for-7";

fn disables(admin: &User, name: &str, disabled: bool) -> Call {
    let call = admin.request(Method::PATCH, &format!("/api/admin/users/{name}"));
    call.key(&fresh_key()).json(&json!({ "disabled": disabled }))
}

fn resets(admin: &User, name: &str, password: &str) -> Call {
    let call = admin.post(&format!("/api/admin/users/{name}/password"));
    call.json(&json!({ "new": password }))
}

async fn status_of(who: &User, replica: usize) -> u16 {
    who.at(replica).get("/api/me").await.status
}

/// The admin log: action, name of the user, before and after.
async fn log(shop: &TestShop) -> Vec<(String, String, Value, Value)> {
    let log = "select l.action, u.name, l.before, l.after
                 from admin_log l join users u on u.id::text = l.subject order by l.seq";
    sqlx::query_as(log).fetch_all(&shop.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_user_is_signed_out_and_logged_once() {
    let shop = TestShop::start(2).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    assert_eq!([status_of(&alice, 0).await, status_of(&alice, 1).await], [200, 200]);

    let key = fresh_key();
    let first = disables(&admin, "alice", true).key(&key).await;
    disables(&admin.at(1), "alice", true).key(&key).await.replays(&first);
    let other = disables(&admin, "alice", false).key(&key);
    other.fails(422, "idempotency-key-mismatch").await;
    let account = first.ok();
    assert!(account["disabled_at"].is_string(), "{account}");
    assert_eq!((&account["user"], &account["sessions"]), (&json!("alice"), &json!(0)));

    assert_eq!(status_of(&alice, 0).await, 401);
    until("the other replica ends it too", async || status_of(&alice, 1).await == 401).await;
    // Only who knows the password is told why.
    for (password, why) in [("alice", "an admin has disabled this user"), ("bob", "is wrong")] {
        let refused = shop.anonymous().signs_in("alice", password).fails(401, "unauthenticated");
        let detail = refused.await["detail"].to_string();
        assert!(detail.contains(why), "{password}: {detail}");
    }

    let enabled = disables(&admin, "alice", false).ok().await;
    assert_eq!(enabled["disabled_at"], Value::Null);
    let again = shop.sign_in("alice").await;
    let ended = admin.post("/api/admin/users/alice/end-sessions").ok().await;
    assert_eq!(ended["sessions"], 0);
    assert_eq!(status_of(&again, 0).await, 401);

    let entry = |action: &str, before: Value, after: Value| {
        (action.to_owned(), "alice".to_owned(), before, after)
    };
    let (on, off) = (json!({ "disabled": false }), json!({ "disabled": true }));
    let expected = [
        entry("disable-user", on.clone(), off.clone()),
        entry("enable-user", off, on),
        entry("end-sessions", json!({}), json!({})),
    ];
    assert_eq!(log(&shop).await, expected);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_admins_cannot_disable_each_other() {
    let shop = TestShop::start(2).await;
    for _ in 0..3 {
        let (admin, alice) = (shop.sign_in("admin").await, shop.promoted("alice").await.at(1));
        // Both are known as admins, and come to the rows of the two at the same time.
        assert_eq!([status_of(&admin, 0).await, status_of(&alice, 1).await], [200, 200]);
        let mut blocker = PgConnection::connect(&shop.database_url()).await.unwrap();
        let block = "begin; select from users where name in ('admin', 'alice') for update";
        sqlx::raw_sql(block).execute(&mut blocker).await.unwrap();
        let both = [disables(&admin, "alice", true).send(), disables(&alice, "admin", true).send()];
        until("both wait", async || shop.waiting_sessions().await == 2).await;
        sqlx::raw_sql("commit").execute(&mut blocker).await.unwrap();

        let [one, other] = both;
        let mut statuses = [one.await.status, other.await.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 403]);
        let enabled = "select count(*) from users
                        where name in ('admin', 'alice') and disabled_at is null";
        assert_eq!(shop.number(enabled).await, 1);
        shop.execute("update users set disabled_at = null where name in ('admin', 'alice')").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_changes_only_other_users_that_sign_in() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    // Opens the lab account, which belongs to a user of its own.
    let item = shop.lab_item(1).await;
    alice.pays(&alice.orders(&item, 1).ok().await).ok().await;
    let lab = "select name from users where lab_account_of is not null";
    let lab: String = sqlx::query_scalar(lab).fetch_one(&shop.pool).await.unwrap();

    for (name, status, problem) in [
        ("admin", 422, "invalid-request"),
        ("nemo", 404, "not-found"),
        ("N%00", 404, "not-found"),
        (lab.as_str(), 404, "not-found"),
    ] {
        let end = admin.post(&format!("/api/admin/users/{name}/end-sessions"));
        for call in [disables(&admin, name, true), end, resets(&admin, name, NEW_PASSWORD)] {
            call.fails(status, problem).await;
        }
    }
    assert_eq!(status_of(&admin, 0).await, 200);
    let short = resets(&admin, "alice", "seven77").fails(422, "invalid-request").await;
    assert_eq!(short["errors"][0]["field"], "new");
    let without_key = disables(&admin, "alice", true).without_key();
    without_key.fails(400, "idempotency-key-missing").await;
    assert_eq!(log(&shop).await, []);

    let names = async |query: &str| -> Vec<String> {
        let list = admin.reads(&format!("/api/admin/users{query}")).await;
        let users = list["items"].as_array().unwrap().iter();
        users.map(|user| user["user"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("").await, ["admin", "alice", "bob", "carol"]);
    assert_eq!(names("?search=a&after=admin").await, ["alice", "carol"]);
    for none in ["?search=nemo", "?search=%00", "?search=A%25", "?after=%00"] {
        assert_eq!(names(none).await, [""; 0], "{none}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_password_leaves_only_its_hash() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    let key = fresh_key();
    let first = resets(&admin, "alice", NEW_PASSWORD).key(&key).await;
    // Nothing of a password is kept to compare: the same key changes nothing.
    resets(&admin, "alice", "another-Password").key(&key).await.replays(&first);
    first.ok();
    resets(&admin, "bob", "another-Password").ok().await;

    assert_eq!(status_of(&alice, 0).await, 401);
    for (password, status) in [("alice", 401), ("another-Password", 401), (NEW_PASSWORD, 201)] {
        let signed_in = shop.anonymous().signs_in("alice", password).await;
        assert_eq!(signed_in.status, status, "{password}");
    }

    let fingerprints =
        "select count(distinct fingerprint) from idempotency where path like '%/password'";
    assert_eq!(shop.number(fingerprints).await, 1, "they depend on no password");
    let tables = "select table_name::text from information_schema.tables
                   where table_schema = 'public' and table_type = 'BASE TABLE'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&shop.pool).await.unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        let found = format!(
            "select count(*) from {table} t
              where strpos(t::text, $1) > 0 or strpos(t::text, encode(sha256($1::bytea), 'hex')) > 0
                 or strpos(t::text, encode($1::bytea, 'hex')) > 0"
        );
        let found = sqlx::query_scalar(sqlx::AssertSqlSafe(found)).bind(NEW_PASSWORD);
        let found: i64 = found.fetch_one(&shop.pool).await.unwrap();
        assert_eq!(found, 0, "{table}");
    }
}
