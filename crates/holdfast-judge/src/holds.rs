//! Holds of the lock, as the clients saw them: from the answer *granted* to the request to release.
//! Both are within the time in which the lock was held, so two holds that overlap are certain.

use std::cmp::Reverse;

use super::events::Recording;
use super::ledger::RowWrite;
use super::protocol::{ReleaseAnswer, Turn, TurnOutcome};

/// Time by which the answers of two grants can be late in relation to each other.
const REORDERING_US: u64 = 50_000;

/// Two holds, the earlier grant first.
pub(super) type HoldPair = (Turn, Turn);

/// Returns all turns with a grant, by its time.
pub(super) fn holds(recording: &Recording) -> Vec<Turn> {
    let granted = recording.turns.iter().filter(|turn| turn.outcome == TurnOutcome::Granted);
    let mut holds: Vec<Turn> = granted.copied().collect();
    holds.sort_by_key(|hold| hold.answered_us);
    holds
}

pub(super) fn overlaps(holds: &[Turn]) -> Vec<HoldPair> {
    let mut pairs = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        let later = holds[at + 1..].iter().take_while(|later| later.answered_us < hold.release_us);
        pairs.extend(later.map(|later| (*hold, *later)));
    }
    pairs
}

/// Returns the holds whose release was answered `ok` after another client had been granted the
/// lock, each with that first later hold. Grants whose order is not known are left out: of two that
/// overlap, the one of the delayed answer may have been the earlier, and the other's `ok` is right.
pub(super) fn wrong_releases(holds: &[Turn], recording: &Recording) -> Vec<HoldPair> {
    let pairs = holds.iter().zip(holds.iter().skip(1));
    let wrong = pairs.filter(|(hold, later)| {
        hold.release == ReleaseAnswer::Ok
            && later.answered_us < hold.release_us
            && is_granted_later(hold, later, recording)
    });
    wrong.map(|(hold, later)| (*hold, *later)).collect()
}

/// Returns the holds whose release was answered `lost` less than half a lease after their grant:
/// without a fault, no lease has ended by then.
pub(super) fn early_losses(holds: &[Turn], lease_us: u64) -> Vec<Turn> {
    let lost = holds.iter().filter(|hold| {
        hold.release == ReleaseAnswer::Lost && hold.released_us < hold.answered_us + lease_us / 2
    });
    lost.copied().collect()
}

/// Returns the grants less than half a lease after an earlier one, whose client still held the
/// lock: its lease cannot have ended, so another client took the lock from it.
pub(super) fn early_grants(holds: &[Turn], lease_us: u64, recording: &Recording) -> Vec<HoldPair> {
    let pairs = overlaps(holds).into_iter().filter(|(hold, later)| {
        later.answered_us < hold.answered_us + lease_us / 2
            && is_granted_later(hold, later, recording)
    });
    pairs.collect()
}

/// Returns the units that were lost before any holder had been at it for half a lease. Afterwards a
/// lease may have ended, and a release may have hit a later holder, and so on.
pub(super) fn lost_in_time(holds: &[Turn], writes: &[RowWrite], lease_us: u64) -> u64 {
    let half_us = lease_us / 2;
    let ends = holds.iter().filter_map(|hold| {
        let half_over_us = hold.answered_us + half_us;
        (hold.release_us.max(hold.released_us) > half_over_us).then_some(half_over_us)
    });
    let until_us = ends.min().unwrap_or(u64::MAX);

    let in_time = writes.windows(2).filter(|pair| pair[1].sent_us < until_us);
    let lost = in_time.map(|pair| u64::try_from(pair[1].before - pair[0].after).unwrap_or(0));
    lost.sum()
}

