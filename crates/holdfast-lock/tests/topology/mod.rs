//! One Redis, one Valkey, a Cluster of three primaries, a primary with a replica and sentinels:
//! real processes, on a socket or on free ports of this machine.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::allow_attributes, reason = "a binary that uses all of it would fail an expect")]

mod certificates;
mod daemon;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{Client, ClientTlsConfig, FromRedisValue, RedisResult, TlsCertificates};

pub use certificates::certificates;
pub use daemon::{Daemon, free_ports, program};

/// The name of the primary for the sentinels.
const MASTER: &str = "shop";
const SLOTS: u32 = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    Redis,
    Valkey,
    Cluster,
    Sentinel,
    /// Servers that accept only TLS, and only clients with a certificate.
    TlsRedis,
    TlsCluster,
    TlsSentinel,
}

/// Whether the servers of a topology accept only TLS, or only plain text.
#[derive(Clone, Copy)]
enum Transport {
    Plain,
    Tls,
}

pub struct RunningServers {
    /// The servers that store keys, each with its address.
    pub data: Vec<(Daemon, String)>,
    /// The address of all of them for the product.
    pub url: String,
    _sentinels: Vec<Daemon>,
}

/// Reports that a test is skipped, bypassing output capture. In CI that is a failure.
pub fn skip(reason: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!in_ci, "must not be skipped in CI: {reason}");
    let line = format!("SKIPPED: {reason}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// Returns `None` if Valkey is not installed; see [`skip`].
pub fn start(topology: Topology) -> Option<RunningServers> {
    let redis = redis_program;
    match topology {
        Topology::Redis => Some(one(&redis())),
        Topology::Valkey => match valkey() {
            Some(program) => Some(one(&program)),
            None => {
                skip("no valkey-server, and HOLDFAST_VALKEY_SERVER is not set (script/valkey)");
                None
            }
        },
        Topology::Cluster => Some(cluster(&redis(), Transport::Plain)),
        Topology::Sentinel => Some(sentinel(&redis(), Transport::Plain)),
        Topology::TlsRedis => Some(start_with_certificate("server")),
        Topology::TlsCluster => Some(cluster(&redis(), Transport::Tls)),
        Topology::TlsSentinel => Some(sentinel(&redis(), Transport::Tls)),
    }
}

fn redis_program() -> PathBuf {
    let found = program("redis-server").or_else(|| program("valkey-server"));
    found.expect("redis-server is installed; script/bootstrap installs it")
}

fn valkey() -> Option<PathBuf> {
    let named = std::env::var_os("HOLDFAST_VALKEY_SERVER").filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| program("valkey-server"))
}

fn one(program: &Path) -> RunningServers {
    let server = Daemon::start(program, |folder| {
        let mut arguments = data(folder, Transport::Plain, 0);
        arguments.extend(split("--unixsocket"));
        arguments.push(folder.join("redis.sock").to_str().unwrap().to_owned());
        arguments
    });
    let url = format!("redis+unix://{}", server.folder.join("redis.sock").display());
    until("it responds", || query::<String>(&url, "PING").is_ok());
    RunningServers { data: vec![(server, url.clone())], url, _sentinels: Vec::new() }
}

pub fn start_with_certificate(name: &str) -> RunningServers {
    let [port] = free_ports();
    let server = Daemon::start(&redis_program(), |folder| {
        let mut arguments = data(folder, Transport::Tls, port);
        let certificate = folder.join(name).with_extension("pem");
        arguments.extend(split(&format!("--tls-cert-file {}", certificate.display())));
        arguments
    });
    until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    let url = format!("rediss://localhost:{port}");
    RunningServers { data: vec![(server, url.clone())], url, _sentinels: Vec::new() }
}

/// Three nodes with a third of the slots each, created with the commands of `redis-cli --cluster`.
fn cluster(program: &Path, transport: Transport) -> RunningServers {
    let [a, b, c, bus_a, bus_b, bus_c] = free_ports();
    let scheme = transport.scheme();
    let nodes = [(a, bus_a), (b, bus_b), (c, bus_c)].map(|(port, bus)| {
        let node = Daemon::start(program, |folder| {
            let mut arguments = data(folder, transport, port);
            arguments.extend(split("--cluster-enabled yes --bind 127.0.0.1"));
            // Longer than any test that stops a node: none is suspected to be down.
            arguments.extend(split(&format!("--cluster-port {bus} --cluster-node-timeout 15000")));
            arguments
        });
        (node, format!("{scheme}://127.0.0.1:{port}"))
    });
    let mut first = 0;
    for (number, (_, url)) in (1..).zip(&nodes) {
        until("the node responds", || query::<String>(url, "PING").is_ok());
        let next = SLOTS * number / 3;
        let _: String = query(url, &format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1)).unwrap();
        first = next;
        let _: String = query(url, &format!("CLUSTER SET-CONFIG-EPOCH {number}")).unwrap();
    }
    for (port, bus) in [(b, bus_b), (c, bus_c)] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {port} {bus}");
        let _: String = query(&nodes[0].1, &meet).unwrap();
    }
    let url = format!("{scheme}-cluster://127.0.0.1:{a},127.0.0.1:{b}");
    let running = RunningServers { data: nodes.into(), url, _sentinels: Vec::new() };
    running.wait_until_complete();
    running
}

