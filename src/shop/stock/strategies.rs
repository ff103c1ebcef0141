//! The ladder, in teaching order: every strategy as a value.

use super::strategy::{Holds, Isolation, On, Read, Release, Strategy, Write};
use crate::lock::Kind;
use crate::lock::ladder::rung::Rung;

/// How often a transaction is tried when Postgres ends it for somebody else's sake.
pub(in crate::shop) const ATTEMPTS: u32 = 6;
/// The same where losing is how two are kept apart.
const MANY_ATTEMPTS: u32 = 16;

/// Read, compute, write back, and nothing around it. The others say what they do otherwise.
const PLAIN: Strategy = Strategy {
    name: "none",
    lock: None,
    on: On::Value,
    release: Release::AfterCommit,
    isolation: Isolation::ReadCommitted,
    read: Read::Plain,
    write: Write::Computed,
    attempts: ATTEMPTS,
    batches: false,
    holds: Holds::Never,
    about: "no lock at all: two orders read 10 and both write 9",
    source: "src/shop/stock/read_then_update.rs",
};

/// Many requests for one value under one fenced lock.
pub const BATCHED: Strategy = Strategy {
    name: "batched",
    lock: Some(Kind::Fenced),
    read: Read::RowLock,
    write: Write::Fenced,
    batches: true,
    holds: Holds::Always,
    about: "fenced, and all who wait for one item share one lock and one transaction",
    source: "src/shop/stock/batched.rs",
    ..PLAIN
};