/// Returns the grants whose fence was not above that of an earlier one, each with the earlier one
/// of the highest fence. Grants whose answers were delayed by a fault are left out: their order is
/// not known.
pub(super) fn fence_regressions(holds: &[Turn], recording: &Recording) -> Vec<HoldPair> {
    let mut regressions = Vec::new();
    let mut highest: Option<Turn> = None;
    for hold in holds {
        let Some(fence) = hold.fence else { continue };
        let Some(before) = highest else {
            highest = Some(*hold);
            continue;
        };

        if before.fence >= Some(fence) && is_granted_later(&before, hold, recording) {
            regressions.push((before, *hold));
        }
        if before.fence < Some(fence) {
            highest = Some(*hold);
        }
    }
    regressions
}

/// Returns whether `later` was certainly granted the lock after `hold`, whose answer came first.
fn is_granted_later(hold: &Turn, later: &Turn, recording: &Recording) -> bool {
    let is_apart = hold.release_us <= later.answered_us
        || hold.answered_us <= later.asked_us
        || hold.answered_us + REORDERING_US <= later.answered_us;
    is_apart && !is_delayed(later, recording)
}

/// Returns whether the answer arrived late because the worker was stopped or cut off.
fn is_delayed(hold: &Turn, recording: &Recording) -> bool {
    recording.stall.as_ref().is_some_and(|stall| {
        stall.worker == hold.id.worker
            && hold.asked_us < stall.until_us
            && hold.answered_us > stall.from_us
    })
}

/// Returns the refusals *busy* and *timeout* from times in which Redis was away and no client held
/// the lock.
pub(super) fn misreported(holds: &[Turn], recording: &Recording) -> Vec<Turn> {
    let Some((from_us, until_us)) = recording.outage else { return Vec::new() };
    let refused = recording.turns.iter().filter(|turn| {
        let is_refused = matches!(turn.outcome, TurnOutcome::Busy | TurnOutcome::Timeout);
        let within = turn.asked_us > from_us && turn.answered_us < until_us;
        is_refused && within && !holds.iter().any(|hold| was_held_during(hold, turn))
    });
    refused.copied().collect()
}

fn was_held_during(hold: &Turn, turn: &Turn) -> bool {
    // Until the answer to the release: the lock may have been held until then.
    let end_us = hold.release_us.max(hold.released_us);
    hold.answered_us < turn.answered_us && end_us > turn.asked_us
}

/// Returns the union of the holds within the work, as disjoint times.
pub(super) fn held_times(holds: &[Turn], recording: &Recording) -> Vec<(u64, u64)> {
    let mut times: Vec<(u64, u64)> = Vec::new();
    for hold in holds {
        let from = hold.answered_us;
        let until = hold.release_us.min(recording.ended_us);
        match times.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ if from < until => times.push((from, until)),
            _ => {}
        }
    }
    times
}

