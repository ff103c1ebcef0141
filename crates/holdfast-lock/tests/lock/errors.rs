//! The cause of each error: Redis rejects a command, or another server is at its address.
//! (Outages: `known_issues`, `faults`, `topologies`.)

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::{
    AcquireOutcome, AcquireRequest, Error, LockKey, LockKind, Locks, Redis, Settings, Wait,
};
use tokio::io::AsyncWriteExt as _;

use crate::server::run;
use crate::topology::Topology;

const KINDS: [LockKind; 3] = [LockKind::Owner, LockKind::Watchdog, LockKind::Fenced];

fn locks(url: &str) -> Locks {
    Locks::new(Redis::open(url).unwrap(), Settings::default()).unwrap()
}

async fn acquire(locks: &Locks, kind: LockKind, key: &str) -> Result<AcquireOutcome, Error> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let keys = &[LockKey::new(key).unwrap()];
    locks
        .acquire(AcquireRequest::new(kind, keys).with_wait(Wait::Try).with_deadline(deadline))
        .await
}

/// Asserts that concurrent acquisitions of every kind on `key` fail with the code and its advice.
async fn assert_refused(locks: &Locks, key: &str, code: &str, advice: &str) {
    let all = KINDS.map(async |kind| (kind, acquire(locks, kind, key).await));
    for (kind, result) in join_all(all).await {
        let Err(Error::Refused(error)) = &result else { panic!("{kind:?} {code}: {result:?}") };
        assert_eq!(error.code(), Some(code), "{kind:?}: {error}");
        let text = result.unwrap_err().to_string();
        assert!(text.ends_with(advice), "{kind:?}: {text}");
    }
}

#[test]
fn refused_command_names_its_code() {
    run(Topology::Redis, async |server| {
        server.mark_as_changed();
        let known = locks(server.url());
        let execute = |command: &str| -> String { server.query_node(0, command).unwrap() };
        let _: i64 = server.query_node(0, "LPUSH holdfast:lock:{list} 1").unwrap();
        assert_refused(&known, "{list}", "WRONGTYPE", "choose another key_prefix").await;
        execute("CONFIG SET maxmemory 1");
        assert_refused(&known, "{a}", "OOM", "raise maxmemory, or delete keys").await;
        execute("CONFIG SET maxmemory 0");
        execute("REPLICAOF 127.0.0.1 1");
        assert_refused(&known, "{a}", "READONLY", "or wait for the failover").await;
        execute("REPLICAOF NO ONE");
        execute("CONFIG SET requirepass secret");
        let advice = "check the user and the password in the address";
        assert_refused(&locks(server.url()), "{a}", "NOAUTH", advice).await;
        let with =
            |password: &str| locks(&format!("{}?user=default&pass={password}", server.url()));
        assert_refused(&with("wrong"), "{a}", "WRONGPASS", advice).await;
        let with_password = with("secret");
        for kind in KINDS {
            let acquired = acquire(&with_password, kind, "{a}").await;
            let Ok(AcquireOutcome::Acquired(guards)) = acquired else { panic!("{acquired:?}") };
            guards.release().await;
        }
    });
}

#[tokio::test]
async fn server_that_is_not_redis_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let locks = locks(&format!("redis://{}", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for kind in KINDS {
        let failed = acquire(&locks, kind, "{a}").await;
        assert!(
            matches!(&failed, Err(error) if error.refusal().unwrap().code() == "NOTREDIS"),
            "{kind:?}: {failed:?}"
        );
    }
    server.abort();
}
