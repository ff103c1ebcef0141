//! A name is one user's in any case and width, wherever it is typed; a password is one in each way
//! to compose its letters.

use holdfast_testkit::{TestShop, fresh_key};
use reqwest::Method;
use serde_json::json;

/// The name `alice` as people type it.
const ALICE: [&str; 4] = ["alice", "Alice", "ALICE", "ａｌｉｃｅ"];
const PASSWORD: &str = "Crème-brûlée-7";
/// The same password, its accents as characters of their own: macOS passes file names so.
const DECOMPOSED: &str = "Cre\u{300}me-bru\u{302}le\u{301}e-7";

#[tokio::test(flavor = "multi_thread")]
async fn name_is_one_in_any_case_and_width() {
    let shop = TestShop::start(1).await;
    let anyone = shop.anonymous();
    for name in ALICE {
        let session = anyone.signs_in(name, "alice").ok().await;
        let alice = anyone.with_token(session["token"].as_str().unwrap());
        assert_eq!(alice.reads("/api/me").await["user"], "alice", "{name}");
        anyone.signs_up(name, PASSWORD).fails(409, "exists").await;
    }

    assert_eq!(anyone.signs_up("Dora", PASSWORD).ok().await["user"], "dora");
    anyone.signs_up("DORA", PASSWORD).fails(409, "exists").await;
    assert_eq!(shop.number("select count(*) from users where name = 'dora'").await, 1);

    for name in ["LAB-1", "Class-1", "Émile", "al ice", " alice", "ª", "\u{212a}arl"] {
        let refused = anyone.signs_up(name, PASSWORD).fails(422, "invalid-request").await;
        assert_eq!(refused["errors"][0]["field"], "user", "{name}");
        anyone.signs_in(name, PASSWORD).fails(401, "unauthenticated").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_finds_user_by_any_form_of_name() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    alice.orders("deadbolt", 1).ok().await;

    let key = fresh_key();
    let disables = |name: &str| {
        let path = format!("/api/admin/users/{name}");
        admin.request(Method::PATCH, &path).key(&key).json(&json!({ "disabled": true }))
    };
    let first = disables("alice").await;
    for name in ALICE {
        assert_eq!(admin.reads(&format!("/api/admin/users/{name}")).await["user"], "alice");
        disables(name).await.replays(&first);

        for list in ["users?search", "orders?user"] {
            let found = admin.reads(&format!("/api/admin/{list}={name}")).await;
            let number = found["items"].as_array().map_or(0, Vec::len);
            assert_eq!(number, 1, "{list}={name}: {found}");
        }
        for page in ["users?search", "orders?user", "log?user", "log.csv?user"] {
            let page = admin.get(&format!("/admin/{page}={name}"));
            let text = page.header("Accept", "text/html").await.text();
            assert!(text.contains(">alice<") || text.contains(",alice,"), "{name}: {text}");
        }
    }
    first.ok();
    assert_eq!(shop.number("select count(*) from admin_log").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_one_in_each_normal_form() {
    let shop = TestShop::start(1).await;
    let anyone = shop.anonymous();
    for (name, set, typed) in [("dora", PASSWORD, DECOMPOSED), ("emil", DECOMPOSED, PASSWORD)] {
        anyone.signs_up(name, set).ok().await;
        let session = anyone.signs_in(name, typed).ok().await;
        anyone.signs_in(name, set).ok().await;
        anyone.signs_in(name, &set.to_uppercase()).fails(401, "unauthenticated").await;
        anyone.signs_in(name, "Creme-brulee-7").fails(401, "unauthenticated").await;

        let user = anyone.with_token(session["token"].as_str().unwrap());
        user.changes_password(typed, "another password").ok().await;
    }

    // The length is that of the composed form: four characters here, and eight code points.
    let short = "e\u{301}".repeat(4);
    let refused = anyone.signs_up("fritz", &short).fails(422, "invalid-request").await;
    assert_eq!(refused["errors"][0]["field"], "password");
    let longest = "e\u{301}".repeat(256);
    anyone.signs_up("fritz", &longest).ok().await;
    anyone.signs_in("fritz", &longest).ok().await;
}

/// [`DECOMPOSED`], as a build before this one hashed it.
const OLD_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$vY5ClFW/hMhENcVvaLO6PQ$7I/aFyNO4gi1ZK5FOrQY+Tq1HK8UfuK3xUxSnPl1Thk";

#[tokio::test(flavor = "multi_thread")]
async fn password_hashed_as_typed_works_on() {
    let shop = TestShop::start(1).await;
    let set = sqlx::query("update users set password_hash = $1 where name = 'alice'");
    set.bind(OLD_HASH).execute(&shop.pool).await.unwrap();
    let anyone = shop.anonymous();
    anyone.signs_in("alice", DECOMPOSED).ok().await;
    anyone.signs_in("alice", "Creme-brulee-7").fails(401, "unauthenticated").await;
}