/// Returns the longest time in which a client waited for a key that none held, and Redis was
/// neither away nor struck again and again: its start and its length in microseconds.
pub(super) fn longest_block(
    held_times: &[(u64, u64)],
    recording: &Recording,
) -> Option<(u64, u64)> {
    let ends = std::iter::once(recording.began_us).chain(held_times.iter().map(|time| time.1));
    let starts = held_times.iter().map(|time| time.0).chain(std::iter::once(recording.ended_us));
    let gaps =
        ends.zip(starts).flat_map(|(from, until)| match recording.outage.or(recording.struck) {
            Some((away, back)) if away < until && back > from => {
                [(from, away.max(from)), (back.min(until), until)]
            }
            _ => [(from, until), (until, until)],
        });
    let mut gaps: Vec<(u64, u64)> = gaps.filter(|(from, until)| from < until).collect();
    gaps.sort_by_key(|(from, until)| Reverse(until - from));

    let mut longest: Option<(u64, u64)> = None;
    for (from, until) in gaps {
        // The others are shorter, also before they are clipped.
        if longest.is_some_and(|(_, length)| length >= until - from) {
            break;
        }

        let waiters =
            recording.turns.iter().filter(|turn| turn.asked_us < until && turn.answered_us > from);
        let Some(asked_us) = waiters.map(|turn| turn.asked_us).min() else { continue };
        // Until the first request, no client missed the lock.
        let from = asked_us.max(from);
        if longest.is_none_or(|(_, length)| length < until - from) {
            longest = Some((from, until - from));
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ClientId;

    fn recording(turns: &[(u64, u64)]) -> Recording {
        let turn = |(asked_us, answered_us)| Turn { asked_us, answered_us, ..Turn::default() };
        let turns = turns.iter().copied().map(turn).collect();
        Recording { began_us: 100, ended_us: 1_000, turns, ..Recording::default() }
    }

    #[test]
    fn release_is_wrong_only_if_the_other_grant_is_certainly_later() {
        let hold = |asked_us, answered_us| Turn {
            asked_us,
            answered_us,
            release_us: 200_000,
            release: ReleaseAnswer::Ok,
            ..Turn::default()
        };
        let wrong = |later| wrong_releases(&[hold(100, 1_000), later], &recording(&[])).len();

        // The other asked at the same time: it may have been granted the lock first, and lost it.
        assert_eq!(wrong(hold(200, 1_500)), 0);
        // It asked after this one had been granted the lock.
        assert_eq!(wrong(hold(1_200, 1_500)), 1);
        // Its answer came too much later to have been overtaken.
        assert_eq!(wrong(hold(200, 1_000 + REORDERING_US)), 1);
    }

    #[test]
    fn lease_that_cannot_have_ended_is_taken_or_denied() {
        let hold = |answered_us, release_us, release| Turn {
            answered_us,
            release_us,
            released_us: release_us + 10,
            release,
            ..Turn::default()
        };
        let lease_us = 400_000;
        let ok = hold(1_000, 300_000, ReleaseAnswer::Ok);
        let taken = |at_us| {
            let later = hold(at_us, at_us + 1_000, ReleaseAnswer::Ok);
            early_grants(&[ok, later], lease_us, &recording(&[])).len()
        };
        // Of two answers at nearly the same time, the order of the grants is not known.
        assert_eq!([taken(10_000), taken(100_000), taken(210_000), taken(300_000)], [0, 1, 0, 0]);

        let denied = |released_us| {
            let hold = hold(0, released_us, ReleaseAnswer::Lost);
            early_losses(&[ok, hold], lease_us).len()
        };
        assert_eq!([denied(100_000), denied(200_000)], [1, 0]);
    }

    #[test]
    fn what_is_lost_after_half_a_lease_is_not_lost_in_time() {
        let write = |(before, sent_us)| RowWrite {
            id: ClientId::default(),
            fenced: false,
            version: 0,
            before,
            after: before - 1,
            granted_us: 0,
            sent_us,
        };
        // Two are lost at 2,000, and one more at 300,000.
        let writes = [(10, 1_000), (11, 2_000), (10, 3_000), (10, 300_000)].map(write);
        let hold = |answered_us, released_us| Turn { answered_us, released_us, ..Turn::default() };
        let lost = |released_us| lost_in_time(&[hold(1_500, released_us)], &writes, 400_000);
        assert_eq!([lost(2_000), lost(201_500), lost(201_501)], [3, 3, 2]);
    }

    #[test]
    fn block_begins_with_first_waiter() {
        // Held until 300. Asked for at 700, while no client had waited since 300.
        let mut waited = recording(&[(100, 110), (700, 950)]);
        assert_eq!(longest_block(&[(110, 300), (950, 990)], &waited), Some((700, 250)));
        // The last waiter gave up before the gap.
        assert_eq!(longest_block(&[(110, 300)], &recording(&[(100, 110), (150, 290)])), {
            Some((100, 10))
        });
        waited.outage = Some((600, 900));
        assert_eq!(longest_block(&[(110, 300), (950, 990)], &waited), Some((900, 50)));
        (waited.outage, waited.struck) = (None, Some((600, 800)));
        assert_eq!(longest_block(&[(110, 300), (950, 990)], &waited), Some((800, 150)));
    }
}
