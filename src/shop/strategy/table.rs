//! The table of strategies, in teaching order.

use super::{
    Guarantee, Strategy, advisory, atomic, batched, early_release, fenced, none, row_lock,
    serializable, version, wrong_key,
};
use crate::lock::Kind;
use crate::lock::ladder::rung::Rung;

/// A plain read-then-update under a teaching lock, which is described in the file of the lock.
macro_rules! locked {
    ($name:literal, $kind:expr, $guarantee:ident, $file:literal, $about:literal) => {
        Strategy {
            name: $name,
            lock: Some($kind),
            guarantee: Guarantee::$guarantee,
            about: $about,
            source: concat!("src/lock/ladder/", $file),
            code: include_str!(concat!("../../lock/ladder/", $file)),
            ..none::STRATEGY
        }
    };
}

/// All strategies.
pub static STRATEGIES: [Strategy; 20] = [
    none::STRATEGY,
    locked!(
        "local",
        Kind::Local,
        OneReplica,
        "local.rs",
        "a mutex in this process: right with one replica, wrong with two"
    ),
    locked!(
        "setnx",
        Kind::Rung(Rung::Setnx),
        UntilAHolderDies,
        "setnx.rs",
        "SETNX, then DEL: a holder that dies locks the item for ever"
    ),
    locked!(
        "setnx-expire",
        Kind::Rung(Rung::SetnxExpire),
        WhileLeased,
        "setnx_expire.rs",
        "SETNX, EXPIRE, then DEL: a holder that dies between the two locks it for ever"
    ),
    locked!(
        "ttl",
        Kind::Rung(Rung::Ttl),
        WhileLeased,
        "ttl.rs",
        "SET NX PX, then DEL: a late holder deletes the next holder's lock"
    ),
    locked!(
        "check-then-del",
        Kind::Rung(Rung::CheckThenDel),
        WhileLeased,
        "check_then_del.rs",
        "SET NX PX with an owner, GET, compare, DEL: it changes hands in between"
    ),
    locked!(
        "expire-only",
        Kind::Rung(Rung::ExpireOnly),
        WhileLeased,
        "expire_only.rs",
        "SET NX PX, never deleted: one change per lease, and broken when work is longer"
    ),
    locked!(
        "owner",
        Kind::Owner,
        WhileLeased,
        "owner.rs",
        "the textbook Redis lock: SET NX PX with an owner, released by compare-and-delete"
    ),
    locked!(
        "watchdog",
        Kind::Watchdog,
        WhileLeased,
        "watchdog.rs",
        "owner, renewed while the work runs: breaks when the process is paused"
    ),
    locked!(
        "redlock",
        Kind::Quorum,
        WhileLeased,
        "quorum.rs",
        "a lease on a majority of several Redis: breaks when the process is paused"
    ),
    early_release::STRATEGY,
    wrong_key::STRATEGY,
    fenced::STRATEGY,
    row_lock::STRATEGY,
    atomic::STRATEGY,
    version::STRATEGY,
    serializable::STRATEGY,
    advisory::STRATEGY,
    locked!(
        "queue",
        Kind::Queue,
        OneReplica,
        "queue.rs",
        "a bounded queue and one consumer per item: right with one replica, wrong with two"
    ),
    batched::STRATEGY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Guards;
    use crate::shop::strategy::exclusion::Exclusion;

    #[test]
    fn each_file_states_its_guarantee() {
        for strategy in &STRATEGIES {
            for heading in ["//! # Guarantee\n", "//! # Breaks when\n", "//! # Seen in the wild\n"]
            {
                assert!(strategy.code.contains(heading), "{}: {heading}", strategy.source);
            }
            assert_eq!(Strategy::named(strategy.name), Some(strategy), "one of each name");
        }
    }

    #[test]
    fn only_broken_strategies_are_unprotected() {
        let guards = Guards::default();
        for strategy in &STRATEGIES {
            let unprotected = matches!(strategy.exclusion(&guards), Exclusion::Unprotected(..));
            assert_eq!(unprotected, strategy.guarantee == Guarantee::Never, "{}", strategy.name);
        }
    }

    #[test]
    fn only_safe_strategies_can_be_mixed() {
        let beside = |one: &str, other: &str| {
            Strategy::named(one).unwrap().holds_beside(Strategy::named(other).unwrap())
        };
        for one in ["fenced", "row-lock", "atomic", "version", "batched"] {
            assert!(beside(one, "batched") && beside("row-lock", one), "{one}");
            assert!(!beside(one, "advisory") && !beside("serializable", one), "{one}");
            assert!(!beside(one, "owner") && !beside("setnx", one), "{one}");
        }
        assert!(beside("advisory", "advisory") && !beside("advisory", "serializable"));
    }
}
