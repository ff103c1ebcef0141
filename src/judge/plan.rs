//! The settings of a judgement.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::fault_table::{self, Fault};
use crate::config::JudgeArgs;

/// Clients of all workers: each has a connection to the judge's Postgres, which allows 300, and
/// adapters may have some.
const MAX_CLIENTS: u32 = 200;

#[derive(Debug, Clone)]
pub(super) struct JudgePlan {
    pub(super) faults: Vec<&'static Fault>,
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workers: u32,
    pub(super) clients: u32,
    pub(super) ttl_ms: u64,
    pub(super) wait_ms: u64,
    pub(super) work_ms: u64,
    pub(super) think_ms: u64,
    pub(super) answer_timeout_ms: u64,
    pub(super) work: Duration,
    pub(super) seed: u64,
    /// Part of the keys of this judgement: a lock of another backend outlives it.
    id: u32,
}

impl JudgePlan {
    /// Checks the arguments. Fails if a fault has another name, or there are too many clients.
    pub(super) fn new(args: &JudgeArgs) -> anyhow::Result<Self> {
        let (workers, clients) = (args.workers, args.clients);
        if workers * clients > MAX_CLIENTS {
            bail!(
                "--workers {workers} with --clients {clients} are {} clients: at most \
                 {MAX_CLIENTS} can connect to the judge's Postgres",
                workers * clients
            );
        }
        let mut env = BTreeMap::new();
        for setting in &args.env {
            let (name, value) = setting
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .with_context(|| format!("--env {setting}: it must be NAME=VALUE"))?;
            env.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self {
            faults: fault_table::select(&args.faults)?,
            command: args.command.clone(),
            env,
            workers,
            clients,
            ttl_ms: args.ttl_ms,
            wait_ms: args.wait_ms,
            work_ms: args.work_ms,
            think_ms: args.think_ms,
            answer_timeout_ms: args.answer_timeout_s * 1_000,
            work: Duration::from_secs_f64(args.seconds),
            seed: args.seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
            id: rand::random(),
        })
    }

    /// Returns the key of a pass, for which all of its clients contend.
    pub(super) fn key(&self, pass: i64) -> String {
        format!("item:{}", self.unique_part(pass))
    }

    /// Returns a name in Redis as it would be in any pass.
    pub(super) fn name_in_any_pass(&self, name: &str, pass: i64) -> String {
        // Not the whole key, as some locks write it in another way.
        name.replace(&self.unique_part(pass), "0")
    }

    fn unique_part(&self, pass: i64) -> String {
        format!("{:08x}-{pass}", self.id)
    }

    /// Returns the TTL times `factor`.
    pub(super) fn ttl(&self, factor: f64) -> Duration {
        Duration::from_millis(self.ttl_ms).mul_f64(factor)
    }

    /// Returns the clients of all workers.
    pub(super) fn all_clients(&self) -> u32 {
        self.workers * self.clients
    }
}
