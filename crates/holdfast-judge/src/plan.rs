//! The settings of a judgement, and its faults.

use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;

use super::JudgeArgs;

/// Clients of all workers: each has a connection to the judge's Postgres, which allows 300, and
/// adapters may have some.
const MAX_CLIENTS: u32 = 200;
/// Length of `redis-away`, and with it four waits for the lock.
pub(super) const AWAY: Duration = Duration::from_secs(5);
/// Time for an adapter to start, besides that of an answer: on a loaded machine, an interpreter
/// needs seconds before it reads its first line.
pub(super) const ADAPTER_START: Duration = Duration::from_secs(30);

/// The faults, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    #[value(name = "none")]
    Undisturbed,
    Pause,
    LongWork,
    KillHolder,
    RedisFlush,
    RedisRestart,
    RedisFailover,
    RedisSlow,
    RedisAway,
    ClientKill,
    ScriptFlush,
    Evict,
    Partition,
    ClockJump,
    SlowCommit,
    Cancel,
}

impl Fault {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the faults of these names, or for `all` every one; `none` is always among them.
    fn select(names: &[String]) -> anyhow::Result<Vec<Self>> {
        let all: Vec<String> = Self::value_variants().iter().map(|fault| fault.name()).collect();
        if let Some(unknown) = names.iter().find(|name| *name != "all" && !all.contains(name)) {
            bail!("--faults {unknown}: the faults are all, or some of {}", all.join(", "));
        }
        Ok(Self::value_variants().iter().copied().filter(|fault| fault.is_among(names)).collect())
    }

    /// Returns whether its outcome depends on when it strikes, so that one run says little.
    fn is_repeated(self) -> bool {
        matches!(
            self,
            Self::Pause | Self::RedisFailover | Self::Partition | Self::RedisRestart | Self::Cancel
        )
    }

    fn is_among(self, names: &[String]) -> bool {
        // Without a pass that is not disturbed, the others have nothing to be compared with.
        self == Self::Undisturbed || names.iter().any(|name| name == "all" || *name == self.name())
    }
}

/// Returns whether the fault of this name runs several times with `--repeat`.
pub(super) fn is_repeated(name: &str) -> bool {
    let mut faults = Fault::value_variants().iter();
    faults.any(|fault| fault.is_repeated() && fault.name() == name)
}

#[derive(Debug, Clone)]
pub(super) struct JudgePlan {
    pub(super) args: JudgeArgs,
    pub(super) faults: Vec<Fault>,
    pub(super) seed: u64,
    /// Part of the keys of this judgement: a lock of another backend outlives it.
    id: u32,
}

impl JudgePlan {
    /// Checks the arguments. Fails if a fault has another name, or there are too many clients.
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

        Ok(Self {
            args: args.clone(),
            faults: Fault::select(&args.faults)?,
            seed: args.seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::UNDISTURBED;

    #[test]
    fn none_is_always_selected_first() {
        let selected = Fault::select(&["pause".to_owned()]).expect("it exists");
        assert_eq!(selected, [Fault::Undisturbed, Fault::Pause]);
        assert_eq!(selected[0].name(), UNDISTURBED);
        assert_eq!(Fault::select(&["all".to_owned()]).expect("all"), Fault::value_variants());
        let error = Fault::select(&["paws".to_owned()]).expect_err("it does not exist");
        assert!(error.to_string().contains("slow-commit"), "{error}");
    }
}
