//! The figures of a pass, with a sentence for each violation and its evidence.

use std::collections::{BTreeMap, BTreeSet};

use super::events::{Recording, events_between, ms, story};
use super::fault::Fault;
use super::holds::{self, HoldPair};
use super::ledger::{ChainEntry, Ledger};
use super::plan::JudgePlan;
use super::protocol::{Turn, TurnOutcome};
use super::report::{BLOCKED_TO_END, ClientId, FaultReport, Violation, ViolationKind, WithFence};
use holdfast_base::message;
use holdfast_base::messages::{Message, Text};
use holdfast_base::output::grouped;
use holdfast_base::stats;
use holdfast_story::EventKind;

/// Sentences of each kind.
const MAX_OF_KIND: usize = 3;
/// A blocked time is a violation if it is longer than this many TTLs.
pub(super) const MAX_BLOCKED_TTLS: u64 = 3;
/// The same after the death of the holder: its lease, and as much again to find that it has ended.
pub(super) const MAX_BLOCKED_TTLS_AFTER_KILL: u64 = 2;
/// Names that a sentence lists.
const MAX_NAMES: usize = 8;

/// The record of a pass, and the report that is made from it.
#[derive(Debug)]
pub(super) struct FaultEvidence<'a> {
    pub(super) plan: &'a JudgePlan,
    pub(super) recording: &'a Recording,
    /// All turns with a grant, by its time.
    pub(super) holds: &'a [Turn],
    pub(super) report: FaultReport,
}