/// The ladder, in teaching order.
pub static STRATEGIES: [Strategy; 20] = [
    PLAIN,
    Strategy {
        name: "local",
        lock: Some(Kind::Local),
        holds: Holds::OneReplica,
        about: "a mutex in this process: right with one replica, wrong with two",
        source: "src/lock/ladder/local.rs",
        ..PLAIN
    },
    Strategy {
        name: "setnx",
        lock: Some(Kind::Rung(Rung::Setnx)),
        holds: Holds::UntilAHolderDies,
        about: "SETNX, then DEL: a holder that dies locks the item for ever",
        source: "src/lock/ladder/setnx.rs",
        ..PLAIN
    },
    Strategy {
        name: "setnx-expire",
        lock: Some(Kind::Rung(Rung::SetnxExpire)),
        holds: Holds::WhileLeased,
        about: "SETNX, EXPIRE, then DEL: a holder that dies between the two locks it for ever",
        source: "src/lock/ladder/setnx_expire.rs",
        ..PLAIN
    },
    Strategy {
        name: "ttl",
        lock: Some(Kind::Rung(Rung::Ttl)),
        holds: Holds::WhileLeased,
        about: "SET NX PX, then DEL: who comes back late deletes the next one's lock",
        source: "src/lock/ladder/ttl.rs",
        ..PLAIN
    },
    Strategy {
        name: "check-then-del",
        lock: Some(Kind::Rung(Rung::CheckThenDel)),
        holds: Holds::WhileLeased,
        about: "SET NX PX with an owner, GET, compare, DEL: it changes hands in between",
        source: "src/lock/ladder/check_then_del.rs",
        ..PLAIN
    },
    Strategy {
        name: "expire-only",
        lock: Some(Kind::Rung(Rung::ExpireOnly)),
        holds: Holds::WhileLeased,
        about: "SET NX PX, never deleted: one change per lease, and broken when work is longer",
        source: "src/lock/ladder/expire_only.rs",
        ..PLAIN
    },
    Strategy {
        name: "owner",
        lock: Some(Kind::Owner),
        holds: Holds::WhileLeased,
        about: "the textbook Redis lock: SET NX PX with an owner, released by compare-and-delete",
        source: "src/lock/ladder/owner.rs",
        ..PLAIN
    },
    Strategy {
        name: "watchdog",
        lock: Some(Kind::Watchdog),
        holds: Holds::WhileLeased,
        about: "owner, renewed while the work runs: breaks when the process is paused",
        source: "src/lock/ladder/watchdog.rs",
        ..PLAIN
    },
    Strategy {
        name: "redlock",
        lock: Some(Kind::Quorum),
        holds: Holds::WhileLeased,
        about: "a lease on a majority of several Redis: breaks when the process is paused",
        source: "src/lock/ladder/quorum.rs",
        ..PLAIN
    },
    Strategy {
        name: "early-release",
        lock: Some(Kind::Owner),
        release: Release::BeforeCommit,
        about: "owner, given back before the commit: the next one reads the old value",
        source: "src/shop/stock/early_release.rs",
        ..PLAIN
    },
    Strategy {
        name: "wrong-key",
        lock: Some(Kind::Owner),
        on: On::Order,
        about: "owner, on the order instead of the item: two orders never wait for each other",
        source: "src/shop/stock/wrong_key.rs",
        ..PLAIN
    },
    Strategy {
        name: "fenced",
        lock: Some(Kind::Fenced),
        write: Write::Fenced,
        holds: Holds::Always,
        about: "the lock of this project: every write shows its fence and the version it read",
        source: "src/shop/stock/fenced.rs",
        ..PLAIN
    },
    Strategy {
        name: "row-lock",
        read: Read::RowLock,
        holds: Holds::Always,
        about: "select … for no key update: Postgres keeps the row for one transaction at a time",
        source: "src/shop/stock/row_lock.rs",
        ..PLAIN
    },
    Strategy {
        name: "atomic",
        write: Write::Conditional,
        holds: Holds::Always,
        about: "one conditional update: there is nothing between read and write",
        source: "src/shop/stock/atomic.rs",
        ..PLAIN
    },
    Strategy {
        name: "version",
        write: Write::Versioned,
        attempts: MANY_ATTEMPTS,
        holds: Holds::Always,
        about: "update … where version = what was read; who finds no row reads again",
        source: "src/shop/stock/version.rs",
        ..PLAIN
    },
    Strategy {
        name: "serializable",
        isolation: Isolation::Serializable,
        attempts: MANY_ATTEMPTS,
        holds: Holds::Among,
        about: "isolation level serializable: Postgres ends one of two, which begins again",
        source: "src/shop/stock/serializable.rs",
        ..PLAIN
    },
    Strategy {
        name: "advisory",
        read: Read::Advisory,
        holds: Holds::Among,
        about: "pg_advisory_xact_lock, in a statement of its own before the read",
        source: "src/shop/stock/advisory.rs",
        ..PLAIN
    },
    Strategy {
        name: "queue",
        lock: Some(Kind::Queue),
        holds: Holds::OneReplica,
        about: "a bounded queue and one consumer per item: right with one replica, wrong with two",
        source: "src/lock/ladder/queue.rs",
        ..PLAIN
    },
    BATCHED,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Guards;
    use crate::shop::stock::Exclusion;

    #[test]
    fn a_strategy_can_be_shown_and_says_of_itself_what_it_promises() {
        for strategy in &STRATEGIES {
            for heading in ["//! # Guarantee\n", "//! # Breaks when\n", "//! # Seen in the wild\n"]
            {
                assert!(strategy.code().contains(heading), "{}: {heading}", strategy.source);
            }
            assert_eq!(Strategy::named(strategy.name), Some(strategy), "one of each name");
        }
    }

    #[test]
    fn what_never_holds_claims_no_protection_and_what_holds_does() {
        let guards = Guards::default();
        for strategy in &STRATEGIES {
            let unprotected = matches!(strategy.exclusion(&guards), Exclusion::Unprotected(..));
            assert_eq!(unprotected, strategy.holds == Holds::Never, "{}", strategy.name);
        }
    }

    #[test]
    fn two_that_differ_hold_beside_each_other_only_where_each_holds_beside_everybody() {
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
