//! The table of the faults.

use anyhow::bail;

#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    Undisturbed,
    Pause,
    LongWork,
    KillHolder,
    RedisFlush,
    RedisRestart,
    RedisFailover,
    RedisSlow,
    RedisAway,
    Partition,
    ClockJump,
    SlowCommit,
}

const fn fault(name: &'static str, kind: FaultKind) -> Fault {
    Fault { name, kind }
}

/// All faults, in the order in which they run.
pub const FAULTS: [Fault; 12] = [
    fault("none", FaultKind::Undisturbed),
    fault("pause", FaultKind::Pause),
    fault("long-work", FaultKind::LongWork),
    fault("kill-holder", FaultKind::KillHolder),
    fault("redis-flush", FaultKind::RedisFlush),
    fault("redis-restart", FaultKind::RedisRestart),
    fault("redis-failover", FaultKind::RedisFailover),
    fault("redis-slow", FaultKind::RedisSlow),
    fault("redis-away", FaultKind::RedisAway),
    fault("partition", FaultKind::Partition),
    fault("clock-jump", FaultKind::ClockJump),
    fault("slow-commit", FaultKind::SlowCommit),
];

/// Returns the faults of these names, or for `all` every one; `none` is always among them.
pub(super) fn select(names: &[String]) -> anyhow::Result<Vec<&'static Fault>> {
    let known = |name: &String| name == "all" || FAULTS.iter().any(|fault| fault.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        bail!("--faults {unknown}: the faults are all, or some of {}", all.join(", "));
    }
    let is_selected = |fault: &&Fault| {
        fault.kind == FaultKind::Undisturbed
            || names.iter().any(|name| name == "all" || name == fault.name)
    };
    Ok(FAULTS.iter().filter(is_selected).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::report::UNDISTURBED;

    #[test]
    fn none_is_always_selected_first() {
        let names = ["pause".to_owned()];
        let selected = select(&names).expect("it exists");
        assert_eq!(selected, [&FAULTS[0], &FAULTS[1]]);
        assert_eq!(selected[0].name, UNDISTURBED);
        assert_eq!(select(&["all".to_owned()]).expect("all").len(), FAULTS.len());
        let error = select(&["paws".to_owned()]).expect_err("it does not exist");
        assert!(error.to_string().contains("slow-commit"), "{error}");
    }
}