impl FaultEvidence<'_> {
    fn add(
        &mut self,
        kind: ViolationKind,
        found: Message,
        from_us: u64,
        until_us: u64,
        of: &[ClientId],
    ) {
        let text = found.english();
        let is_known = self.report.violations.iter().any(|it| it.kind == kind && it.text == text);
        if is_known {
            return;
        }
        let mut events = events_between(self.recording, from_us, until_us, of);
        // The write without the fence took effect; the other row's is not in question here.
        events
            .retain(|event| kind != ViolationKind::LostUpdate || event.kind != EventKind::Refused);
        self.report.violations.push(Violation {
            kind,
            text,
            message: Some(found),
            events,
            story: Vec::new(),
        });
    }

    /// Adds to the last violation what happened in these turns, each given by its client and the
    /// time of its grant.
    fn tell(&mut self, turns: &[(ClientId, u64)]) {
        let lease_us = self.lease_us();
        if let Some(violation) = self.report.violations.last_mut() {
            violation.story = story(self.recording, turns, lease_us);
            let story = &mut violation.story;
            match violation.kind {
                // The refusals were of the row with the fence, the values of the one without.
                ViolationKind::LostUpdate => story.retain(|it| it.kind != EventKind::Refused),
                ViolationKind::LostWithFence => {
                    story.iter_mut().for_each(|it| it.detail.value = None);
                }
                _ => {}
            }
        }
    }

    fn lease_us(&self) -> u64 {
        1_000 * self.plan.args.ttl_ms
    }

    /// Adds some of these pairs, and returns the number of all.
    fn add_pairs(
        &mut self,
        kind: ViolationKind,
        pairs: &[HoldPair],
        describe: impl Fn(&Self, &Turn, &Turn) -> Message,
    ) -> u64 {
        for (first, second) in spread(pairs) {
            let found = describe(self, &first, &second);
            let until = first.release_us.max(second.release_us);
            self.add(kind.clone(), found, first.answered_us, until, &[first.id, second.id]);
            self.tell(&[first, second].map(|turn| (turn.id, turn.answered_us)));
        }
        pairs.len() as u64
    }

    /// Formats a time as milliseconds since the start of the work.
    fn at(&self, us: u64) -> String {
        grouped(us.saturating_sub(self.recording.began_us) / 1_000)
    }

    /// Formats when a write was sent, and when it was answered: Postgres made it in between. A
    /// client that was killed has no answer.
    fn time_of(&self, entry: &ChainEntry) -> String {
        let turn = self.holds.iter().find(|turn| {
            (turn.id, turn.answered_us) == (entry.id, entry.granted_us) && turn.release_us > 0
        });
        let sent = self.at(entry.sent_us);
        turn.map_or_else(|| sent.clone(), |turn| format!("{sent}–{}", self.at(turn.release_us)))
    }

    pub(super) async fn lost_updates(&mut self, ledger: &mut Ledger) -> anyhow::Result<()> {
        let lost = ledger.lost_updates(false).await?;
        self.report.lost_updates = lost;
        let mut writes = ledger.rows().await?;
        writes.retain(|write| !write.fenced);
        self.report.lost_in_time = holds::lost_in_time(self.holds, &writes, self.lease_us());

        let breaks = ledger.breaks(false).await?;
        for (early, late) in &breaks {
            let from_us = early.granted_us.min(late.granted_us);
            let found = self.describe(early, late);
            self.add(ViolationKind::LostUpdate, found, from_us, late.sent_us, &[early.id, late.id]);
            self.tell(&[early, late].map(|entry| (entry.id, entry.granted_us)));
        }

        if lost > 0 && breaks.is_empty() {
            self.add(ViolationKind::LostUpdate, lost_units(lost), 0, 0, &[]);
        }
        Ok(())
    }

    /// The values in a drawing would be those of the row without the fence, so it has none.
    pub(super) async fn lost_with_fence(&mut self, ledger: &mut Ledger) -> anyhow::Result<()> {
        let refused = self.holds.iter().filter(|turn| turn.refused).count() as u64;
        let lost_updates = ledger.lost_updates(true).await?;
        self.report.with_fence = Some(WithFence { lost_updates, refused });

        for (early, late) in ledger.breaks(true).await? {
            let found = self.describe_with_fence(&early, &late);
            self.add(ViolationKind::LostWithFence, found, 0, 0, &[]);
            self.tell(&[&early, &late].map(|entry| (entry.id, entry.granted_us)));
        }
        Ok(())
    }

    fn describe(&self, early: &ChainEntry, late: &ChainEntry) -> Message {
        let undone = late.before - late.stock_before;
        let both = message!(
            "judge-found-both-read",
            first = early.id,
            second = late.id,
            read = units(late.before),
            wrote = units(late.before - 1),
            first_at = self.time_of(early),
            second_at = self.time_of(late),
            over = units(late.stock_before),
        );
        match (early.id == late.id, undone) {
            (false, ..=1) => both,
            (true, ..=1) => both.with_id("judge-found-read-twice"),
            (false, _) => both.with_id("judge-found-both-read-undid").with("undone", units(undone)),
            (true, _) => both.with_id("judge-found-read-twice-undid").with("undone", units(undone)),
        }
    }

    fn describe_with_fence(&self, early: &ChainEntry, late: &ChainEntry) -> Message {
        let fence = late.fence.unwrap_or_default();
        message!("judge-found-with-fence", fence, found = self.describe(early, late))
    }

    pub(super) fn overlaps(&mut self) {
        let pairs = holds::overlaps(self.holds);
        let count = self.add_pairs(ViolationKind::Overlap, &pairs, |it, first, second| {
            let until = first.release_us.min(second.release_us);
            message!(
                "judge-found-overlap",
                first = first.id,
                from = it.at(first.answered_us),
                until = it.at(first.release_us),
                second = second.id,
                granted = it.at(second.answered_us),
                both = grouped(until.saturating_sub(second.answered_us) / 1_000),
            )
        });
        self.report.overlaps = count;
    }

    pub(super) fn wrong_releases(&mut self) {
        let pairs = holds::wrong_releases(self.holds, self.recording);
        let count =
            self.add_pairs(ViolationKind::ReleaseOkWhenLost, &pairs, |it, first, second| {
                message!(
                    "judge-found-bad-release",
                    first = first.id,
                    released = it.at(first.release_us),
                    second = second.id,
                    granted = it.at(second.answered_us),
                )
            });
        self.report.release_ok_when_lost = count;
    }

    /// To be called without a fault.
    pub(super) fn early_losses(&mut self) {
        let turns = holds::early_losses(self.holds, self.lease_us());
        self.report.early_losses = turns.len() as u64;

        for turn in turns.iter().take(MAX_OF_KIND) {
            let found = message!(
                "judge-found-early-loss",
                client = turn.id,
                granted = self.at(turn.answered_us),
                released = self.at(turn.release_us),
                lease = grouped(self.plan.args.ttl_ms),
            );
            let kind = ViolationKind::EarlyLoss;
            self.add(kind, found, turn.answered_us, turn.released_us, &[turn.id]);
            self.tell(&[(turn.id, turn.answered_us)]);
        }
    }

    /// To be called for `long-work`: other faults take locks on purpose.
    pub(super) fn early_grants(&mut self) {
        let pairs = holds::early_grants(self.holds, self.lease_us(), self.recording);
        let count = self.add_pairs(ViolationKind::EarlyGrant, &pairs, |it, first, second| {
            message!(
                "judge-found-early-grant",
                first = first.id,
                from = it.at(first.answered_us),
                until = it.at(first.release_us),
                second = second.id,
                granted = it.at(second.answered_us),
                lease = grouped(it.plan.args.ttl_ms),
            )
        });
        self.report.early_grants = count;
    }

    pub(super) fn fence_regressions(&mut self) {
        let pairs = holds::fence_regressions(self.holds, self.recording);
        let count = self.add_pairs(ViolationKind::FenceRegression, &pairs, |it, before, later| {
            message!(
                "judge-found-fence-back",
                later = later.id,
                later_fence = later.fence.unwrap_or_default(),
                later_at = it.at(later.answered_us),
                before = before.id,
                before_fence = before.fence.unwrap_or_default(),
                before_at = it.at(before.answered_us),
            )
        });
        self.report.fence_regressions = count;
    }

    pub(super) fn misreported(&mut self) {
        let turns = holds::misreported(self.holds, self.recording);
        self.report.misreported_busy = turns.len() as u64;

        for turn in turns.iter().take(MAX_OF_KIND) {
            let answer = if turn.outcome == TurnOutcome::Busy { "busy" } else { "timeout" };
            let found = message!(
                "judge-found-false-busy",
                client = turn.id,
                asked = self.at(turn.asked_us),
                answer,
                answered = self.at(turn.answered_us),
            );
            let kind = ViolationKind::MisreportedBusy;
            self.add(kind, found, turn.asked_us, turn.answered_us, &[turn.id]);
        }
    }

    /// The share of time held, and the longest time in which the lock was free and not granted.
    pub(super) fn held_times(&mut self) {
        let times = holds::held_times(self.holds, self.recording);
        let held: u64 = times.iter().map(|(from, until)| until - from).sum();
        self.report.held_share = held as f64 / self.recording.work_us().max(1) as f64;

        let Some((from, length)) = holds::longest_block(&times, self.recording) else { return };
        self.report.blocked_ms_max = length / 1_000;
        let ttl_ms = self.plan.args.ttl_ms;
        let limit = match self.report.fault() {
            Some(Fault::KillHolder) => MAX_BLOCKED_TTLS_AFTER_KILL,
            _ => MAX_BLOCKED_TTLS,
        };
        if length / 1_000 <= limit * ttl_ms {
            return;
        }

        let mut found = message!(
            "judge-found-blocked",
            from = self.at(from),
            blocked = grouped(length / 1_000),
            ttl = grouped(ttl_ms),
        );
        if from + length >= self.recording.ended_us {
            found = found.with_id(BLOCKED_TO_END);
        }
        // From shortly before, with the last release.
        self.add(ViolationKind::Blocked, found, from.saturating_sub(10_000), from + length, &[]);
    }

    /// The waits for grants, and how they are shared between the clients.
    pub(super) fn grants(&mut self) {
        let args = &self.plan.args;
        let clients = (0..args.workers)
            .flat_map(|worker| (0..args.clients).map(move |client| ClientId { worker, client }));
        let mut grants: BTreeMap<ClientId, u64> = clients.map(|id| (id, 0)).collect();
        let mut waits = Vec::new();
        for hold in self.holds {
            *grants.entry(hold.id).or_default() += 1;
            waits.push(hold.answered_us.saturating_sub(hold.asked_us));
        }
        waits.sort_unstable();

        // In a fair queue, each client waits for one turn of every other.
        let fair_ms = turn_ms(self.holds, self.recording) * grants.len() as f64;
        self.report.wait_p50_ms = percentile_ms(&waits, 50);
        self.report.wait_p99_ms = percentile_ms(&waits, 99);
        self.report.wait_ratio = self.report.wait_p99_ms / fair_ms.max(f64::MIN_POSITIVE);
        self.report.jain = stats::jain(grants.values().copied()).unwrap_or(0.0);

        let starved: Vec<String> =
            grants.iter().filter(|(_, n)| **n == 0).map(|(id, _)| id.to_string()).collect();
        self.report.waiters_starved = starved.len() as u64;
        if !starved.is_empty() {
            let found = message!(
                "judge-found-starved",
                starved = starved.len(),
                clients = grants.len(),
                grants = grouped(self.holds.len() as u64),
                names = list(starved.iter()),
            );
            self.add(ViolationKind::Starved, found, 0, 0, &[]);
        }
    }

    /// `names` are keys that a pass without a fault does not leave.
    pub(super) fn leftover_keys(&mut self, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        let found = message!(
            "judge-found-keys-left",
            after = grouped(2 * self.plan.args.ttl_ms),
            keys = names.len(),
            names = list(names.iter()),
        );
        self.add(ViolationKind::LeftoverKey, found, 0, 0, &[]);
    }
}

