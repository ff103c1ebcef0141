//! The probe succeeds if and only if a lock can be acquired, and reports what fails.

use holdfast_lock::{LockKind, Locks, ProbeFailure, Redis, Settings};

use crate::server::{Process, Server, each_topology, run, until};
use crate::topology::Topology;

each_topology!(probe_passes_and_leaves_nothing, user_without_permission_is_reported);

/// The code of the error that the probe of `process` finds; empty if Redis does not respond.
async fn failure(process: &Process) -> Option<(&'static str, String)> {
    let failure = process.0.probe(LockKind::Fenced).await.err()?;
    let kind = match &failure {
        ProbeFailure::Locks(_) => "locks",
        ProbeFailure::Messages(_) => "messages",
    };
    let refusal = failure.error().refusal();
    Some((kind, refusal.map(|refusal| refusal.code().to_owned()).unwrap_or_default()))
}

async fn probe_passes_and_leaves_nothing(server: &Server) {
    let process = server.process();
    assert_eq!(failure(&process).await, None);
    assert_eq!(server.keys(), Vec::<String>::new());
}

async fn user_without_permission_is_reported(server: &Server) {
    server.mark_as_changed();
    let permissions = [
        ("~holdfast:* &holdfast:* +@all", None),
        ("~holdfast:* resetchannels +@all", Some("messages")),
        ("~holdfast:* &holdfast:* +@all -publish", Some("messages")),
        ("~other:* &holdfast:* +@all", Some("locks")),
        ("~holdfast:* &holdfast:* +@all -@scripting", Some("locks")),
        ("~holdfast:* &holdfast:* +@all -zadd", Some("locks")),
        ("%R~holdfast:* &holdfast:* +@all", Some("locks")),
    ];
    for (permission, expected) in permissions {
        server.execute_on_all(&format!("ACL SETUSER shop reset on >word {permission}"));
        let process = crate::logins::process_of(server, "shop");
        let expected = expected.map(|kind| (kind, "NOPERM".to_owned()));
        assert_eq!(failure(&process).await, expected, "{permission}");
    }
}

#[test]
fn probe_covers_each_primary_of_a_cluster() {
    run(Topology::Cluster, async |server| {
        server.mark_as_changed();
        let process = server.process();
        for number in 0..3 {
            let _: String = server.query_node(number, "CONFIG SET maxmemory 1").unwrap();
            assert_eq!(failure(&process).await, Some(("locks", "OOM".to_owned())), "{number}");
            let _: String = server.query_node(number, "CONFIG SET maxmemory 0").unwrap();
        }
        until("it passes again", async || failure(&process).await.is_none()).await;
    });
}

#[test]
fn probe_of_a_quorum_takes_a_majority() {
    run(Topology::Redis, async |server| {
        let node = |url: &str| Redis::open(url).unwrap();
        let quorum = |urls: [&str; 3]| {
            let locks = Locks::new(node(server.url()), Settings::default()).unwrap();
            locks.with_quorum(urls.map(node).into())
        };
        let (here, away) = (server.url(), "redis://127.0.0.1:1");
        quorum([here, here, away]).probe(LockKind::Quorum).await.unwrap();
        quorum([here, away, away]).probe(LockKind::Quorum).await.unwrap_err();
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}
