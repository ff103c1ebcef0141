//! The checker held against a permutation search that has never heard of a ledger.
//!
//! The search (after Wing and Gong) is given a register that is opened with some units, and what
//! was answered when: *took q, there were b before*, *sold out, there were a*, *unknown*. It looks
//! for any order of these operations that keeps real time, explains every answer, and ends with
//! what is there now. Agreement means:
//!
//! 1. the checker accepts what a correct shop does, and so does the search;
//! 2. whatever the checker accepts, the search can explain (so what can't be explained is
//!    rejected), however the answers or the ledger were forged;
//! 3. answers can be explained exactly if there is a ledger with which the checker accepts them:
//!    tried with every order of every set of writes that may have happened.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const SKU: &str = "padlock";

/// One operation, as far as it was observed.
#[derive(Debug, Clone)]
struct Operation {
    from: u64,
    to: u64,
    units: i64,
    response: Response,
    /// An earlier attempt with the same key that got no answer, and whether what is answered now
    /// is a replay of what that one did.
    earlier_attempt: Option<(u64, bool)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Response {
    Sold {
        before: i64,
    },
    Insufficient {
        available: i64,
    },
    Unknown,
    Rejected,
    /// Put on the shelf (`units` of them) by somebody whom nobody observed.
    Restocked,
}

impl Operation {
    /// Between when it took effect, as its client sees it.
    fn span(&self) -> (u64, u64) {
        match (&self.response, self.earlier_attempt) {
            (Response::Restocked, _) => (0, u64::MAX),
            (Response::Unknown, _) => (self.from, u64::MAX),
            (Response::Sold { .. }, Some((from, true))) => (from.min(self.from), self.to),
            _ => (self.from, self.to),
        }
    }

