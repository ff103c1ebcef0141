//! The settings of a judgement.

use std::time::Duration;

use super::JudgeArgs;
use super::backend::Backend;
use super::fault::Fault;
use anyhow::bail;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Clients of all workers: each has a connection to the judge's Postgres, which allows 300, and
/// adapters may have some.
const MAX_CLIENTS: u32 = 200;
/// Length of `redis-away`, and with it four waits for the lock.
pub(super) const AWAY: Duration = Duration::from_secs(5);
/// Time for an adapter to start, besides that of an answer: on a loaded machine, an interpreter
/// needs seconds before it reads its first line.
pub(super) const ADAPTER_START: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct JudgePlan {
    pub(super) args: JudgeArgs,
    pub(super) faults: Vec<Fault>,
    pub(super) seed: u64,
    /// When the judgement began: RFC 3339, UTC.
    pub(super) started_at: String,
    pub(super) backends: Vec<Backend>,
    /// Part of the keys of this judgement: a lock of another backend outlives it.
    id: u32,
}

impl JudgePlan {
    /// Checks the arguments. Fails if a fault has another name, there are too many clients, or no
    /// proxy can be before a server.
    pub(super) fn new(args: &JudgeArgs) -> anyhow::Result<Self> {
        let clients = args.workers * args.clients;
        if clients > MAX_CLIENTS {
            bail!(
                "--workers {} with --clients {} are {clients} clients: at most {MAX_CLIENTS} can \
                 connect to the judge's Postgres",
                args.workers,
                args.clients
            );
        }

        let backends = args.backend_proxy.iter().map(|(name, url)| Backend::new(name, url));
        Ok(Self {
            args: args.clone(),
            backends: backends.collect::<anyhow::Result<_>>()?,
            faults: select(&args.faults)?,
            seed: args.seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
            started_at: OffsetDateTime::now_utc().format(&Rfc3339)?,
            id: rand::random(),
        })
    }

    /// Returns the part of a name in Redis that belongs to a pass. The key, for which all clients
    /// contend, has it.
    pub(super) fn unique_part(&self, pass: i64) -> String {
        format!("{:08x}-{pass}", self.id)
    }

    /// Returns how often a fault runs at most.
    pub(super) fn runs_of(&self, fault: Fault) -> u32 {
        if fault.is_repeated() { self.args.repeat } else { 1 }
    }

    pub(super) fn ttl(&self, factor: f64) -> Duration {
        Duration::from_millis(self.args.ttl_ms).mul_f64(factor)
    }

    pub(super) fn work(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds)
    }

    /// Returns the time within which the adapter must answer, besides the wait for the lock. A
    /// stopped worker can't read the answer.
    pub(super) fn answer_timeout(&self) -> Duration {
        Duration::from_secs(self.args.answer_timeout_s) + self.ttl(3.0)
    }
}

/// Returns the faults of these names, or for `all` every one; `none` is always among them.
pub(super) fn select(names: &[String]) -> anyhow::Result<Vec<Fault>> {
    let is_known = |name: &str| name == "all" || Fault::named(name).is_some();
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all = Fault::list(|_| true);
        bail!("--faults {unknown}: the faults are all, or some of {all}");
    }

    let is_selected = |fault: &Fault| {
        // Without a pass that is not disturbed, the others have nothing to be compared with.
        *fault == Fault::Undisturbed
            || names.iter().any(|name| name == "all" || name == fault.name())
    };
    Ok(Fault::ALL.iter().copied().filter(is_selected).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_always_selected_first() {
        let selected = select(&["pause".to_owned()]).expect("it exists");
        assert_eq!(selected, [Fault::Undisturbed, Fault::Pause]);
        assert_eq!(selected[0].name(), "none");
        assert_eq!(select(&["all".to_owned()]).expect("all"), Fault::ALL);
        let error = select(&["paws".to_owned()]).expect_err("it does not exist");
        assert!(error.to_string().contains("slow-commit"), "{error}");
    }
}
