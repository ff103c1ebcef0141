//! The fork microscope: entries that were computed from the same read, the requests that wrote
//! them, and, of all forks, the pair of requests that took the least time.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::steps::{StepTrack, TracedRequest, track};
use super::views::amount;
use crate::lab::drawing::ms;
use crate::lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use crate::shop::Strategy;
use crate::web::pages::format::{format_change, short_id};

/// Upper bound of forks that are drawn in detail; it bounds the size of the page.
const MAX_DETAILED_FORKS: usize = 16;

/// Entries that were computed from one read.
#[derive(Debug)]
pub struct ForkView {
    /// The value they read.
    pub before: String,
    pub version: i64,
    pub entries: Vec<ForkEntry>,
    /// Time between the reads of the first two.
    pub apart: Option<String>,
    pub track: Option<StepTrack>,
}

#[derive(Debug)]
pub struct ForkEntry {
    pub seq: i64,
    pub delta: String,
    pub after: String,
    pub order: Option<String>,
    /// The request that wrote it: its name if it was traced, otherwise the end of its id.
    pub request: String,
    pub fence: Option<i64>,
    /// True if the first entry already sold that unit.
    pub is_duplicate: bool,
}

#[derive(Debug)]
pub struct StrategyForks {
    pub strategy: String,
    /// True if money was spent, not units sold.
    pub money: bool,
    pub all: i64,
    pub shown: Vec<ForkView>,
}

#[derive(Debug)]
pub struct ForkPair {
    /// The value both read.
    pub before: String,
    /// The value the first of them wrote.
    pub after: String,
    pub names: [String; 2],
    /// Time between their reads.
    pub apart: String,
    /// Time from the first read to the last step.
    pub span: String,
    /// Number of forks of their arm.
    pub of: i64,
    pub track: StepTrack,
}

type Lanes<'a> = BTreeMap<Uuid, &'a Lane>;

pub fn strategy_forks(run: &LabRun) -> Vec<StrategyForks> {
    let lanes = lanes(run);
    let mut left = MAX_DETAILED_FORKS;
    let of_arm = |arm: &ArmResult| {
        let shown = arm.forked.iter().map(|forked| {
            let apart = left > 0;
            left -= usize::from(apart);
            fork(arm, forked, &lanes, apart)
        });
        let money = arm.sku.is_none();
        StrategyForks { strategy: arm.name(), money, all: arm.forks, shown: shown.collect() }
    };
    run.outcome.arms.iter().filter(|arm| !arm.forked.is_empty()).map(of_arm).collect()
}

fn lanes(run: &LabRun) -> Lanes<'_> {
    run.outcome.lanes.iter().map(|lane| (lane.request_id, lane)).collect()
}

fn fork(arm: &ArmResult, forked: &ForkedVersion, lanes: &Lanes<'_>, with_steps: bool) -> ForkView {
    let money = arm.sku.is_none();
    let entries = forked.entries.iter().enumerate().map(|(place, entry)| ForkEntry {
        seq: entry.seq,
        delta: format_change(entry.delta, money),
        after: amount(entry.after, money),
        order: entry.order_id.map(|order| short_id(&order)),
        request: match lanes.get(&entry.request_id) {
            Some(lane) => format!("{} · {}", lane.replica, lane.label),
            None => format!("request {}", short_id(&entry.request_id)),
        },
        fence: entry.fence,
        is_duplicate: place > 0,
    });
    let requests: Vec<TracedRequest<'_>> =
        requests(&forked.entries, lanes).into_iter().take(2).collect();
    let reads: Vec<u64> = requests.iter().filter_map(|request| read_at(request.lane)).collect();
    ForkView {
        before: amount(forked.before, money),
        version: forked.version,
        entries: entries.collect(),
        apart: (reads.len() == 2).then(|| ms(reads[0].abs_diff(reads[1]))),
        track: (with_steps && requests.len() == 2)
            .then(|| track(&requests, Strategy::named(&arm.strategy))),
    }
}

fn requests<'a>(entries: &[ForkedEntry], lanes: &Lanes<'a>) -> Vec<TracedRequest<'a>> {
    let request = |(place, entry): (usize, &ForkedEntry)| {
        lanes.get(&entry.request_id).map(|lane| TracedRequest { lane, is_duplicate: place > 0 })
    };
    entries.iter().enumerate().filter_map(request).collect()
}

