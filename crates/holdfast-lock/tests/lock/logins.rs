//! Permissions: a login that the server rejects for a while, because its ACL is loaded late or a
//! password is changed, and a user without channels.

use holdfast_lock::{Error, Locks, Redis, Released, Settings};

use crate::server::{Process, Server, each_topology, run, until};
use crate::topology::{self, Topology};

each_topology!(refused_login_is_retried, user_without_channels_gets_every_lock);

pub fn process_of(server: &Server, user: &str) -> Process {
    let url = match server.url() {
        url if url.starts_with("redis+unix:") => format!("{url}?user={user}&pass=word"),
        url => url.replace("://", &format!("://{user}:word@")),
    };
    Process(Locks::new(Redis::open(&url).unwrap(), Settings::default()).unwrap())
}

async fn is_refused(process: &Process, code: &str) -> bool {
    match process.try_acquire(&["{a}"], holdfast_lock::Wait::Notify, crate::server::TTL).await {
        Err(Error::Refused(error)) => error.code() == Some(code),
        _ => false,
    }
}

async fn refused_login_is_retried(server: &Server) {
    server.mark_as_changed();
    let user = "ACL SETUSER shop on >word ~holdfast:* &holdfast:* +@all";
    let execute_on_all = |command: &str| server.execute_on_all(command);
    let listens = || server.query_each::<String>("CLIENT LIST TYPE pubsub").concat();
    execute_on_all(user);
    let process = process_of(server, "shop");
    process.lock("{a}").await.release().await;
    until("it listens", async || listens().contains("user=shop")).await;

    execute_on_all("ACL DELUSER shop");
    until("it is refused", async || is_refused(&process, "WRONGPASS").await).await;

    execute_on_all(user);
    until("it is served again", async || {
        process.try_acquire(&["{a}"], holdfast_lock::Wait::Try, crate::server::TTL).await.is_ok()
    })
    .await;
    until("it listens again", async || listens().contains("user=shop")).await;
}

/// New users of Redis 7 have no channels by default. The messages are hints: waiters poll.
async fn user_without_channels_gets_every_lock(server: &Server) {
    server.mark_as_changed();
    server.execute_on_all("ACL SETUSER shop on >word ~holdfast:* resetchannels +@all");
    let processes = [process_of(server, "shop"), process_of(server, "shop")];
    let mut acquisitions = tokio::task::JoinSet::new();
    for number in 0..20 {
        let process = processes[number % 2].clone();
        acquisitions.spawn(async move {
            let guards = process.lock("{a}").await;
            // Other tasks wait by now: the lock is handed off.
            tokio::task::yield_now().await;
            guards.release().await
        });
    }
    let released = acquisitions.join_all().await;
    assert_eq!(released, [Released::Held; 20]);
}

#[test]
fn password_demanded_for_a_while_is_survived() {
    run(Topology::Redis, async |server| {
        server.mark_as_changed();
        let admin = format!("{}?user=admin&pass=word", server.url());
        let execute = |command: &str| topology::query::<::redis::Value>(&admin, command).unwrap();
        let _: String = server.query("ACL SETUSER admin on >word ~* &* +@all");
        let process = server.process();
        process.lock("{a}").await.release().await;

        execute("CONFIG SET requirepass secret");
        execute("CLIENT KILL USER default");
        until("it is refused", async || is_refused(&process, "NOAUTH").await).await;

        execute("ACL SETUSER default nopass");
        until("it is served again", async || {
            let served: ::redis::RedisResult<String> = topology::query(server.url(), "PING");
            served.is_ok() && !is_refused(&process, "NOAUTH").await
        })
        .await;
        process.lock("{a}").await.release().await;
    });
}
