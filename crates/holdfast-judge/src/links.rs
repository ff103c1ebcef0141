//! The links of a worker to the servers that its lock may use, each through a proxy, so that the
//! faults of the network strike one worker.

use anyhow::Context as _;
use holdfast_services::{Proxy, TempPostgres, TempRedis, Traffic, Upstream};

use super::backend::{Backend, is_socket};
use super::plan::JudgePlan;
use super::protocol::WorkerSetup;

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
            redis: Proxy::start(Upstream::Socket(redis.socket())).await?,
            postgres: Proxy::start(Upstream::Socket(postgres.socket())).await?,
            backends: Vec::new(),
        };
        for backend in backends {
            let mut proxies = Vec::new();
            for address in backend.addresses() {
                let target = match is_socket(address) {
                    true => Upstream::Socket(address.into()),
                    false => Upstream::Address(address.into()),
                };
                let proxy = Proxy::start(target).await;
                proxies.push(proxy.with_context(|| format!("can't start a proxy to {address}"))?);
            }
            links.backends.push((backend.clone(), proxies));
        }
        Ok(links)
    }

    /// Returns the setup of a worker for a pass in which nothing is cancelled; its adapter reaches
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

    /// Returns whether there are servers of the user's own, and no connection has been to any.
    pub(super) fn are_bypassed(&self) -> bool {
        let mut proxies = self.backends.iter().flat_map(|(_, proxies)| proxies);
        !self.backends.is_empty() && proxies.all(|proxy| proxy.accepted() == 0)
    }

    /// Closes the open connections; the adapter may open others.
    pub(super) async fn close_connections(&self) {
        for link in self.all() {
            link.close_connections().await;
        }
    }
}