fn read_at(lane: &Lane) -> Option<u64> {
    lane.events.iter().find(|event| event.event == "read").map(|event| event.t_us)
}

/// Returns, of a fork's requests, the two that took the least time from the first read to the last
/// step, with that time. A pair costs a sort and a pass, not a look at all pairs.
fn shortest<'a>(requests: &[TracedRequest<'a>]) -> Option<(u64, [TracedRequest<'a>; 2])> {
    let times = requests.iter().enumerate().filter_map(|(place, request)| {
        let last = request.lane.events.last().map(|event| event.t_us)?;
        Some((read_at(request.lane)?, last, place))
    });
    let mut times: Vec<(u64, u64, usize)> = times.collect();
    times.sort_unstable();
    let mut best: Option<(u64, usize, usize)> = None;
    // Of the requests that read later, the one that ended first.
    let mut earliest: Option<(u64, usize)> = None;
    for &(read, last, place) in times.iter().rev() {
        if let Some((other_last, other)) = earliest {
            let span = last.max(other_last).saturating_sub(read);
            let pair = (span, place.min(other), place.max(other));
            best = Some(best.map_or(pair, |best| best.min(pair)));
        }
        earliest = Some(earliest.map_or((last, place), |first| first.min((last, place))));
    }
    let (span, one, other) = best?;
    let second = TracedRequest { is_duplicate: true, ..requests[other] };
    Some((span, [requests[one], second]))
}

/// Returns, of all forks, the two requests that took the least time.
pub fn shortest_pair(run: &LabRun) -> Option<ForkPair> {
    let lanes = lanes(run);
    let mut best: Option<(u64, &ArmResult, &ForkedVersion, [TracedRequest<'_>; 2])> = None;
    for arm in &run.outcome.arms {
        for forked in &arm.forked {
            let Some((span, pair)) = shortest(&requests(&forked.entries, &lanes)) else { continue };
            if best.as_ref().is_none_or(|(least, ..)| span < *least) {
                best = Some((span, arm, forked, pair));
            }
        }
    }
    let (span, arm, forked, pair) = best?;
    let money = arm.sku.is_none();
    let name =
        |request: &TracedRequest<'_>| format!("{} on {}", request.lane.label, request.lane.replica);
    let reads = [read_at(pair[0].lane)?, read_at(pair[1].lane)?];
    let first = forked.entries.iter().find(|entry| entry.request_id == pair[0].lane.request_id)?;
    Some(ForkPair {
        before: amount(forked.before, money),
        after: amount(first.after, money),
        names: [name(&pair[0]), name(&pair[1])],
        apart: ms(reads[0].abs_diff(reads[1])),
        span: ms(span),
        of: arm.forks,
        track: track(&pair, None),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares it with a search of all pairs, for 200 forks of pseudorandom times.
    #[test]
    fn shortest_pair_is_least_of_all() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for fork in 0..200 {
            let lane = |read: u64, last: u64| -> Lane {
                let event = |t: u64, name: &str| json!({ "t_us": t, "event": name, "key": "k" });
                let lane = json!({
                    "request_id": Uuid::nil(), "label": "", "replica": "", "sent_us": 0,
                    "events": [event(read, "read"), event(last, "commit")],
                });
                serde_json::from_value(lane).unwrap_or_else(|error| panic!("{error}"))
            };
            let lanes: Vec<Lane> = (0..2 + fork % 9)
                .map(|_| {
                    let read = random(50);
                    lane(read, read + random(50))
                })
                .collect();
            let requests: Vec<TracedRequest<'_>> =
                lanes.iter().map(|lane| TracedRequest { lane, is_duplicate: false }).collect();
            let span = |one: &Lane, other: &Lane| {
                let ends = |lane: &Lane| (lane.events[0].t_us, lane.events[1].t_us);
                let (one, other) = (ends(one), ends(other));
                one.1.max(other.1) - one.0.min(other.0)
            };
            let all = lanes.iter().enumerate().flat_map(|(place, one)| {
                lanes[place + 1..].iter().map(move |other| span(one, other))
            });
            let found = shortest(&requests);
            assert_eq!(found.map(|(least, _)| least), all.min(), "{lanes:?}");
            if let Some((least, [one, other])) = found {
                assert_eq!(span(one.lane, other.lane), least);
            }
        }
    }

    #[test]
    fn fork_of_one_request_has_no_pair() {
        assert!(shortest(&[]).is_none());
    }
}
