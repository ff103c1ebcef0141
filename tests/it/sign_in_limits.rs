//! Rate limits of signing in: a password can't be guessed from one address or from many, and the
//! attempts do not lock the owner out.

use holdfast_testkit::topology::command_calls;
use holdfast_testkit::{Reply, TestShop, until};

use crate::rate_limits::{NO_OTHER_LIMITS, shop_with_limits};

const BEHIND_A_PROXY: (&str, &str) = ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.0/8");

async fn sign_in_from(
    shop: &TestShop,
    replica: usize,
    from: &str,
    user: &str,
    password: &str,
) -> Reply {
    let call = shop.anonymous().at(replica).signs_in(user, password);
    call.header("X-Forwarded-For", from).await
}

#[tokio::test(flavor = "multi_thread")]
async fn password_guessing_does_not_lock_out_owner() {
    let shop =
        shop_with_limits(2, &[("HOLDFAST_LIMIT_SIGN_IN_NAME", "4/h:4"), BEHIND_A_PROXY]).await;
    let known_address = "203.0.113.7";
    let session = sign_in_from(&shop, 0, known_address, "bob", "bob").await.ok();
    let bob = shop.anonymous().with_token(session["token"].as_str().unwrap());
    let mut statuses = Vec::new();
    for n in 0..10 {
        let from = format!("198.51.100.{n}");
        statuses.push(sign_in_from(&shop, n % 2, &from, "bob", &format!("guess-{n}")).await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 429, 429, 429, 429, 429, 429, 429]);
    // Even the right password is rejected from an address that never signed in with it.
    let rejected = sign_in_from(&shop, 0, "198.51.100.77", "bob", "bob").await;
    let wait: u64 = rejected.header("retry-after").parse().unwrap();
    assert!((1..=900).contains(&wait), "{wait}");
    rejected.fails(429, "too-many-requests");
    // The owner can sign in from his known address at either replica, and his session is still
    // valid.
    assert_eq!(sign_in_from(&shop, 1, known_address, "bob", "bob").await.status, 201);
    assert_eq!(sign_in_from(&shop, 0, known_address, "bob", "bob").await.status, 201);
    bob.at(1).get("/api/me").await.succeeds(200);
    // The known address has the same limit as others.
    let more = [
        sign_in_from(&shop, 0, known_address, "bob", "x").await,
        sign_in_from(&shop, 0, known_address, "bob", "x").await,
    ];
    assert_eq!(more.map(|response| response.status), [401, 401]);
    assert_eq!(sign_in_from(&shop, 0, known_address, "bob", "bob").await.status, 429);
    // Other names are not limited, and an invalid name is not counted by name.
    assert_eq!(sign_in_from(&shop, 0, "198.51.100.1", "carol", "carol").await.status, 201);
    for _ in 0..6 {
        assert_eq!(sign_in_from(&shop, 0, "198.51.100.1", "No Such Name", "x").await.status, 401);
    }
}

/// Each form of a name is guessed at within one limit, and an address is known for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn forms_of_a_name_share_one_limit() {
    let shop =
        shop_with_limits(1, &[("HOLDFAST_LIMIT_SIGN_IN_NAME", "3/h:3"), BEHIND_A_PROXY]).await;
    let known_address = "203.0.113.7";
    assert_eq!(sign_in_from(&shop, 0, known_address, "Bob", "bob").await.status, 201);
    let mut statuses = Vec::new();
    for (n, name) in ["bob", "Bob", "BOB", "ｂｏｂ", "bOb"].into_iter().enumerate() {
        let from = format!("198.51.100.{n}");
        statuses.push(sign_in_from(&shop, 0, &from, name, "a guess").await.status);
    }
    assert_eq!(statuses, [401, 401, 429, 429, 429]);
    assert_eq!(sign_in_from(&shop, 0, known_address, "bob", "bob").await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_limit_counts_all_names_together() {
    let shop = shop_with_limits(2, &[("HOLDFAST_LIMIT_SIGN_IN", "3/h:3"), BEHIND_A_PROXY]).await;
    let from = "203.0.113.9";
    assert_eq!(sign_in_from(&shop, 0, from, "alice", "wrong").await.status, 401);
    assert_eq!(sign_in_from(&shop, 1, from, "bob", "bob").await.status, 201);
    let anyone = shop.anonymous();
    let sign_up = |name| anyone.signs_up(name, "long enough").header("X-Forwarded-For", from);
    sign_up("dora").ok().await;
    sign_up("emil").fails(429, "too-many-requests").await;
    assert_eq!(sign_in_from(&shop, 1, from, "carol", "carol").await.status, 429);
    assert_eq!(shop.number("select count(*) from users where name = 'emil'").await, 0);
    // The forms share the limit.
    for (page, form) in
        [("/sign-in", "user=carol&password=carol"), ("/sign-up", "user=emil&password=emil")]
    {
        let form = anyone.form(page, form).header("X-Forwarded-For", from);
        let form = form.header("Accept", "text/html").await;
        assert_eq!(form.status, 429, "{page}");
        assert!(form.text().contains("Too many requests"), "{page}");
    }
    assert_eq!(sign_in_from(&shop, 0, "203.0.113.10", "carol", "carol").await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_ipv6_network_is_limited_as_one() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_SIGN_IN", "2/h:2"), BEHIND_A_PROXY]).await;
    let mut statuses = Vec::new();
    for n in 0..10 {
        let from = format!("2001:db8:1:{n}::7");
        statuses.push(sign_in_from(&shop, 0, &from, "bob", "wrong").await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 401, 401, 401, 401, 401, 429, 429]);
    let rejected = sign_in_from(&shop, 0, "2001:db8:1:77::7", "bob", "bob").await;
    let body: serde_json::Value = rejected.body;
    assert_eq!(body["limit"], "sign-in-network");
    assert_eq!(sign_in_from(&shop, 0, "2001:db8:2:1::7", "bob", "bob").await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_address_costs_no_redis_call() {
    let (mut shop, redis) = TestShop::with_own_redis().await;
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend([("REDIS_URL", redis.url.as_str()), ("HOLDFAST_LIMIT_SIGN_IN", "3/h:3")]);
    env.push(("HOLDFAST_LIMIT_SIGN_IN_NAME", "1000/s"));
    shop.add_replica(&env);
    let here = "127.0.0.1";
    until("the limit is used up", async || {
        sign_in_from(&shop, 2, here, "bob", "wrong").await.status == 429
    })
    .await;
    let calls = || {
        let counts = command_calls(&redis.url);
        let number = |name: &str| counts.get(name).copied().unwrap_or(0);
        // The checks of Redis are scripts, too, and the only ones that publish.
        [number("zscore"), number("evalsha") - number("publish"), number("eval")]
    };
    let before = calls();
    assert!(before[0] >= 3, "known addresses are looked up: {before:?}");
    for n in 0..50 {
        sign_in_from(&shop, 2, here, ["alice", "bob"][n % 2], "bob")
            .await
            .fails(429, "too-many-requests");
    }
    assert_eq!(calls(), before);
}
