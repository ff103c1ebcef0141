//! The write rules: what makes a change safe when the lock fails.
//!
//! Two or three holders read a row and write what they computed from it, once each. The lock is as
//! bad as it can be: a lease may end at any moment without its holder noticing, Redis may be
//! flushed and restart its fences (twice), each holder may even speak to a Redis of its own. Proven
//! over all orders:
//! - with no rule, and with `fence <= mine` alone, a sale is lost; the shortest way is asserted;
//! - with equality on the version, alone or with the fence, none is lost, however the lock fails;
//! - what the fence adds: accepted writes come in the order of their fences, and a holder that
//!   writes after a later one is rejected as *stale*, though the row is as it read it. One that was
//!   overtaken and still writes first is let through, and the later one reads again;
//! - after a flush, the holder of the lock in Redis completes its sale by itself (`raise_fence`).
//!
//! Not proven: that Postgres compares and writes in one step, and that a trigger raises the version
//! with every change. Those are Postgres's promises, tested in `tests/it`.

use std::fmt::{self, Display};

use crate::{Machine, Steps, breaks, explore, holds};

const STOCK: i8 = 9;
/// The number that the row and the first Redis know at the start, so that a flush is felt.
const FENCE: u8 = 2;
/// `MAX_RAISES` of `shop::engine::locks`.
const HEALINGS: u8 = 3;

/// The condition of a write on the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    Nothing,
    Fence,
    Version,
    VersionAndFence,
}

/// The promise that is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    NoLostUpdate,
    /// Accepted writes come in the order of their fences.
    FenceOrder,
    /// A holder cannot write after a later holder has written.
    LateIsRefused,
    /// A holder cannot write after the lock was *granted* to a later one.
    OvertakenIsRefused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Row {
    stock: i8,
    version: u8,
    fence: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Out,
    /// It believes it holds the lock.
    Held,
    /// It has read the row.
    Read(Row),
    /// Written and committed.
    Done,
    /// It learned that it lost the lock, or gave up.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Holder {
    at: Phase,
    fence: u8,
    healings: u8,
    /// A later grant was made; that later holder has written. Both since our grant, for judging.
    overtaken: bool,
    outwritten: bool,
}

/// One Redis: who has the lock, and the last number given out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Redis {
    lock: Option<u8>,
    fences: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    row: Row,
    redis: Vec<Redis>,
    holders: Vec<Holder>,
    accepted: i8,
    flushes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Take(u8),
    Read(u8),
    Write(u8),
    Release(u8),
    Expire(u8),
    Flush(u8),
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, who) = match self {
            Step::Take(who) => ("take", who),
            Step::Read(who) => ("read", who),
            Step::Write(who) => ("write", who),
            Step::Release(who) => ("release", who),
            Step::Expire(redis) => ("expire", redis),
            Step::Flush(redis) => ("flush", redis),
        };
        write!(f, "{verb} {}", who + 1)
    }
}

struct Writes {
    rule: Rule,
    promise: Promise,
    holders: usize,
    /// One Redis for all, or by mistake one for each.
    redis: usize,
    flushes: u8,
    /// A stale holder that Redis still knows gets a new fence.
    heals: bool,
}

impl Writes {
    fn new(rule: Rule) -> Self {
        let promise = Promise::NoLostUpdate;
        Self { rule, promise, holders: 2, redis: 1, flushes: 1, heals: true }
    }

    fn redis_of(&self, who: u8) -> usize {
        usize::from(who) % self.redis
    }

    fn take(&self, state: &State, who: u8) -> State {
        let mut next = state.clone();
        let redis = self.redis_of(who);
        for holder in next.holders.iter_mut().filter(|holder| is_at_work(holder)) {
            holder.overtaken = true;
        }
        next.redis[redis].fences += 1;
        next.redis[redis].lock = Some(who);
        let fence = next.redis[redis].fences;
        next.holders[usize::from(who)] =
            Holder { at: Phase::Held, fence, healings: 0, overtaken: false, outwritten: false };
        next
    }

