//! The fork microscope: entries that were computed from the same read, and the requests that wrote
//! them.

use crate::lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use crate::lab::timeline::{Timeline, TracedRequest, format_ms};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::web::pages::format::short_id;
use crate::web::pages::timeline::TimelineView;

/// Upper bound of the forks of an arm that are drawn; it bounds the size of the page.
pub const MAX_DRAWN_FORKS: usize = 8;

pub fn forked_arms(run: &LabRun) -> Vec<&ArmResult> {
    run.outcome.arms.iter().filter(|arm| !arm.forked.is_empty()).collect()
}

fn lane<'a>(run: &'a LabRun, entry: &ForkedEntry) -> Option<&'a Lane> {
    run.outcome.lanes.iter().find(|lane| lane.request_id == entry.request_id)
}

/// Returns the first two requests of a fork that were traced.
pub fn pair<'a>(run: &'a LabRun, fork: &ForkedVersion) -> Option<[&'a Lane; 2]> {
    let mut lanes = fork.entries.iter().filter_map(|entry| lane(run, entry));
    Some([lanes.next()?, lanes.next()?])
}

pub fn draw(
    arm: &ArmResult,
    fork: &ForkedVersion,
    lanes: &[&Lane; 2],
    language: Language,
) -> TimelineView {
    let first = fork.entries.first().map(|entry| entry.request_id);
    let strategy = Strategy::named(&arm.strategy);
    let requests = (*lanes).map(|lane| {
        let is_duplicate = Some(lane.request_id) != first;
        TracedRequest { lane, is_duplicate, strategy }
    });
    TimelineView::fitting(Timeline::of_requests(&requests, language), language)
}

/// Returns the time between the reads of two requests.
pub fn apart([one, other]: &[&Lane; 2]) -> String {
    let read_us = |lane: &Lane| lane.read_us().unwrap_or_default();
    format!("{} ms", format_ms(read_us(one).abs_diff(read_us(other))))
}

/// Returns the request that wrote an entry: its name if it was traced, otherwise the end of its id.
pub fn request_name(run: &LabRun, entry: &ForkedEntry, language: Language) -> String {
    match lane(run, entry) {
        Some(lane) => format!("{} · {}", lane.replica, lane.label.text(language)),
        None => {
            let id = short_id(&entry.request_id);
            language.text_with("lab-request", &[("id", id.into())])
        }
    }
}

/// Returns the value that a request wrote.
pub fn written(fork: &ForkedVersion, lane: &Lane) -> i64 {
    let entry = fork.entries.iter().find(|entry| entry.request_id == lane.request_id);
    entry.map_or(fork.before, |entry| entry.after)
}
