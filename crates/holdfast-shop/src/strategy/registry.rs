//! The table of strategies, in teaching order, and their data paths.

use super::data_path::{DataPaths, ShopParts};
use super::pre_deduct::path::PreDeduct;
use super::units::path::Units;
use super::{
    Guarantee, Strategy, advisory, atomic, batched, check_then_decrement, early_release, fenced,
    none, pre_deduct, row_lock, serializable, units, version, wrong_key,
};
use crate::locks::Lock;

/// A plain read-then-update under a lock, which is described in the file of the lock.
macro_rules! locked {
    ($name:literal, $lock:ident, $guarantee:ident, $file:literal) => {
        Strategy {
            name: $name,
            lock: Some(Lock::$lock),
            guarantee: Guarantee::$guarantee,
            source: $file,
            code: include_str!(concat!("../../../../", $file)),
            ..none::STRATEGY
        }
    };
}

pub static STRATEGIES: &[Strategy] = &[
    none::STRATEGY,
    check_then_decrement::STRATEGY,
    locked!("local", Local, OneReplica, "crates/holdfast-lock/src/local.rs"),
    locked!("setnx", Setnx, UntilHolderDies, "crates/holdfast-shop/src/locks/setnx.rs"),
    locked!(
        "setnx-expire",
        SetnxExpire,
        WhileLeased,
        "crates/holdfast-shop/src/locks/setnx_expire.rs"
    ),
    locked!("ttl", Ttl, WhileLeased, "crates/holdfast-shop/src/locks/ttl.rs"),
    locked!(
        "check-then-del",
        CheckThenDel,
        WhileLeased,
        "crates/holdfast-shop/src/locks/check_then_del.rs"
    ),
    locked!(
        "expire-only",
        ExpireOnly,
        WhileLeased,
        "crates/holdfast-shop/src/locks/expire_only.rs"
    ),
    locked!("owner", Owner, WhileLeased, "crates/holdfast-lock/src/owner.rs"),
    locked!("watchdog", Watchdog, WhileLeased, "crates/holdfast-lock/src/watchdog.rs"),
    locked!("redlock", Redlock, WhileLeased, "crates/holdfast-lock/src/quorum.rs"),
    early_release::STRATEGY,
    wrong_key::STRATEGY,
    fenced::STRATEGY,
    row_lock::STRATEGY,
    atomic::STRATEGY,
    version::STRATEGY,
    serializable::STRATEGY,
    advisory::STRATEGY,
    units::STRATEGY,
    locked!("queue", Queue, OneReplica, "crates/holdfast-shop/src/locks/queue_lock.rs"),
    pre_deduct::STRATEGY,
    batched::STRATEGY,
];

/// Returns the data paths of a shop with these parts.
pub fn data_paths(parts: &ShopParts) -> DataPaths {
    DataPaths::new([
        (units::STRATEGY.name, Box::new(Units) as _),
        (pre_deduct::STRATEGY.name, Box::new(PreDeduct::new(parts)) as _),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Family;
    use crate::strategy::exclusion::Protection;
    use holdfast_lock::Guards;

    #[test]
    fn each_file_states_its_guarantee() {
        for strategy in STRATEGIES {
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
        for strategy in STRATEGIES {
            let unprotected = matches!(strategy.exclusion(&guards).0, Protection::Nothing);
            assert_eq!(unprotected, strategy.guarantee == Guarantee::Never, "{}", strategy.name);
        }
    }

    #[test]
    fn families_are_those_of_the_pair_tests() {
        let of = |family| {
            let members = STRATEGIES.iter().filter(|strategy| strategy.family() == family);
            members.map(|strategy| strategy.name).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Family::Postgres),
            ["fenced", "row-lock", "atomic", "version", "serializable", "batched"]
        );
        assert_eq!(
            of(Family::Redis),
            ["setnx-expire", "ttl", "check-then-del", "expire-only", "owner", "watchdog"]
        );
        for name in [
            "none",
            "check-then-decrement",
            "local",
            "setnx",
            "redlock",
            "wrong-key",
            "advisory",
            "units",
            "queue",
            "pre-deduct",
        ] {
            assert_eq!(of(Family::Alone(name)), [name]);
        }
    }
}
