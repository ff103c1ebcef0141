//! Figures of a pass: waits, fairness, share of time held.

use std::collections::BTreeMap;

use super::holds::LockHold;
use super::plan::JudgePlan;
use super::recording::Recording;
use super::report::ClientId;

/// Grants per client; every client is there.
pub(super) fn grants(plan: &JudgePlan, holds: &[LockHold]) -> BTreeMap<ClientId, u64> {
    let clients = (0..plan.workers)
        .flat_map(|worker| (0..plan.clients).map(move |client| ClientId { worker, client }));
    let mut grants: BTreeMap<ClientId, u64> = clients.map(|id| (id, 0)).collect();
    for hold in holds {
        *grants.entry(hold.id).or_default() += 1;
    }
    grants
}

/// Waits for a grant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LockWaits {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// p99 over the wait of a fair queue, in which each client waits for one turn of every other.
    pub(super) ratio: f64,
}

pub(super) fn waits(plan: &JudgePlan, recording: &Recording, holds: &[LockHold]) -> LockWaits {
    if holds.is_empty() {
        return LockWaits::default();
    }
    let mut waits: Vec<u64> =
        holds.iter().map(|hold| hold.granted_us.saturating_sub(hold.turn.turn.asked_us)).collect();
    waits.sort_unstable();
    let percentile = |percent: usize| {
        let at = (waits.len() * percent).div_ceil(100).clamp(1, waits.len()) - 1;
        ms(waits[at])
    };
    let per_turn = ms(work_us(recording)) / holds.len() as f64;
    let p99_ms = percentile(99);
    let fair = per_turn * f64::from(plan.all_clients());
    LockWaits { p50_ms: percentile(50), p99_ms, ratio: p99_ms / fair.max(f64::MIN_POSITIVE) }
}

/// Share of the work's time that `held_times` cover.
pub(super) fn held_share(held_times: &[(u64, u64)], recording: &Recording) -> f64 {
    let held: u64 = held_times.iter().map(|(from, until)| until - from).sum();
    held as f64 / work_us(recording).max(1) as f64
}

pub(super) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn work_us(recording: &Recording) -> u64 {
    recording.ended_us.saturating_sub(recording.began_us)
}