    fn may_write(&self) -> bool {
        matches!(self.response, Response::Sold { .. } | Response::Unknown | Response::Restocked)
    }
}

/// Whether these operations, of which `done` are over, can go on from `stock` and end with `now`.
fn explained(ops: &[Operation], done: u32, stock: i64, now: i64) -> bool {
    let open = |at: &usize| done & (1 << at) == 0;
    let must = |at: &usize| !matches!(ops[*at].response, Response::Unknown | Response::Rejected);
    let all = 0..ops.len();
    if stock == now && !all.clone().filter(open).any(|at| must(&at)) {
        return true;
    }
    all.clone().filter(open).any(|at| {
        let op = &ops[at];
        // Nothing that was over before this began may still be open.
        let next = all.clone().filter(open).all(|o| !must(&o) || ops[o].span().1 >= op.span().0);
        let after = match op.response {
            Response::Sold { before } if before == stock && stock >= op.units => stock - op.units,
            Response::Unknown if stock >= op.units => stock - op.units,
            Response::Insufficient { available } if available == stock && stock < op.units => stock,
            Response::Restocked => stock + op.units,
            _ => return false,
        };
        next && explained(ops, done | (1 << at), after, now)
    })
}

/// A history as the checker wants it: the operations in `writes` wrote, in that order.
fn written(ops: &[Operation], writes: &[usize], opening: i64, now: i64) -> Story {
    let mut story = Story::new(&[(SKU, opening)]);
    for write in writes {
        let op = &ops[*write];
        if op.response == Response::Restocked {
            story.change(SKU, op.units, "restock", None, Uuid::nil());
            continue;
        }
        let order = OrderId(Uuid::from_u128(*write as u128));
        story.change(SKU, -op.units, "order", Some(order), Uuid::nil());
        story.recorded.orders.push(RecordedOrder {
            id: order,
            user: UserId(Uuid::from_u128(1)),
            token: format!("key {write}"),
            status: "pending".to_owned(),
            total_cents: 0,
            lines: vec![(SKU.to_owned(), op.units)],
        });
    }
    story.recorded.stock.values.get_mut(SKU).unwrap().now = now;
    for (at, op) in ops.iter().enumerate() {
        let key = format!("key {at}");
        let asked = ObservedOperation::Place(vec![(SKU.to_owned(), op.units)]);
        let outcome = match op.response {
            Response::Restocked => continue,
            Response::Unknown => ObservedOutcome::Unknown,
            Response::Rejected => ObservedOutcome::Rejected,
            Response::Insufficient { available } => ObservedOutcome::Insufficient {
                key: SKU.to_owned(),
                requested: op.units,
                available,
            },
            Response::Sold { before } => {
                let (delta, after) = (-op.units, before - op.units);
                let changes = vec![ObservedChange { key: SKU.to_owned(), before, delta, after }];
                let order = OrderId(Uuid::from_u128(at as u128));
                ObservedOutcome::Done {
                    order,
                    changes,
                    replayed: op.earlier_attempt.is_some_and(|earlier_attempt| earlier_attempt.1),
                }
            }
        };
        if let (Some((from, _)), Response::Sold { .. }) = (op.earlier_attempt, &op.response) {
            story.observe(&key, asked.clone(), (from, from), ObservedOutcome::Unknown);
        }
        story.observe(&key, asked, (op.from, op.to), outcome);
    }
    // The search does not know requests by name either.
    for seen in &mut story.seen {
        seen.request = None;
    }
    story
}

/// What a correct shop does: up to `most` operations, each at one moment of its time. Also who
/// wrote, in order, and what is left.
fn correct(rng: &mut StdRng, most: usize, opening: i64) -> (Vec<Operation>, Vec<usize>, i64) {
    let mut stock = opening;
    let mut writes = Vec::new();
    let mut ops = Vec::new();
    for at in 0..rng.random_range(1..=most) {
        let moment = 100 + 10 * at as u64;
        let (from, to) =
            (moment - rng.random_range(1..40_u64), moment + rng.random_range(1..40_u64));
        let units = rng.random_range(1..=3);
        let kind = rng.random_range(0..10);
        let response = match kind {
            0 => {
                stock += units;
                writes.push(at);
                Response::Restocked
            }
            1 => Response::Rejected,
            2 if stock < units || rng.random_bool(0.5) => Response::Unknown,
            _ if stock < units => Response::Insufficient { available: stock },
            _ => {
                let before = stock;
                stock -= units;
                writes.push(at);
                if kind == 2 { Response::Unknown } else { Response::Sold { before } }
            }
        };
        // A replay was done by the attempt before it, a fresh answer by itself.
        let replay = rng.random_bool(0.5);
        let earlier_attempt = rng.random_bool(0.2).then(|| {
            let other = rng.random_range(1..20_u64);
            (if replay { from } else { from.saturating_sub(other) }, replay)
        });
        let from = if earlier_attempt.is_some_and(|earlier_attempt| earlier_attempt.1) {
            moment + 1
        } else {
            from
        };
        ops.push(Operation { from, to: to.max(from), units, response, earlier_attempt });
    }
    (ops, writes, stock)
}

/// Changes something about what was observed.
fn forge(rng: &mut StdRng, ops: &mut [Operation], now: &mut i64) {
    let at = rng.random_range(0..ops.len());
    let op = &mut ops[at];
    let by = *[-2, -1, 1, 2].get(rng.random_range(0..4_usize)).unwrap();
    match rng.random_range(0..6) {
        0 => *now += by,
        1 => op.units = (op.units + by).max(1),
        2 | 3 => {
            let by = rng.random_range(0..60_u64);
            let earlier = rng.random_bool(0.5);
            let move_it = |time: u64| if earlier { time.saturating_sub(by) } else { time + by };
            (op.from, op.to) = (move_it(op.from), move_it(op.to));
        }
        4 => {
            op.response = match op.response {
                Response::Sold { before } => Response::Sold { before: before + by },
                Response::Insufficient { available } => {
                    Response::Insufficient { available: available + by }
                }
                _ => Response::Sold { before: rng.random_range(0..5) },
            }
        }
        _ => {
            op.response = match rng.random_range(0..4) {
                0 => Response::Insufficient { available: rng.random_range(0..3) },
                1 => Response::Sold { before: rng.random_range(0..5) },
                2 => Response::Unknown,
                _ => Response::Rejected,
            }
        }
    }
}

/// Changes something about the ledger's orders. (Restocks are known from the ledger alone: one that
/// is gone together with its units has never been, for all that anybody can tell.)
fn forge_ledger(rng: &mut StdRng, recorded: &mut RecordedState) {
    let entries = &mut recorded.stock.entries;
    let orders: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].order.is_some()).collect();
    if orders.is_empty() {
        return;
    }
    let at = orders[rng.random_range(0..orders.len())];
    let other = rng.random_range(0..entries.len());
    match rng.random_range(0..6) {
        0 => drop(entries.remove(at)),
        1 => entries.push(RecordedEntry { seq: entries[other].seq, ..entries[at].clone() }),
        2 => {
            let seq = entries[at].seq;
            entries[at].seq = entries[other].seq;
            entries[other].seq = seq;
        }
        3 => entries[at].before += 1,
        4 => {
            entries[at].delta -= 1;
            entries[at].after -= 1;
        }
        _ => entries[at].version = entries[other].version,
    }
}