    /// `update … where` and what the shop does with the answer.
    fn write(&self, state: &State, who: u8, read: Row) -> Result<State, String> {
        let mut next = state.clone();
        let me = state.holders[usize::from(who)];
        let same = state.row.version == read.version;
        let in_order = state.row.fence <= me.fence;
        let accepted = match self.rule {
            Rule::Nothing => true,
            Rule::Fence => in_order,
            Rule::Version => same,
            Rule::VersionAndFence => same && in_order,
        };
        if !accepted {
            let stale = !in_order && matches!(self.rule, Rule::Fence | Rule::VersionAndFence);
            if stale {
                self.heal(&mut next, who);
            } else {
                next.holders[usize::from(who)].at = Phase::Held;
            }
            return Ok(next);
        }
        let out_of_order = !in_order && self.promise == Promise::FenceOrder;
        let late = me.outwritten && self.promise == Promise::LateIsRefused;
        let overtaken = me.overtaken && self.promise == Promise::OvertakenIsRefused;
        if out_of_order || late || overtaken {
            return Err(format!("{:?} does not hold", self.promise));
        }
        next.row = Row { stock: read.stock - 1, version: state.row.version + 1, fence: me.fence };
        next.accepted += 1;
        next.holders[usize::from(who)].at = Phase::Done;
        for (other, holder) in next.holders.iter_mut().enumerate() {
            // Only who was granted the lock after another overtook it.
            holder.outwritten |= other != usize::from(who) && holder.overtaken && !me.overtaken;
        }
        Ok(next)
    }

    /// Stale. If Redis still knows us it has forgotten its numbers: they are raised to the row's,
    /// and all begins again with the read. Otherwise the lock is lost.
    fn heal(&self, next: &mut State, who: u8) {
        let floor = next.row.fence;
        let redis = &mut next.redis[self.redis_of(who)];
        let me = &mut next.holders[usize::from(who)];
        if self.heals && redis.lock == Some(who) && me.healings < HEALINGS {
            redis.fences = redis.fences.max(floor) + 1;
            me.fence = redis.fences;
            me.healings += 1;
            me.at = Phase::Held;
        } else {
            me.at = Phase::Refused;
        }
    }

    /// From here on nothing fails and one after another goes on: those whom Redis knows first, then
    /// the paused ones, then newcomers. Who of them did not get its sale.
    fn unserved(&self, state: &State) -> Vec<u8> {
        let mut now = state.clone();
        let everybody = 0..u8::try_from(self.holders).unwrap();
        let known = |now: &State, who: u8| now.redis[self.redis_of(who)].lock == Some(who);
        let mut unserved = Vec::new();
        let (first, then): (Vec<u8>, Vec<u8>) = everybody.partition(|who| known(state, *who));
        for who in first.into_iter().chain(then) {
            let has_a_right = known(&now, who) || now.holders[usize::from(who)].at == Phase::Out;
            loop {
                now = match now.holders[usize::from(who)].at {
                    Phase::Out => self.take(&now, who),
                    Phase::Held => read(&now, who),
                    Phase::Read(row) => self.write(&now, who, row).unwrap(),
                    Phase::Done | Phase::Refused => break,
                };
            }
            if now.redis[self.redis_of(who)].lock == Some(who) {
                now.redis[self.redis_of(who)].lock = None;
            }
            if has_a_right && now.holders[usize::from(who)].at == Phase::Refused {
                unserved.push(who);
            }
        }
        unserved
    }
}

fn is_at_work(holder: &Holder) -> bool {
    matches!(holder.at, Phase::Held | Phase::Read(_))
}

fn read(state: &State, who: u8) -> State {
    let mut next = state.clone();
    next.holders[usize::from(who)].at = Phase::Read(state.row);
    next
}

impl Machine for Writes {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let out =
            Holder { at: Phase::Out, fence: 0, healings: 0, overtaken: false, outwritten: false };
        let mut redis = vec![Redis { lock: None, fences: 0 }; self.redis];
        redis[0].fences = FENCE;
        State {
            row: Row { stock: STOCK, version: 0, fence: FENCE },
            redis,
            holders: vec![out; self.holders],
            accepted: 0,
            flushes: self.flushes,
        }
    }

    fn next(&self, state: &State) -> Steps<Step, State> {
        let mut steps = Vec::new();
        for (who, holder) in (0_u8..).zip(&state.holders) {
            let lock = state.redis[self.redis_of(who)].lock;
            match holder.at {
                Phase::Out if lock.is_none() => {
                    steps.push((Step::Take(who), Ok(self.take(state, who))));
                }
                Phase::Held => steps.push((Step::Read(who), Ok(read(state, who)))),
                Phase::Read(row) => steps.push((Step::Write(who), self.write(state, who, row))),
                Phase::Done | Phase::Refused if lock == Some(who) => {
                    let mut next = state.clone();
                    next.redis[self.redis_of(who)].lock = None;
                    steps.push((Step::Release(who), Ok(next)));
                }
                _ => {}
            }
        }
        for (at, redis) in (0_u8..).zip(&state.redis) {
            if redis.lock.is_some() {
                let mut next = state.clone();
                next.redis[usize::from(at)].lock = None;
                steps.push((Step::Expire(at), Ok(next)));
            }
            if state.flushes > 0 && redis.fences > 0 {
                let mut next = state.clone();
                next.redis[usize::from(at)] = Redis { lock: None, fences: 0 };
                next.flushes -= 1;
                steps.push((Step::Flush(at), Ok(next)));
            }
        }
        steps
    }

    fn broken(&self, state: &State) -> Option<String> {
        let lost = state.accepted - (STOCK - state.row.stock);
        (lost != 0).then(|| format!("a lost update: {} of {} sales", lost, state.accepted))
    }
}

