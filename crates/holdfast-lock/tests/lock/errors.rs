//! The cause of each error: Redis refuses, or something else is at its address.
//! (That it is away: `known_issues`, `faults`, `topologies`.)

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
    locks.acquire(AcquireRequest { kind, wait: Wait::Try, ttl: None, deadline, keys }).await
}

/// Checks that concurrent locks of every kind on `key` are refused with the code, and the advice
/// for it.
async fn is_refused(locks: &Locks, key: &str, code: &str, advice: &str) {
    let all = KINDS.map(async |kind| (kind, acquire(locks, kind, key).await));
    for (kind, refused) in join_all(all).await {
        let Err(Error::Refused(error)) = &refused else { panic!("{kind:?} {code}: {refused:?}") };
        assert_eq!(error.code(), Some(code), "{kind:?}: {error}");
        let text = refused.unwrap_err().to_string();
        assert!(text.ends_with(advice), "{kind:?}: {text}");
    }
}

#[test]
fn refused_command_names_its_code() {
    run(Topology::Redis, async |server| {
        server.spoil();
        let known = locks(server.url());
        let ask = |command: &str| -> String { server.ask_one(0, command).unwrap() };
        let _: i64 = server.ask_one(0, "LPUSH holdfast:lock:{list} 1").unwrap();
        is_refused(&known, "{list}", "WRONGTYPE", "choose another key_prefix").await;
        ask("CONFIG SET maxmemory 1");
        is_refused(&known, "{a}", "OOM", "raise maxmemory, or delete keys").await;
        ask("CONFIG SET maxmemory 0");
        ask("REPLICAOF 127.0.0.1 1");
        is_refused(&known, "{a}", "READONLY", "or wait for the failover").await;
        ask("REPLICAOF NO ONE");
        ask("CONFIG SET requirepass secret");
        let password = "check the user and the password in the address";
        is_refused(&locks(server.url()), "{a}", "NOAUTH", password).await;
        let with = |word: &str| locks(&format!("{}?user=default&pass={word}", server.url()));
        is_refused(&with("wrong"), "{a}", "WRONGPASS", password).await;
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
