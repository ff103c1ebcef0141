//! One Redis, one Valkey, a Cluster of three primaries, a primary with a replica and sentinels:
//! real processes, on a socket or on free ports of this machine.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::allow_attributes, reason = "a binary that uses all of it would fail an expect")]

mod daemon;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use daemon::{Daemon, free_ports, program};

/// Under which name the sentinels know the primary.
const MASTER: &str = "shop";
const SLOTS: u32 = 16_384;

/// The kind of Redis that a test runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    Redis,
    Valkey,
    Cluster,
    Sentinel,
}

/// The processes of a topology.
pub struct Running {
    /// Those that keep keys, and how each is reached.
    pub data: Vec<(Daemon, String)>,
    /// How the product reaches them all.
    pub url: String,
    _sentinels: Vec<Daemon>,
}

/// Reports why a test does not run, past the capture of its output. In CI that is a failure.
pub fn skip(reason: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!in_ci, "not to be skipped in CI: {reason}");
    let line = format!("SKIPPED: {reason}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// `None` when there is no Valkey here; see [`skip`].
pub fn start(topology: Topology) -> Option<Running> {
    let redis = || {
        let found = program("redis-server").or_else(|| program("valkey-server"));
        found.expect("redis-server is installed; script/bootstrap sees to it")
    };
    match topology {
        Topology::Redis => Some(one(&redis())),
        Topology::Valkey => match valkey() {
            Some(program) => Some(one(&program)),
            None => {
                skip("no valkey-server, and HOLDFAST_VALKEY_SERVER is not set (script/valkey)");
                None
            }
        },
        Topology::Cluster => Some(cluster(&redis())),
        Topology::Sentinel => Some(sentinel(&redis())),
    }
}

fn valkey() -> Option<PathBuf> {
    let named = std::env::var_os("HOLDFAST_VALKEY_SERVER").filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| program("valkey-server"))
}

fn one(program: &Path) -> Running {
    let server = Daemon::start(program, |folder| {
        let mut arguments = data(folder, 0);
        arguments.extend(words("--unixsocket"));
        arguments.push(folder.join("redis.sock").to_str().unwrap().to_owned());
        arguments
    });
    let url = format!("redis+unix://{}", server.folder.join("redis.sock").display());
    until("it answers", || ask::<String>(&url, "PING").is_ok());
    Running { data: vec![(server, url.clone())], url, _sentinels: Vec::new() }
}

/// Each with a third of the slots; made with the commands `redis-cli --cluster` would send.
fn cluster(program: &Path) -> Running {
    let [a, b, c, bus_a, bus_b, bus_c] = free_ports();
    let nodes = [(a, bus_a), (b, bus_b), (c, bus_c)].map(|(port, bus)| {
        let node = Daemon::start(program, |folder| {
            let mut arguments = data(folder, port);
            arguments.extend(words("--cluster-enabled yes --bind 127.0.0.1"));
            // A node is suspected long after a test that stops one is over.
            arguments.extend(words(&format!("--cluster-port {bus} --cluster-node-timeout 15000")));
            arguments
        });
        (node, format!("redis://127.0.0.1:{port}"))
    });
    let mut first = 0;
    for (number, (_, url)) in (1..).zip(&nodes) {
        until("the node answers", || ask::<String>(url, "PING").is_ok());
        let next = SLOTS * number / 3;
        let _: String = ask(url, &format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1)).unwrap();
        first = next;
        let _: String = ask(url, &format!("CLUSTER SET-CONFIG-EPOCH {number}")).unwrap();
    }
    for (port, bus) in [(b, bus_b), (c, bus_c)] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {port} {bus}");
        let _: String = ask(&nodes[0].1, &meet).unwrap();
    }
    let url = format!("redis-cluster://127.0.0.1:{a},127.0.0.1:{b}");
    let running = Running { data: nodes.into(), url, _sentinels: Vec::new() };
    running.wait_until_whole();
    running
}

fn sentinel(program: &Path) -> Running {
    let [primary, replica, a, b, c] = free_ports();
    let data = [(primary, None), (replica, Some(primary))].map(|(port, of)| {
        let server = Daemon::start(program, |folder| {
            let mut arguments = data(folder, port);
            arguments.extend(words("--bind 127.0.0.1 --repl-diskless-sync-delay 0"));
            if let Some(of) = of {
                arguments.extend(words(&format!("--replicaof 127.0.0.1 {of}")));
            }
            arguments
        });
        let url = format!("redis://127.0.0.1:{port}");
        until("it answers", || ask::<String>(&url, "PING").is_ok());
        (server, url)
    });
    until("the replica is one", || {
        let told: RedisResult<String> = ask(&data[0].1, "INFO replication");
        told.is_ok_and(|told| told.contains("state=online"))
    });
    let sentinels = [a, b, c].map(|port| {
        let conf = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {MASTER} 700\nsentinel failover-timeout {MASTER} 3000\n"
        );
        Daemon::start(program, |folder| {
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, conf).unwrap();
            vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()]
        })
    });
    for port in [a, b, c] {
        let url = format!("redis://127.0.0.1:{port}");
        until("the sentinels know the replica and each other", || {
            let told: RedisResult<String> = ask(&url, "INFO sentinel");
            told.is_ok_and(|told| {
                told.contains("status=ok") && told.contains("slaves=1,sentinels=3")
            })
        });
    }
    let url = format!("redis-sentinel://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/{MASTER}");
    Running { data: data.into(), url, _sentinels: sentinels.into() }
}

impl Running {
    /// Waits until every node of a Cluster serves and knows every slot.
    pub fn wait_until_whole(&self) {
        for (_, url) in &self.data {
            until("the Cluster is whole", || {
                let told: RedisResult<String> = ask(url, "CLUSTER INFO");
                told.is_ok_and(|told| {
                    ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
                        .iter()
                        .all(|line| told.contains(line))
                })
            });
        }
    }
}

/// The arguments of a server that keeps nothing; `port` 0 for none.
fn data(folder: &Path, port: u16) -> Vec<String> {
    let mut arguments =
        words(&format!("--port {port} --appendonly no --loglevel notice --logfile"));
    arguments.extend([String::new(), "--save".to_owned(), String::new(), "--dir".to_owned()]);
    arguments.push(folder.to_str().unwrap().to_owned());
    arguments
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Sends `command` on a new connection and returns the reply.
pub fn ask<T: FromRedisValue>(url: &str, command: &str) -> RedisResult<T> {
    let mut connection =
        redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(2))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query(&mut connection)
}

/// The number of calls of each command since the server started, in scripts too.
pub fn command_calls(url: &str) -> BTreeMap<String, u64> {
    let stats: String = ask(url, "INFO commandstats").unwrap();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    calls.collect()
}

/// Looks again until `condition` holds, before there is a runtime.
#[expect(clippy::disallowed_methods, reason = "only the test's own thread waits")]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