/// The reads and writes of a trace, without the steps of the lock.
fn reads_and_writes(steps: &[String]) -> String {
    let descriptions: Vec<&str> = steps
        .iter()
        .map(String::as_str)
        .filter(|step| step.starts_with("read") || step.starts_with("write"))
        .collect();
    descriptions.join(", ")
}

#[test]
fn unguarded_write_loses_a_sale() {
    let steps = breaks("no rule", &Writes::new(Rule::Nothing), "a lost update");
    assert_eq!(steps.len(), 7);
    assert_eq!(reads_and_writes(&steps), "read 1, read 2, write 1, write 2");
}

#[test]
fn fence_alone_loses_a_sale() {
    // Fences 1 < 2 and no flush: nothing but one lease that ended early.
    let writes = Writes { flushes: 0, ..Writes::new(Rule::Fence) };
    let steps = breaks("fence <= mine", &writes, "a lost update");
    assert_eq!(steps.join(", "), "take 1, read 1, expire 1, take 2, read 2, write 1, write 2");
}

#[test]
fn version_check_loses_no_sale() {
    for rule in [Rule::Version, Rule::VersionAndFence] {
        for holders in [2, 3] {
            for redis in [1, holders] {
                let writes = Writes { holders, redis, flushes: 2, ..Writes::new(rule) };
                holds(&format!("{rule:?}, {holders} holders, {redis} Redis"), &writes);
            }
        }
    }
}

#[test]
fn fence_orders_writes_and_rejects_stale_ones() {
    for promise in [Promise::FenceOrder, Promise::LateIsRefused] {
        // Without it: 2 takes over and is done, then 1 resumes, reads afresh and sells under a lock
        // that it has lost. No sale is lost, but the stale holder never learns of it.
        let version = Writes { promise, flushes: 0, ..Writes::new(Rule::Version) };
        let steps = breaks(&format!("version alone, {promise:?}"), &version, "does not hold");
        assert_eq!(reads_and_writes(&steps), "read 2, write 2, read 1, write 1");
        for holders in [2, 3] {
            // The order survives flushes: the row keeps it. A stale holder is recognized by growing
            // fences, so not across a flush.
            let flushes = if promise == Promise::FenceOrder { 2 } else { 0 };
            let both = Writes { holders, flushes, promise, ..Writes::new(Rule::VersionAndFence) };
            holds(&format!("version and fence, {promise:?}, {holders} holders"), &both);
        }
    }
}

#[test]
fn overtaken_holder_may_still_write_first() {
    // The row gets a fence only by a write. An overtaken holder that writes before the next one is
    // accepted by every rule, and the next one reads again: no harm, but no rejection.
    let promise = Promise::OvertakenIsRefused;
    let writes = Writes { promise, flushes: 0, ..Writes::new(Rule::VersionAndFence) };
    breaks("version and fence, overtaken", &writes, "does not hold");
}

#[test]
fn fences_recover_after_flush() {
    for (holders, redis) in [(2, 1), (3, 1), (2, 2), (3, 3)] {
        let writes = Writes { holders, redis, flushes: 2, ..Writes::new(Rule::VersionAndFence) };
        let explored = explore(&writes).unwrap();
        for state in &explored.states {
            assert_eq!(writes.unserved(state), Vec::<u8>::new(), "{state:?}");
        }
        println!("healed from {} states ({holders}, {redis})", explored.states.len());
    }
}

#[test]
fn unraised_fences_lock_shop_out() {
    let writes = Writes { heals: false, ..Writes::new(Rule::VersionAndFence) };
    let explored = explore(&writes).unwrap();
    let unserved = explored.states.iter().filter(|state| !writes.unserved(state).is_empty());
    assert!(unserved.count() > 0);
}
