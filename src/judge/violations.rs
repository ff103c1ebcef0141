//! Sentences for the violations of a pass, each with its evidence.

use std::collections::{BTreeMap, BTreeSet};

use super::events::events_between;
use super::holds::{HoldPair, LockHold};
use super::ledger::ChainBreak;
use super::measures::ms;
use super::plan::JudgePlan;
use super::protocol::TurnOutcome;
use super::recording::{RecordedTurn, Recording};
use super::report::{ClientId, Violation};
use crate::output::grouped;

/// Sentences of each kind.
const MAX_OF_KIND: usize = 3;
/// A blocked time is a violation if it is longer than this many TTLs.
pub(super) const MAX_BLOCKED_TTLS: u64 = 3;
/// Names that a sentence lists.
const MAX_NAMES: usize = 8;

/// A pass as the sentences need it.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a JudgePlan,
    pub(super) recording: &'a Recording,
    pub(super) violations: Vec<Violation>,
}

impl Evidence<'_> {
    fn add(&mut self, kind: &str, text: String, from_us: u64, until_us: u64, of: &[ClientId]) {
        let mut events = events_between(self.recording, from_us, until_us, of);
        // The write without the fence took effect; the other row's is not in question here.
        events.retain(|event| kind != "lost-update" || event.event != "refused");
        self.violations.push(Violation { kind: kind.to_owned(), text, events });
    }

    /// Formats a time as milliseconds since the start of the work.
    fn at(&self, us: u64) -> String {
        let since = us.saturating_sub(self.recording.began_us) / 1_000;
        format!("{} ms", grouped(since))
    }

    pub(super) fn lost_updates(&mut self, lost: u64, breaks: &[ChainBreak]) {
        for found in breaks.iter().take(MAX_OF_KIND) {
            let ((early, early_turn), (late, late_turn)) = (found.early(), found.late());
            let (early_us, late_us) = found.sent_us();
            let granted = |id, number| {
                let mut turns = self.recording.turns.iter();
                turns.find(|turn| turn.id == id && turn.turn.number == number)
            };
            let turns = [granted(early, early_turn), granted(late, late_turn)];
            let asked = turns.iter().flatten().map(|turn| turn.turn.answered_us).min();
            let from = asked.unwrap_or(early_us).min(early_us);
            self.add("lost-update", self.describe(found), from, late_us, &[early, late]);
        }
        if lost > 0 && breaks.is_empty() {
            let text = format!("the ledger has {} units more than the stock lost", grouped(lost));
            self.add("lost-update", text, 0, 0, &[]);
        }
    }

    /// The values in a drawing would be those of the row without the fence, so it has none.
    pub(super) fn lost_with_fence(&mut self, breaks: &[ChainBreak]) {
        for found in breaks.iter().take(MAX_OF_KIND) {
            let fence = found.fence.unwrap_or_default();
            let text = format!("with fence {fence}, {}", self.describe(found));
            self.add("lost-with-fence", text, 0, 0, &[]);
        }
    }

    fn describe(&self, found: &ChainBreak) -> String {
        let ((early, _), (late, _)) = (found.early(), found.late());
        let (early_us, late_us) = found.sent_us();
        let number = |stock: i64| grouped(stock.unsigned_abs());
        let read = number(found.before);
        let who = if early == late {
            format!("{early} read {read} twice")
        } else {
            format!("{early} and {late} both read {read}")
        };
        format!(
            "{who}: {early} wrote {after} at {}, and {late} wrote {after} over {} at {}, so both \
             took a unit, and the stock shows one",
            self.at(early_us),
            number(found.stock_before),
            self.at(late_us),
            after = number(found.before - 1),
        )
    }

    pub(super) fn overlaps(&mut self, pairs: &[HoldPair]) {
        for (first, second) in spread(pairs) {
            let until = first.release_us.min(second.release_us);
            let text = format!(
                "{} held the lock from {} to {}, and {} was granted it at {}: both held it for {} \
                 ms",
                first.id,
                self.at(first.granted_us),
                self.at(first.release_us),
                second.id,
                self.at(second.granted_us),
                grouped(until.saturating_sub(second.granted_us) / 1_000),
            );
            self.add_pair("overlap", text, &first, &second);
        }
    }

    pub(super) fn wrong_releases(&mut self, pairs: &[HoldPair]) {
        for (first, second) in spread(pairs) {
            let text = format!(
                "{} released the lock at {} and was answered ok, although {} had been granted it \
                 at {}",
                first.id,
                self.at(first.release_us),
                second.id,
                self.at(second.granted_us),
            );
            self.add_pair("release-ok-when-lost", text, &first, &second);
        }
    }

    pub(super) fn fence_regressions(&mut self, pairs: &[HoldPair]) {
        let number = |hold: &LockHold| hold.fence.unwrap_or_default();
        for (before, hold) in spread(pairs) {
            let text = format!(
                "{} was granted the lock with fence {} at {}, after {} had it with fence {} at {}",
                hold.id,
                number(&hold),
                self.at(hold.granted_us),
                before.id,
                number(&before),
                self.at(before.granted_us),
            );
            self.add_pair("fence-regression", text, &before, &hold);
        }
    }

    fn add_pair(&mut self, kind: &str, text: String, first: &LockHold, second: &LockHold) {
        let until = first.release_us.max(second.release_us);
        self.add(kind, text, first.granted_us, until, &[first.id, second.id]);
    }

    pub(super) fn misreported(&mut self, turns: &[RecordedTurn]) {
        for RecordedTurn { id, turn, .. } in turns.iter().take(MAX_OF_KIND).copied() {
            let answer = if turn.outcome == TurnOutcome::Busy { "busy" } else { "timeout" };
            let text = format!(
                "{id} asked for the lock at {} and was answered {answer} at {}, while Redis was \
                 away and no client held the lock: the answer should have been error",
                self.at(turn.asked_us),
                self.at(turn.answered_us),
            );
            self.add("misreported-busy", text, turn.asked_us, turn.answered_us, &[id]);
        }
    }

    /// `block` is the longest one: its start and length.
    pub(super) fn blocked(&mut self, block: Option<(u64, u64)>) {
        let Some((from, length)) = block else { return };
        if length / 1_000 <= MAX_BLOCKED_TTLS * self.plan.ttl_ms {
            return;
        }
        let ended = from + length >= self.recording.ended_us;
        let until = if ended { ", until the work ended" } else { "" };
        let text = format!(
            "from {} on, no client got the lock for {} ms{until}, although none held it; the TTL \
             is {} ms",
            self.at(from),
            grouped(length / 1_000),
            grouped(self.plan.ttl_ms),
        );
        self.add("blocked", text, from.saturating_sub(10_000), from + length, &[]);
    }

    pub(super) fn starved(&mut self, grants: &BTreeMap<ClientId, u64>) {
        let total: u64 = grants.values().sum();
        let starved: Vec<String> =
            grants.iter().filter(|(_, n)| **n == 0).map(|(id, _)| id.to_string()).collect();
        if starved.is_empty() {
            return;
        }
        let text = format!(
            "{} of {} clients never got the lock, which was granted {} times: {}",
            starved.len(),
            grants.len(),
            grouped(total),
            list(starved.iter()),
        );
        self.add("starved", text, 0, 0, &[]);
    }

    /// `names` are keys that a pass without a fault does not leave.
    pub(super) fn leftover_keys(&mut self, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        let text = format!(
            "{} in Redis {} ms after the work, beyond those that remain without a fault: {}",
            if names.len() == 1 {
                "1 key is left".to_owned()
            } else {
                format!("{} keys are left", names.len())
            },
            grouped(2 * self.plan.ttl_ms),
            list(names.iter()),
        );
        self.add("leftover-key", text, 0, 0, &[]);
    }
}

/// Returns a few pairs, of different clients where there are.
fn spread(pairs: &[HoldPair]) -> Vec<HoldPair> {
    let mut seen = BTreeSet::new();
    let other = pairs.iter().filter(|(first, second)| seen.insert((first.id, second.id)));
    other.take(MAX_OF_KIND).copied().collect()
}

fn list<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let named = names.take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// Returns the length of a blocked time in whole milliseconds.
pub(super) fn blocked_ms(block: Option<(u64, u64)>) -> u64 {
    block.map_or(0, |(_, length)| ms(length) as u64)
}
