//! The checker compared with a permutation search that does not know the ledger.
//!
//! The search (after Wing and Gong) is given a register that is opened with some units, and what
//! was answered when: *took q, there were b before*, *sold out, there were a*, *unknown*. It looks
//! for any order of these operations that keeps real time, explains every answer, and ends with
//! what is there now. Agreement means:
//!
//! 1. the checker accepts what a correct shop does, and so does the search;
//! 2. the search can explain every history that the checker accepts (so one without explanation is
//!    rejected), however the answers or the ledger were forged;
//! 3. answers can be explained exactly if there is a ledger with which the checker accepts them:
//!    tried with every order of every set of writes that may have happened.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const SKU: &str = "padlock";

/// One operation, as far as it was observed.
#[derive(Debug, Clone)]
struct Op {
    from: u64,
    to: u64,
    units: i64,
    said: Said,
    /// An earlier attempt with the same key that got no answer, and whether what is answered now
    /// is a replay of what that one did.
    tried: Option<(u64, bool)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    Took {
        before: i64,
    },
    Short {
        available: i64,
    },
    Perhaps,
    Refused,
    /// A restock of `units` by an unobserved client.
    Restocked,
}

impl Op {
    /// Between when it took effect, as its client sees it.
    fn span(&self) -> (u64, u64) {
        match (&self.said, self.tried) {
            (Said::Restocked, _) => (0, u64::MAX),
            (Said::Perhaps, _) => (self.from, u64::MAX),
            (Said::Took { .. }, Some((from, true))) => (from.min(self.from), self.to),
            _ => (self.from, self.to),
        }
    }

    fn may_write(&self) -> bool {
        matches!(self.said, Said::Took { .. } | Said::Perhaps | Said::Restocked)
    }
}

/// Returns whether the operations that are not in `done` can lead from `stock` to `now`.
fn explained(ops: &[Op], done: u32, stock: i64, now: i64) -> bool {
    let open = |at: &usize| done & (1 << at) == 0;
    let must = |at: &usize| !matches!(ops[*at].said, Said::Perhaps | Said::Refused);
    let all = 0..ops.len();
    if stock == now && !all.clone().filter(open).any(|at| must(&at)) {
        return true;
    }
    all.clone().filter(open).any(|at| {
        let op = &ops[at];
        // Nothing that was over before this began may still be open.
        let next = all.clone().filter(open).all(|o| !must(&o) || ops[o].span().1 >= op.span().0);
        let after = match op.said {
            Said::Took { before } if before == stock && stock >= op.units => stock - op.units,
            Said::Perhaps if stock >= op.units => stock - op.units,
            Said::Short { available } if available == stock && stock < op.units => stock,
            Said::Restocked => stock + op.units,
            _ => return false,
        };
        next && explained(ops, done | (1 << at), after, now)
    })
}

/// A history as the checker wants it: the operations in `writes` wrote, in that order.
fn written(ops: &[Op], writes: &[usize], opening: i64, now: i64) -> Story {
    let mut story = Story::new(&[(SKU, opening)]);
    for write in writes {
        let op = &ops[*write];
        if op.said == Said::Restocked {
            story.change(SKU, op.units, "restock", None, Uuid::nil());
            continue;
        }
        let order = OrderId(Uuid::from_u128(*write as u128));
        story.change(SKU, -op.units, "order", Some(order), Uuid::nil());
        story.books.orders.push(Order {
            id: order,
            user: UserId(Uuid::from_u128(1)),
            token: format!("key {write}"),
            status: "pending".to_owned(),
            total_cents: 0,
            lines: vec![(SKU.to_owned(), op.units)],
        });
    }
    story.books.stock.values.get_mut(SKU).unwrap().now = now;
    for (at, op) in ops.iter().enumerate() {
        let key = format!("key {at}");
        let asked = Asked::Place(vec![(SKU.to_owned(), op.units)]);
        let outcome = match op.said {
            Said::Restocked => continue,
            Said::Perhaps => Outcome::Unknown,
            Said::Refused => Outcome::Refused,
            Said::Short { available } => {
                Outcome::Short { key: SKU.to_owned(), requested: op.units, available }
            }
            Said::Took { before } => {
                let (delta, after) = (-op.units, before - op.units);
                let changes = vec![Change { key: SKU.to_owned(), before, delta, after }];
                let order = OrderId(Uuid::from_u128(at as u128));
                Outcome::Done { order, changes, replayed: op.tried.is_some_and(|tried| tried.1) }
            }
        };
        if let (Some((from, _)), Said::Took { .. }) = (op.tried, &op.said) {
            story.observe(&key, asked.clone(), (from, from), Outcome::Unknown);
        }
        story.observe(&key, asked, (op.from, op.to), outcome);
    }
    // The search does not know requests by name either.
    for seen in &mut story.seen {
        seen.request = None;
    }
    story
}

