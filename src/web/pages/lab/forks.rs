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

/// Returns the time from the first read of the two to their last step.
fn span(one: &Lane, other: &Lane) -> Option<u64> {
    let from = read_at(one)?.min(read_at(other)?);
    let last = |lane: &Lane| lane.events.last().map(|event| event.t_us);
    Some(last(one)?.max(last(other)?).saturating_sub(from))
}

/// Returns, of all forks, the two requests that took the least time.
pub fn shortest_pair(run: &LabRun) -> Option<ForkPair> {
    let lanes = lanes(run);
    let mut best: Option<(u64, &ArmResult, &ForkedVersion, [TracedRequest<'_>; 2])> = None;
    for arm in &run.outcome.arms {
        for forked in &arm.forked {
            let requests = requests(&forked.entries, &lanes);
            for (place, one) in requests.iter().enumerate() {
                for other in &requests[place + 1..] {
                    let Some(span) = span(one.lane, other.lane) else { continue };
                    if best.as_ref().is_none_or(|(least, ..)| span < *least) {
                        let second = TracedRequest { is_duplicate: true, ..*other };
                        best = Some((span, arm, forked, [*one, second]));
                    }
                }
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
