//! The links of a worker to the servers that its lock may use, each through a proxy, so that the
//! faults of the network strike one worker.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, ensure};
use holdfast_services::{Proxy, TempPostgres, TempRedis, Traffic};

use super::plan::JudgePlan;
use super::protocol::WorkerSetup;

/// A server of the user's own, whose URL the adapter has in an environment variable. It may have
/// several addresses, separated by commas, or be a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    variable: String,
    url: String,
    /// Where the addresses are in the URL.
    place: Range<usize>,
}

impl Backend {
    /// Finds the addresses in a URL. Fails if one has no port, or if the server asks for TLS: its
    /// certificate is not for the proxy.
    pub(super) fn new(variable: &str, url: &str) -> anyhow::Result<Self> {
        let option = format!("--backend-proxy {variable}={url}");
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let needs_tls = ["https", "rediss", "mysqls", "amqps"].contains(&scheme)
            || ["sslmode=require", "sslmode=verify", "tls=true"].iter().any(|it| rest.contains(it));
        ensure!(
            !needs_tls,
            "{option}: a server that needs TLS can't be behind a proxy, for which its certificate \
             is not valid"
        );

        let start = url.len() - rest.len();
        let end = rest.find(['/', '?']).map_or(url.len(), |at| start + at);
        let place = match is_socket(url) {
            true => 0..url.len(),
            false => url[..end].rfind('@').map_or(start, |at| at + 1)..end,
        };
        let has_port = |address: &str| {
            address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        };
        ensure!(
            is_socket(url) || url[place.clone()].split(',').all(has_port),
            "{option}: it must have a host and a port, for example {variable}=http://127.0.0.1:2379"
        );

        Ok(Self { variable: variable.to_owned(), url: url.to_owned(), place })
    }

    fn addresses(&self) -> impl Iterator<Item = &str> {
        self.url[self.place.clone()].split(',')
    }

    /// Returns the URL with other addresses.
    fn url_at(&self, addresses: &[String]) -> String {
        let mut url = self.url.clone();
        url.replace_range(self.place.clone(), &addresses.join(","));
        url
    }
}

fn is_socket(address: &str) -> bool {
    address.starts_with('/')
}

/// The links of one worker.
#[derive(Debug)]
pub(super) struct WorkerLinks {
    pub(super) redis: Proxy,
    /// Postgres listens on its socket only, to which not every client library can connect.
    postgres: Proxy,
    backends: Vec<(Backend, Vec<Proxy>)>,
}

impl WorkerLinks {
    pub(super) async fn start(
        redis: &TempRedis,
        postgres: &TempPostgres,
        backends: &[Backend],
    ) -> anyhow::Result<Self> {
        let mut links = Self {
            redis: Proxy::start(&redis.socket()).await?,
            postgres: Proxy::start(&postgres.socket()).await?,
            backends: Vec::new(),
        };
        for backend in backends {
            let mut proxies = Vec::new();
            for address in backend.addresses() {
                let proxy = match is_socket(address) {
                    true => Proxy::start(Path::new(address)).await,
                    false => Proxy::start_to_address(address).await,
                };
                proxies.push(proxy.with_context(|| format!("can't start a proxy to {address}"))?);
            }
            links.backends.push((backend.clone(), proxies));
        }
        Ok(links)
    }

    /// Returns what a worker is told of a pass in which nothing is cancelled; its adapter reaches
    /// `database` behind the link.
    pub(super) fn setup(
        &self,
        plan: &JudgePlan,
        (worker, pass): (u32, i64),
        redis_url: String,
        (postgres, database): (&TempPostgres, &str),
    ) -> WorkerSetup {
        let (password, port) = (&postgres.password, self.postgres.port);
        let database_url =
            format!("postgres://holdfast:{password}@127.0.0.1:{port}/{database}?sslmode=disable");
        WorkerSetup {
            worker,
            args: plan.args.clone(),
            redis_url,
            database_url,
            ledger_url: postgres.url_of(database),
            key: format!("item:{}", plan.unique_part(pass)),
            cancels: false,
            answer_timeout: plan.answer_timeout(),
            seed: plan.seed,
            pass,
        }
    }

    /// Returns the variables of the user's own servers: with the addresses of the proxies, or with
    /// their own.
    pub(super) fn variables(&self, is_behind: bool) -> impl Iterator<Item = (String, String)> {
        self.backends.iter().map(move |(backend, proxies)| {
            let ports = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port));
            let url = match is_behind {
                true => backend.url_at(&ports.collect::<Vec<_>>()),
                false => backend.url.clone(),
            };
            (backend.variable.clone(), url)
        })
    }

    fn all(&self) -> impl Iterator<Item = &Proxy> {
        let backends = self.backends.iter().flat_map(|(_, proxies)| proxies);
        [&self.redis, &self.postgres].into_iter().chain(backends)
    }

    pub(super) fn set(&self, traffic: Traffic) {
        self.all().for_each(|link| link.set(traffic));
    }

    /// Returns the number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.all().map(Proxy::connections).sum()
    }

    /// Returns the number of connections that there have been.
    pub(super) fn accepted(&self) -> usize {
        self.all().map(Proxy::accepted).sum()
    }

    /// Closes the open connections; the adapter may open others.
    pub(super) async fn close_connections(&self) {
        for link in self.all() {
            link.close_connections().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_url_are_replaced() {
        let at = |url: &str| {
            let backend = Backend::new("X", url).unwrap();
            let proxies = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
            backend.url_at(&proxies[..backend.addresses().count()])
        };
        assert_eq!(at("http://localhost:2379"), "http://127.0.0.1:1");
        assert_eq!(at("mysql://a:b@db:3306/lock?x=@"), "mysql://a:b@127.0.0.1:1/lock?x=@");
        assert_eq!(at("zk1:2181,zk2:2181/chroot"), "127.0.0.1:1,127.0.0.1:2/chroot");
        assert_eq!(at("/run/mysqld/mysqld.sock"), "127.0.0.1:1");

        let refused = |url: &str| Backend::new("X", url).unwrap_err().to_string();
        assert!(refused("http://localhost").contains("a host and a port"));
        assert!(refused("rediss://localhost:6379").contains("needs TLS"));
    }
}
