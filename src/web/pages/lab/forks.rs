//! The fork microscope: entries that were computed from the same read, and the requests that wrote
//! them.

use super::steps::{StepTrack, TracedRequest, track};
use crate::lab::drawing::ms;
use crate::lab::fork_pair::ForkPair;
use crate::lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::web::pages::format::short_id;

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
    pub track: Option<StepTrack>,
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
                    let requests = traced(arm, fork, [one, other]);
                    (apart(one, other), is_detailed.then(|| track(&requests, language)))
                }
                _ => (None, None),
            };
            ForkView { fork, apart, track }
        });
        ArmForks { arm, shown: shown.collect() }
    });
    forks.collect()
}

fn traced<'a>(
    arm: &ArmResult,
    fork: &ForkedVersion,
    lanes: [&'a Lane; 2],
) -> [TracedRequest<'a>; 2] {
    let first = fork.entries.first().map(|entry| entry.request_id);
    let strategy = Strategy::named(&arm.strategy);
    lanes.map(|lane| {
        let is_duplicate = Some(lane.request_id) != first;
        TracedRequest { lane, is_duplicate, strategy }
    })
}

fn apart(one: &Lane, other: &Lane) -> Option<String> {
    Some(ms(one.read_us()?.abs_diff(other.read_us()?)))
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

    pub fn track(&self, language: Language) -> StepTrack {
        track(&traced(self.arm, self.fork, self.lanes), language)
    }
}