/// Returns the mean time of a turn during the work. Each client has one more after its end.
fn turn_ms(holds: &[Turn], recording: &Recording) -> f64 {
    let turns = holds.iter().filter(|hold| hold.answered_us <= recording.ended_us).count();
    ms(recording.work_us()) / turns.max(1) as f64
}

/// Returns a percentile of times in microseconds, which are in order.
fn percentile_ms(times_us: &[u64], percent: usize) -> f64 {
    let at = (times_us.len() * percent).div_ceil(100).saturating_sub(1);
    ms(times_us.get(at).copied().unwrap_or(0))
}

fn lost_units(lost: u64) -> Message {
    message!("judge-found-units", units = grouped(lost))
}

fn units(stock: i64) -> String {
    grouped(stock.unsigned_abs())
}

/// Returns a few pairs, of different clients where there are.
fn spread(pairs: &[HoldPair]) -> Vec<HoldPair> {
    let mut seen = BTreeSet::new();
    let other = pairs.iter().filter(|(first, second)| seen.insert((first.id, second.id)));
    other.take(MAX_OF_KIND).copied().collect()
}

fn list<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> Text {
    let more = names.len().saturating_sub(MAX_NAMES);
    let named = names.take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match more {
        0 => named.into(),
        more => message!("judge-found-more", names = named, more).into(),
    }
}

#[cfg(test)]
mod tests;
