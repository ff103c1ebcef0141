//! The fork microscope: entries that were computed from the same read, and the requests that wrote
//! them.

use crate::lab::fork_pair::ForkPair;
use crate::lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use crate::lab::timeline::{Timeline, TracedRequest, format_ms};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::web::pages::format::short_id;
use crate::web::pages::timeline::TimelineView;

/// Upper bound of forks that are drawn in detail; it bounds the size of the page.
const MAX_DETAILED_FORKS: usize = 16;

/// The forks of one arm.
#[derive(Debug)]
pub struct ArmForks<'a> {
    pub arm: &'a ArmResult,
    pub shown: Vec<ForkView<'a>>,
}

/// Entries that were computed from one read.
#[derive(Debug)]
pub struct ForkView<'a> {
    pub fork: &'a ForkedVersion,
    /// Time between the reads of the first two.
    pub apart: Option<String>,
    pub track: Option<TimelineView>,
}

pub fn forks_by_arm(run: &LabRun, language: Language) -> Vec<ArmForks<'_>> {
    let lanes = run.lanes();
    let mut left = MAX_DETAILED_FORKS;
    let arms = run.outcome.arms.iter().filter(|arm| !arm.forked.is_empty());
    let forks = arms.map(|arm| {
        let shown = arm.forked.iter().map(|fork| {
            let is_detailed = left > 0;
            left -= usize::from(is_detailed);
            let (apart, track) = match fork.lanes(&lanes)[..] {
                [one, other, ..] => {
                    let pair = [one, other];
                    let draw = || draw_pair(arm, fork, pair, language);
                    (apart(one, other), is_detailed.then(draw))
                }
                _ => (None, None),
            };
            ForkView { fork, apart, track }
        });
        ArmForks { arm, shown: shown.collect() }
    });
    forks.collect()
}

fn draw_pair(
    arm: &ArmResult,
    fork: &ForkedVersion,
    lanes: [&Lane; 2],
    language: Language,
) -> TimelineView {
    let first = fork.entries.first().map(|entry| entry.request_id);
    let strategy = Strategy::named(&arm.strategy);
    let requests = lanes.map(|lane| {
        let is_duplicate = Some(lane.request_id) != first;
        TracedRequest { lane, is_duplicate, strategy }
    });
    TimelineView::fitting(Timeline::of_requests(&requests, language), language)
}

fn apart(one: &Lane, other: &Lane) -> Option<String> {
    let apart_us = one.read_us()?.abs_diff(other.read_us()?);
    Some(format!("{} ms", format_ms(apart_us)))
}

/// Returns the request that wrote an entry: its name if it was traced, otherwise the end of its id.
pub fn request_name(run: &LabRun, entry: &ForkedEntry, language: Language) -> String {
    match run.outcome.lanes.iter().find(|lane| lane.request_id == entry.request_id) {
        Some(lane) => format!("{} · {}", lane.replica, lane.label.text(language)),
        None => {
            let id = short_id(&entry.request_id).to_string();
            language.text_with("lab-request", &[("id", id.into())])
        }
    }
}

impl ForkPair<'_> {
    /// Returns the time between the two reads.
    pub fn apart(&self) -> String {
        apart(self.lanes[0], self.lanes[1]).unwrap_or_default()
    }

    /// Returns the value that the first of the two wrote.
    pub fn after(&self) -> i64 {
        let first = self.lanes[0].request_id;
        let entry = self.fork.entries.iter().find(|entry| entry.request_id == first);
        entry.map_or(self.fork.before, |entry| entry.after)
    }

    pub fn track(&self, language: Language) -> TimelineView {
        draw_pair(self.arm, self.fork, self.lanes, language)
    }
}
