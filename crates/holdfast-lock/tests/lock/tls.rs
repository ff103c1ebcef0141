//! The locks over TLS, and the cause that a failed connection reports.

use std::time::Duration;

use holdfast_lock::{Error, Locks, Redis, Released, Settings, TlsFailure, TlsSettings, Wait};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Process, Server, enqueue, fence, run};
use crate::topology::{Topology, certificates};

fn settings() -> TlsSettings {
    with_client(&certificates().client)
}

fn with_client(certificate: &str) -> TlsSettings {
    let settings = trusting();
    let key = certificates().client_key.as_bytes();
    settings.with_client_certificate(certificate.as_bytes(), key).unwrap()
}

fn trusting() -> TlsSettings {
    TlsSettings::default().with_authorities(certificates().authority.as_bytes()).unwrap()
}

fn process(server: &Server) -> Process {
    let redis = Redis::open_with_tls(server.url(), &settings()).unwrap();
    Process(Locks::new(redis, Settings::default()).unwrap())
}

async fn ping(url: &str, settings: &TlsSettings) -> Result<(), Error> {
    let redis = Redis::open_with_tls(url, settings).unwrap();
    crate::server::ping(&redis).await.map_err(Error::from)
}

/// The lock's calls, its subscription, a handoff to another process, and the search for keys.
async fn lock_is_handed_off(server: &Server) {
    let (here, there) = (process(server), process(server));
    let held = here.lock("{a}").await;
    assert!(!there.is_free("{a}").await);
    let waiter = enqueue(server, &there, "{a}").await;
    let first = fence(&held, "{a}");
    assert_eq!(held.release().await, Released::Held);
    let next = waiter.await.unwrap();
    assert!(fence(&next, "{a}") > first);
    assert_eq!(here.0.held_locks().await.unwrap().len(), 1);
    next.release().await;
    let free = here.acquire("{b}", Wait::Try, Duration::from_secs(5)).await;
    assert!(matches!(free, holdfast_lock::AcquireOutcome::Acquired(_)), "{free:?}");
}

#[test]
fn one_server_is_reached_with_tls() {
    run(Topology::TlsRedis, async |server| lock_is_handed_off(server).await);
}

#[test]
fn every_node_of_cluster_is_reached_with_tls() {
    run(Topology::TlsCluster, async |server| {
        lock_is_handed_off(server).await;
        let redis = Redis::open_with_tls(server.url(), &settings()).unwrap();
        assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("noeviction"));
    });
}

#[test]
fn primary_behind_sentinels_is_reached_with_tls() {
    run(Topology::TlsSentinel, async |server| lock_is_handed_off(server).await);
}

#[tokio::test]
async fn response_without_tls_is_recognized() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(b"-ERR no TLS here\r\n").await;
            let _ = client.read(&mut [0; 1_000]).await;
        }
    });
    let url = format!("rediss://localhost:{port}");
    let error = ping(&url, &settings()).await.unwrap_err();
    let Error::Unavailable(outage) = &error else { panic!("{error:?}") };
    assert_eq!(outage.tls_failure(), Some(TlsFailure::PlainText), "{error}");
    assert!(error.to_string().contains(&TlsFailure::PlainText.to_string()), "{error}");
}