#[test]
fn correct_histories_are_accepted_by_both() {
    for seed in 0..3_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let opening = rng.random_range(0..6);
        let (ops, writes, now) = correct(&mut rng, 7, opening);
        let found = written(&ops, &writes, opening, now).check();
        assert!(found.is_empty(), "seed {seed}: {ops:#?}\n{}", lines(&found));
        assert!(explained(&ops, 0, opening, now), "seed {seed}: {ops:#?}");
    }
}

#[test]
fn accepted_histories_are_linearizable() {
    let (mut accepted, mut only_the_ledger, mut by_both) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let opening = rng.random_range(0..6);
        let (mut ops, mut writes, mut now) = correct(&mut rng, 7, opening);
        for _ in 0..rng.random_range(1..=3) {
            forge(&mut rng, &mut ops, &mut now);
        }
        // Half of the time the ledger stays what it was, and fits badly; or it is forged to fit.
        if rng.random_bool(0.5) {
            writes = (0..ops.len()).filter(|at| ops[*at].may_write()).collect();
            if !writes.is_empty() && rng.random_bool(0.5) {
                let (a, b) = (rng.random_range(0..writes.len()), rng.random_range(0..writes.len()));
                writes.swap(a, b);
            }
        }
        let mut story = written(&ops, &writes, opening, now);
        if rng.random_bool(0.2) {
            forge_ledger(&mut rng, &mut story.recorded);
        }
        let found = story.check();
        match (found.is_empty(), explained(&ops, 0, opening, now)) {
            (true, true) => accepted += 1,
            (true, false) => panic!("seed {seed} can't be explained: {story:#?}"),
            (false, true) => only_the_ledger += 1,
            (false, false) => by_both += 1,
        }
    }
    // Each of the three has been put to the test.
    assert!(accepted > 500, "{accepted} accepted");
    assert!(only_the_ledger > 500, "{only_the_ledger} rejected for the ledger's sake");
    assert!(by_both > 500, "{by_both} rejected by both");
}

/// Whether some order of some of these writes makes the checker accept.
fn some_ledger_fits(
    ops: &[Operation],
    written_so_far: &mut Vec<usize>,
    opening: i64,
    now: i64,
) -> bool {
    let left = |at: &usize| ops[*at].may_write() && !written_so_far.contains(at);
    let left: Vec<usize> = (0..ops.len()).filter(left).collect();
    if left.iter().all(|at| ops[*at].response == Response::Unknown)
        && written(ops, written_so_far, opening, now).check().is_empty()
    {
        return true;
    }
    left.into_iter().any(|at| {
        written_so_far.push(at);
        let fits = some_ledger_fits(ops, written_so_far, opening, now);
        written_so_far.pop();
        fits
    })
}

#[test]
fn linearizable_means_some_ledger_fits() {
    let (mut fitting, mut not) = (0, 0);
    for seed in 0..4_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let opening = rng.random_range(0..5);
        let (mut ops, _, mut now) = correct(&mut rng, 5, opening);
        for _ in 0..rng.random_range(0..=3) {
            forge(&mut rng, &mut ops, &mut now);
        }
        let expected = explained(&ops, 0, opening, now);
        let fits = some_ledger_fits(&ops, &mut Vec::new(), opening, now);
        assert_eq!(fits, expected, "seed {seed}: {opening} to {now} {ops:#?}");
        if fits { fitting += 1 } else { not += 1 }
    }
    assert!(fitting > 500 && not > 500, "{fitting} fit, {not} do not");
}
