//! The locks over TLS, and the cause that a failed connection reports.

use std::time::Duration;

use holdfast_lock::{Error, Locks, Redis, Released, Settings, TlsFailure, TlsSettings, Wait};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Process, Server, fence, in_line, run};
use crate::topology::{self, Topology, certificates};

/// The authority and the client certificate of the test.
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
    let held = here.take("{a}").await;
    assert!(!there.finds_it_free("{a}").await);
    let waiter = in_line(server, &there, "{a}").await;
    let first = fence(&held, "{a}");
    assert_eq!(held.release().await, Released::Held);
    let next = waiter.await.unwrap();
    assert!(fence(&next, "{a}") > first);
    assert_eq!(here.0.held_locks().await.unwrap().len(), 1);
    next.release().await;
    let free = here.ask("{b}", Wait::Try, Duration::from_secs(5)).await;
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

/// Checks the cause of a failed connection, and that its message says it.
async fn fails(url: &str, settings: &TlsSettings, cause: TlsFailure) {
    let error = ping(url, settings).await.unwrap_err();
    let Error::Unavailable(outage) = &error else { panic!("{error:?}") };
    assert_eq!(outage.tls_failure(), Some(cause), "{error}");
    assert!(error.to_string().contains(&cause.to_string()), "{error}");
}

#[test]
fn untrusted_server_is_not_used() {
    run(Topology::TlsRedis, async |server| {
        fails(server.url(), &TlsSettings::default(), TlsFailure::UnknownAuthority).await;
        for (certificate, cause) in
            [("misnamed", TlsFailure::WrongName), ("expired", TlsFailure::Expired)]
        {
            let other = topology::start_with_certificate(certificate);
            fails(&other.url, &settings(), cause).await;
        }
        ping(server.url(), &settings()).await.unwrap();
    });
}

#[test]
fn server_checks_certificate_of_client() {
    run(Topology::TlsRedis, async |server| {
        fails(server.url(), &trusting(), TlsFailure::ClientCertificateMissing).await;
        let foreign = with_client(&certificates().foreign_client);
        fails(server.url(), &foreign, TlsFailure::ClientCertificateRejected).await;
    });
}

#[test]
fn plain_text_and_tls_do_not_mix() {
    run(Topology::TlsRedis, async |server| {
        let without = server.url().replace("rediss", "redis");
        let error = ping(&without, &TlsSettings::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");

        let [port] = topology::free_ports();
        let _: String = server.ask(&format!("CONFIG SET port {port}"));
        server.spoil();
        let error = ping(&format!("rediss://localhost:{port}"), &settings()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    });
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
    fails(&format!("rediss://localhost:{port}"), &settings(), TlsFailure::PlainText).await;
}

#[test]
fn unusable_certificates_are_refused_at_once() {
    let made = certificates();
    let [authority, server, server_key] = [&made.authority, &made.server, &made.server_key];
    let [client, client_key] = [&made.client, &made.client_key];
    let start = TlsSettings::default;
    for text in ["", "no certificate", client_key] {
        assert!(start().with_authorities(text.as_bytes()).is_err(), "{text}");
    }
    let client_of = |chain: &str, key: &str| {
        start().with_client_certificate(chain.as_bytes(), key.as_bytes()).map(drop)
    };
    client_of(client, client_key).unwrap();
    client_of(&format!("{client}{authority}"), client_key).unwrap();
    for (chain, key, why) in [
        (client, server_key, "the key does not belong to the certificate"),
        (client, client, "there is no private key in PEM"),
        (client_key, client_key, "there is no certificate in PEM"),
        (server, client_key, "the key does not belong to the certificate"),
    ] {
        assert_eq!(
            client_of(chain, key).unwrap_err().to_string(),
            format!("invalid settings: {why}")
        );
    }
}
