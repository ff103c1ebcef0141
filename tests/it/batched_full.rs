//! `batched` when more people want one thing than may wait for it.

use holdfast::shop::combine::MOST_WAITING;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::common::{Shop, User};
use crate::queue::{Barrier, fresh_key};

/// More than may wait.
const TOO_MANY: usize = 100;

/// A connection each: this process and its replicas get as many as they may have.
fn with_room_for(connections: usize) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.is_none_or(|most| most > connections as u64 + 200)
}

/// An order as its bytes; a client that has thousands of them needs nothing more.
fn order(who: &User, sku: &str) -> String {
    let body = format!(r#"{{"lines":[{{"sku":"{sku}","quantity":1}}]}}"#);
    format!(
        "POST /api/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Idempotency-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        who.token,
        fresh_key(),
        body.len(),
    )
}

/// The first bytes of its answer.
async fn ask(mut connection: TcpStream, order: String) -> String {
    connection.write_all(order.as_bytes()).await.unwrap();
    let mut buffer = [0; 4_096];
    let length = connection.read(&mut buffer).await.unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_the_line_full_is_told_at_once_and_nobody_else_is_bothered() {
    if !with_room_for(MOST_WAITING + TOO_MANY) {
        println!("skipped: so many connections are not allowed here");
        return;
    }
    // On a slow machine it takes a while until all of them have been read.
    let shop = Shop::start_with(1, &[("HOLDFAST_LOCK_TIMEOUT_MS", "7000")]).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let address = shop.replicas[0].base_url.trim_start_matches("http://").to_owned();
    let mut connections = Vec::new();
    for _ in 0..MOST_WAITING + TOO_MANY {
        connections.push(TcpStream::connect(&address).await.unwrap());
    }
    let barrier = Barrier::before_item(&shop, &sku).await;
    let (answered, mut answers) = mpsc::unbounded_channel();
    for connection in connections {
        let (answered, order) = (answered.clone(), order(&alice, &sku));
        tokio::spawn(async move { answered.send(ask(connection, order).await) });
    }
    drop(answered);
    for _ in 0..TOO_MANY {
        let answer = answers.recv().await.unwrap();
        let head = answer.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 503") && head.contains("retry-after: 1"), "{answer}");
        assert!(head.contains("/problems/overloaded"), "{answer}");
    }
    barrier.open().await;
    let mut placed = 0;
    while let Some(answer) = answers.recv().await {
        // Whose time was up on a slow machine has not bought anything.
        let late = answer.starts_with("HTTP/1.1 503") && !answer.contains("unknown");
        assert!(late || answer.starts_with("HTTP/1.1 201"), "{answer}");
        placed += i64::from(!late);
    }
    assert!(placed > 0);
    assert_eq!(shop.number("select count(*) from orders").await, placed);
    shop.until_nothing_is_locked(0).await;
    shop.assert_sound().await;
}