/// A history of a correct shop: up to `most` operations, each with one effect within its time.
/// Also returns which operations wrote, in order, and the remaining stock.
fn correct(rng: &mut StdRng, most: usize, opening: i64) -> (Vec<Op>, Vec<usize>, i64) {
    let mut stock = opening;
    let mut writes = Vec::new();
    let mut ops = Vec::new();
    for at in 0..rng.random_range(1..=most) {
        let moment = 100 + 10 * at as u64;
        let (from, to) =
            (moment - rng.random_range(1..40_u64), moment + rng.random_range(1..40_u64));
        let units = rng.random_range(1..=3);
        let kind = rng.random_range(0..10);
        let said = match kind {
            0 => {
                stock += units;
                writes.push(at);
                Said::Restocked
            }
            1 => Said::Refused,
            2 if stock < units || rng.random_bool(0.5) => Said::Perhaps,
            _ if stock < units => Said::Short { available: stock },
            _ => {
                let before = stock;
                stock -= units;
                writes.push(at);
                if kind == 2 { Said::Perhaps } else { Said::Took { before } }
            }
        };
        // A replay was done by the attempt before it, a fresh answer by itself.
        let replay = rng.random_bool(0.5);
        let tried = rng.random_bool(0.2).then(|| {
            let other = rng.random_range(1..20_u64);
            (if replay { from } else { from.saturating_sub(other) }, replay)
        });
        let from = if tried.is_some_and(|tried| tried.1) { moment + 1 } else { from };
        ops.push(Op { from, to: to.max(from), units, said, tried });
    }
    (ops, writes, stock)
}

/// Changes something about what was observed.
fn forge(rng: &mut StdRng, ops: &mut [Op], now: &mut i64) {
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
            op.said = match op.said {
                Said::Took { before } => Said::Took { before: before + by },
                Said::Short { available } => Said::Short { available: available + by },
                _ => Said::Took { before: rng.random_range(0..5) },
            }
        }
        _ => {
            op.said = match rng.random_range(0..4) {
                0 => Said::Short { available: rng.random_range(0..3) },
                1 => Said::Took { before: rng.random_range(0..5) },
                2 => Said::Perhaps,
                _ => Said::Refused,
            }
        }
    }
}

/// Changes something about the ledger's orders. (Restocks are known from the ledger alone: one that
/// is gone together with its units has never been, for all that anybody can tell.)
fn forge_ledger(rng: &mut StdRng, books: &mut Books) {
    let entries = &mut books.stock.entries;
    let orders: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].order.is_some()).collect();
    if orders.is_empty() {
        return;
    }
    let at = orders[rng.random_range(0..orders.len())];
    let other = rng.random_range(0..entries.len());
    match rng.random_range(0..6) {
        0 => drop(entries.remove(at)),
        1 => entries.push(Entry { seq: entries[other].seq, ..entries[at].clone() }),
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
            forge_ledger(&mut rng, &mut story.books);
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

/// Returns whether some order of some of these writes makes the checker accept.
fn some_ledger_fits(ops: &[Op], written_so_far: &mut Vec<usize>, opening: i64, now: i64) -> bool {
    let left = |at: &usize| ops[*at].may_write() && !written_so_far.contains(at);
    let left: Vec<usize> = (0..ops.len()).filter(left).collect();
    if left.iter().all(|at| ops[*at].said == Said::Perhaps)
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
