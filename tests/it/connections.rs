//! Connections: how many an address may have, what they may cost, and when they are closed.

use std::io::ErrorKind;
use std::net::SocketAddr;

use futures_util::future::join_all;
use holdfast_testkit::{CONDITION_TIMEOUT, Replica, TestShop, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::metrics::{metrics, value};
use crate::slow_clients::{read_to_end, send_raw};

pub const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection from another address of this machine, with a small receive buffer.
async fn connect_from(shop: &TestShop, from: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let address = shop.replicas[0].base_url.strip_prefix("http://").unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

/// Returns whether a request on this connection has a response, which is read.
pub async fn is_served(connection: &mut TcpStream) -> bool {
    let mut response = String::new();
    let exchange = async {
        connection.write_all(HEALTH.as_bytes()).await?;
        while response.split_once("\r\n\r\n").is_none_or(|(_, body)| body.is_empty()) {
            let mut bytes = [0; 1_024];
            match connection.read(&mut bytes).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => response += std::str::from_utf8(&bytes[..read]).unwrap(),
            }
        }
        std::io::Result::Ok(())
    };
    let exchange = timeout(CONDITION_TIMEOUT, exchange).await.expect("a response, or the end");
    exchange.is_ok() && response.starts_with("HTTP/1.1 200 ")
}

async fn rejected_count(shop: &TestShop, limit: &str) -> Option<f64> {
    let line = format!("holdfast_http_connections_rejected_total{{limit=\"{limit}\"}}");
    value(&metrics(shop, 0).await, &line)
}

#[tokio::test]
async fn connections_of_address_are_bounded() {
    let env = [("HOLDFAST_LIMIT_CONNECTIONS", "3"), ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.3")];
    let shop = TestShop::start_with(1, &env).await;
    let mut open = Vec::new();
    for n in 0..3 {
        let mut connection = connect_from(&shop, "127.0.0.2").await;
        assert!(is_served(&mut connection).await, "{n}");
        open.push(connection);
    }
    assert!(!is_served(&mut connect_from(&shop, "127.0.0.2").await).await);
    assert_eq!(rejected_count(&shop, "address").await, Some(1.0));
    let mut proxied = Vec::new();
    for n in 0..6 {
        let mut connection = connect_from(&shop, "127.0.0.3").await;
        assert!(is_served(&mut connection).await, "{n} of the proxy");
        proxied.push(connection);
    }
    open.pop();
    until("a closed connection makes room", async || {
        is_served(&mut connect_from(&shop, "127.0.0.2").await).await
    })
    .await;
}

/// The limit leaves files for everything else. Connections in excess of the file limit that are
/// opened at the same time are closed too.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_process_are_bounded() {
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    // The limit per address is off in the lab.
    let env = [("HOLDFAST_POOL_SIZE", "16"), ("HOLDFAST_LIMIT_CONNECTIONS", "4096")];
    let start = |env: &[(&str, &str)]| Replica::start_with_all_files_limited(240, log.path(), env);
    shop.add_replica_with(start, &env);
    let max = 240 - 128 - 16;
    let mut open = Vec::new();
    // One address gets half of them.
    for address in ["127.0.0.2", "127.0.0.3"] {
        for n in 0..max / 2 {
            let mut connection = connect_from(&shop, address).await;
            assert!(is_served(&mut connection).await, "{n} of {address}");
            open.push(connection);
        }
        assert!(!is_served(&mut connect_from(&shop, address).await).await);
    }
    let excess =
        (0..400).map(async |_| is_served(&mut connect_from(&shop, "127.0.0.2").await).await);
    assert!(join_all(excess).await.into_iter().all(|served| !served));
    for (n, connection) in open.iter_mut().enumerate() {
        assert!(is_served(connection).await, "{n}");
    }
    open.truncate(open.len() - 10);
    until("closed connections make room", async || {
        is_served(&mut connect_from(&shop, "127.0.0.4").await).await
    })
    .await;
    let alice = shop.sign_in("alice").await;
    alice.orders("deadbolt", 1).ok().await;
    assert!(rejected_count(&shop, "process").await.unwrap() >= 401.0);
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(log.matches("a connection was refused").count(), 1, "{log}");
    assert_eq!(log.matches("a process may open 240 files").count(), 1, "{log}");
    assert_eq!(log.lines().count(), 2, "{log}");
}

/// A low soft limit is raised; a low hard limit is named, with what is left and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn low_limit_of_files_is_raised_or_named() {
    let mut shop = TestShop::without_replicas().await;
    let start = |env: &[(&str, &str)]| Replica::start_with_file_limit(64, env);
    shop.add_replica_with(start, &[]);
    let mut open = Vec::new();
    for n in 0..60 {
        let mut connection = connect_from(&shop, "127.0.0.2").await;
        assert!(is_served(&mut connection).await, "{n}");
        open.push(connection);
    }
    shop.replicas.clear();

    for files in [64, 128] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let start =
            |env: &[(&str, &str)]| Replica::start_with_all_files_limited(files, log.path(), env);
        shop.add_replica_with(start, &[]);
        let log = std::fs::read_to_string(log.path()).unwrap();
        let named = format!("may open {files} files, and a replica needs 144");
        for part in [named.as_str(), "0 are left for the connections", "1144 or more"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        shop.replicas.clear();
    }
}

/// The kernel ends a connection whose client does not read what was sent.
#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LIMIT_CONNECTIONS", "1")]).await;
    let mut idle = connect_from(&shop, "127.0.0.2").await;
    assert!(is_served(&mut idle).await);
    let request = "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(8);
    idle.write_all(request.as_bytes()).await.unwrap();
    assert!(!is_served(&mut connect_from(&shop, "127.0.0.2").await).await);
    until("it is closed", async || is_served(&mut connect_from(&shop, "127.0.0.2").await).await)
        .await;
    drop(idle);
}

#[tokio::test]
async fn malformed_requests_are_not_logged() {
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    shop.add_replica_with(start, &[("HOLDFAST_LOG", "info")]);
    for _ in 0..50 {
        let response =
            read_to_end(&mut send_raw(&shop, 0, "\u{1}\u{2} nonsense\r\n\r\n").await).await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    }
    shop.replicas[0].terminate();
    assert!(shop.replicas[0].wait_for_exit().await);
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("stopping"), "{log}");
    assert!(!log.contains("stream error"), "{log}");
}