fn sentinel(program: &Path, transport: Transport) -> RunningServers {
    let scheme = transport.scheme();
    let [primary, replica, a, b, c] = free_ports();
    let data = [(primary, None), (replica, Some(primary))].map(|(port, of)| {
        let server = Daemon::start(program, |folder| {
            let mut arguments = data(folder, transport, port);
            arguments.extend(split("--bind 127.0.0.1 --repl-diskless-sync-delay 0"));
            if let Some(of) = of {
                arguments.extend(split(&format!("--replicaof 127.0.0.1 {of}")));
            }
            arguments
        });
        let url = format!("{scheme}://127.0.0.1:{port}");
        until("it responds", || query::<String>(&url, "PING").is_ok());
        (server, url)
    });
    until("the replica is in sync", || {
        let info: RedisResult<String> = query(&data[0].1, "INFO replication");
        info.is_ok_and(|info| info.contains("state=online"))
    });
    let sentinels = [a, b, c].map(|port| {
        let conf = format!(
            "bind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {MASTER} 700\nsentinel failover-timeout {MASTER} 3000\n"
        );
        Daemon::start(program, |folder| {
            let file = folder.join("sentinel.conf");
            let listen = transport.arguments(folder, port).join(" ").replace("--", "\n");
            std::fs::write(&file, format!("{conf}{listen}\n")).unwrap();
            vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()]
        })
    });
    for port in [a, b, c] {
        let url = format!("{scheme}://127.0.0.1:{port}");
        until("the sentinels know the replica and each other", || {
            let info: RedisResult<String> = query(&url, "INFO sentinel");
            info.is_ok_and(|info| {
                info.contains("status=ok") && info.contains("slaves=1,sentinels=3")
            })
        });
    }
    let url = format!("{scheme}-sentinel://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/{MASTER}");
    RunningServers { data: data.into(), url, _sentinels: sentinels.into() }
}

impl RunningServers {
    /// Waits until every node of a Cluster serves and knows every slot.
    pub fn wait_until_complete(&self) {
        for (_, url) in &self.data {
            until("the Cluster is complete", || {
                let info: RedisResult<String> = query(url, "CLUSTER INFO");
                info.is_ok_and(|info| {
                    ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
                        .iter()
                        .all(|line| info.contains(line))
                })
            });
        }
    }
}

impl Transport {
    fn scheme(self) -> &'static str {
        match self {
            Transport::Plain => "redis",
            Transport::Tls => "rediss",
        }
    }

    /// The arguments of a server that listens on `port`; 0 for none.
    fn arguments(self, folder: &Path, port: u16) -> Vec<String> {
        match self {
            Transport::Plain => split(&format!("--port {port}")),
            Transport::Tls => {
                certificates().write(folder);
                let file = |name| format!("{}/{name}.pem", folder.display());
                let (certificate, key) = (file("server"), file("server-key"));
                split(&format!(
                    "--port 0 --tls-port {port} --tls-replication yes --tls-cluster yes \
                     --tls-cert-file {certificate} --tls-key-file {key} \
                     --tls-ca-cert-file {}",
                    file("authority")
                ))
            }
        }
    }
}

/// The arguments of a server without persistence; `port` 0 for none.
fn data(folder: &Path, transport: Transport, port: u16) -> Vec<String> {
    let mut arguments = transport.arguments(folder, port);
    arguments.extend(split("--appendonly no --loglevel notice --logfile"));
    arguments.extend([String::new(), "--save".to_owned(), String::new(), "--dir".to_owned()]);
    arguments.push(folder.to_str().unwrap().to_owned());
    arguments
}

fn split(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Sends `command` on a new connection and returns the reply.
pub fn query<T: FromRedisValue>(url: &str, command: &str) -> RedisResult<T> {
    let client = if url.starts_with("rediss") {
        Client::build_with_tls(url, client_certificates())?
    } else {
        Client::open(url)?
    };
    let mut connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut arguments = command.split(' ');
    let mut cmd = redis::cmd(arguments.next().unwrap());
    arguments.for_each(|argument| {
        cmd.arg(argument);
    });
    cmd.query(&mut connection)
}

fn client_certificates() -> TlsCertificates {
    let made = certificates();
    let client_cert = made.client.clone().into_bytes();
    let client_key = made.client_key.clone().into_bytes();
    let client_tls = Some(ClientTlsConfig { client_cert, client_key });
    TlsCertificates { client_tls, root_cert: Some(made.authority.clone().into_bytes()) }
}

/// The number of calls of each command since the server started, in scripts too.
pub fn command_calls(url: &str) -> BTreeMap<String, u64> {
    let stats: String = query(url, "INFO commandstats").unwrap();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    calls.collect()
}

/// Polls until `condition` holds, where there is no runtime.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(30), what, condition);
}

/// [`until`] with a time of its own.
#[expect(clippy::disallowed_methods, reason = "only the test's own thread waits")]
pub fn until_within(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
