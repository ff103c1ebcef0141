//! Sessions: listing and ending them, their cookie, and warnings about who can sign in.

use std::fs;
use std::path::Path;

use holdfast_testkit::replica::Replica;
use holdfast_testkit::{TestShop, User, id_of, until};
use reqwest::Method;
use serde_json::Value;

use crate::rate_limits::NO_OTHER_LIMITS;

async fn list(who: &User, query: &str) -> (Vec<Value>, Value, String) {
    let path = format!("/api/sessions{query}");
    let response = who.get(&path).await;
    let link = response.header("link").to_owned();
    let list = response.ok();
    (list["items"].as_array().unwrap().clone(), list["next"].clone(), link)
}

async fn status_of(who: &User, replica: usize) -> u16 {
    who.at(replica).get("/api/me").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn user_lists_and_ends_own_sessions() {
    let shop = TestShop::start(2).await;
    let first = shop.sign_in("alice").await;
    let second = shop.sign_in("alice").await;
    let third = shop.sign_in("alice").await;
    let bob = shop.sign_in("bob").await;
    let (all, next, link) = list(&second, "").await;
    assert_eq!((all.len(), &next, link.as_str()), (3, &Value::Null, ""));
    let current: Vec<_> = all.iter().map(|session| session["current"].as_bool().unwrap()).collect();
    assert_eq!(current, [false, true, false]);
    for pair in all.windows(2) {
        let at = |session: &Value| session["created_at"].as_str().unwrap().to_owned();
        assert!(at(&pair[0]) >= at(&pair[1]), "the latest is first");
    }
    let (page, next, link) = list(&second, "?limit=2").await;
    assert_eq!((&page[..], next.as_str()), (&all[..2], Some(id_of(&all[1]).as_str())));
    assert_eq!(link, format!("</api/sessions?after={}&limit=2>; rel=\"next\"", id_of(&all[1])));
    let (rest, next, _) = list(&second, &format!("?limit=2&after={}", id_of(&all[1]))).await;
    assert_eq!((&rest[..], next), (&all[2..], Value::Null));

    // Both replicas have cached the session that ends.
    assert_eq!([status_of(&third, 0).await, status_of(&third, 1).await], [200, 200]);
    let end =
        |who: &User, id: &str| who.request(Method::DELETE, &format!("/api/sessions/{id}")).send();
    for unknown in [end(&bob, &id_of(&all[0])).await, end(&first, "first").await] {
        unknown.fails(404, "not-found");
    }
    assert_eq!(status_of(&third, 0).await, 200);
    assert_eq!(end(&first, &id_of(&all[0])).await.status, 204);
    assert_eq!(status_of(&third, 0).await, 401);
    until("the other replica ends it too", async || status_of(&third, 1).await == 401).await;
    end(&first, &id_of(&all[0])).fails(404, "not-found").await;
    let (rest, _, _) = list(&second, &format!("?limit=2&after={}", id_of(&all[0]))).await;
    assert_eq!(rest, all[1..], "from the start, because the session has ended");
    for other in [&first, &second, &bob] {
        assert_eq!(status_of(other, 0).await, 200, "{}", other.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secure_cookies_are_bound_to_host() {
    let mut shop = TestShop::start_with(1, &[("HOLDFAST_SECURE_COOKIES", "on")]).await;
    shop.add_replica(&[]);
    // Redirects would lose the cookie.
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    shop.http = http.unwrap();
    let form = async |replica: usize, path: &str, fields: &'static str| {
        let response = shop.anonymous().at(replica).form(path, fields).await;
        response.header("set-cookie").to_owned()
    };
    for (path, fields, name) in [
        ("/sign-in", "user=alice&password=alice", "holdfast_session"),
        ("/basket/lines", "sku=deadbolt&quantity=1", "holdfast_basket"),
    ] {
        let secure = form(0, path, fields).await;
        assert!(secure.starts_with(&format!("__Host-{name}=")), "{secure}");
        for attribute in ["; Secure", "; HttpOnly", "; SameSite=Lax", "; Path=/"] {
            assert!(secure.contains(attribute), "{secure}");
        }
        assert!(!secure.contains("Domain"), "{secure}");
        let plain = form(1, path, fields).await;
        assert!(plain.starts_with(&format!("{name}=")) && !plain.contains("Secure"), "{plain}");
    }
    let alice = shop.sign_in("alice").await;
    for (name, status) in [("__Host-holdfast_session", 200), ("holdfast_session", 401)] {
        let cookie = format!("{name}={}", alice.token);
        let me = shop.anonymous().get("/api/me").header("Cookie", cookie);
        assert_eq!(me.await.status, status, "{name}");
    }
}

fn lines_with(log: &Path, text: &str) -> Vec<String> {
    let lines = fs::read_to_string(log).unwrap();
    lines.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_users_on_network_are_reported() {
    const WARNING: &str = "can be reached from other machines";
    let mut shop = TestShop::without_replicas().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start = |shop: &mut TestShop, listen: &str| {
        let start = |env: &[(&str, &str)]| Replica::start_with_log(&log, env);
        shop.add_replica_with(start, &[("HOLDFAST_LISTEN", listen)]);
        lines_with(&log, WARNING)
    };
    assert_eq!(start(&mut shop, "127.0.0.1:0"), [""; 0]);
    let reported = start(&mut shop, "0.0.0.0:0");
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains("alice, bob, carol, admin"), "{reported:?}");
    let other = "update users set password_hash = (
                     select password_hash from users where name = 'alice') where name = 'admin';
                 update users set disabled_at = now() where name in ('alice', 'bob')";
    sqlx::raw_sql(other).execute(&shop.pool).await.unwrap();
    let reported = start(&mut shop, "0.0.0.0:0");
    assert!(reported[1].contains("are their names: carol."), "{reported:?}");
    let renamed = "update users set name = 'carla' where name = 'carol'";
    sqlx::raw_sql(renamed).execute(&shop.pool).await.unwrap();
    assert_eq!(start(&mut shop, "0.0.0.0:0").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_proxy_is_reported_once() {
    let mut shop = TestShop::without_replicas().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.push(("HOLDFAST_LIMIT_ADDRESS", "1000/s"));
    for proxies in ["127.0.0.0/8", "10.0.0.0/8"] {
        let env = [&env[..], &[("HOLDFAST_TRUSTED_PROXIES", proxies)]].concat();
        shop.add_replica_with(|env| Replica::start_with_log(&log, env), &env);
        let replica = shop.replicas.len() - 1;
        for n in 0..3 {
            let items = shop.anonymous().at(replica).get("/api/items");
            items.header("X-Forwarded-For", format!("203.0.113.{n}")).ok().await;
        }
        // The line is written before the response.
        let warnings = lines_with(&log, "127.0.0.1 sent X-Forwarded-For");
        assert_eq!(warnings.len(), usize::from(proxies == "10.0.0.0/8"), "{warnings:?}");
    }
    let sign_in = shop.anonymous().at(1).signs_in("alice", "alice");
    sign_in.header("X-Forwarded-For", "203.0.113.9").ok().await;
    assert_eq!(lines_with(&log, "sent X-Forwarded-For").len(), 1);
}
