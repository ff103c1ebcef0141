//! The traced requests of a run as drawings: forks, the entries that were computed from one read,
//! and scenes, requests of one arm that were in flight together or changed the same value.

use std::collections::BTreeSet;

use crate::web::pages::format::short_id;
use crate::web::pages::timeline::TimelineView;
use holdfast_base::messages::Language;
use holdfast_lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use holdfast_lab::timeline::{Timeline, TracedRequest, format_ms};
use holdfast_shop::Strategy;

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

pub fn written(fork: &ForkedVersion, lane: &Lane) -> i64 {
    let entry = fork.entries.iter().find(|entry| entry.request_id == lane.request_id);
    entry.map_or(fork.before, |entry| entry.after)
}

const MAX_NAMED_REQUESTS: usize = 4;

#[derive(Debug)]
pub struct Scene {
    pub title: String,
    /// True if there are more requests than [`MAX_NAMED_REQUESTS`]; the scene is collapsed then.
    pub is_large: bool,
    pub track: TimelineView,
}

pub fn scenes(run: &LabRun, language: Language) -> Vec<Scene> {
    let mut lanes: Vec<&Lane> = run.outcome.lanes.iter().collect();
    lanes.sort_by_key(|lane| (lane.arm, lane.sent_us));
    let mut scenes: Vec<Vec<&Lane>> = Vec::new();
    for lane in lanes {
        match scenes.last_mut() {
            Some(scene) if belongs(lane, scene) => scene.push(lane),
            _ => scenes.push(vec![lane]),
        }
    }
    scenes.sort_by_key(|scene| scene[0].sent_us);
    scenes.into_iter().map(|mut scene| build_scene(run, &mut scene, language)).collect()
}

fn belongs(lane: &Lane, scene: &[&Lane]) -> bool {
    let over = scene.iter().map(|lane| end(lane)).max().unwrap_or(0);
    let theirs: BTreeSet<&str> = scene.iter().flat_map(|lane| keys(lane)).collect();
    let same_value = keys(lane).any(|key| theirs.contains(key));
    scene[0].arm == lane.arm && (lane.sent_us <= over || same_value)
}

fn end(lane: &Lane) -> u64 {
    let last = lane.events.last().map_or(lane.sent_us, |event| event.t_us);
    lane.answered_us.unwrap_or(last).max(last)
}

fn keys(lane: &Lane) -> impl Iterator<Item = &str> {
    lane.events.iter().map(|event| event.key.as_str()).filter(|key| !key.is_empty())
}

fn build_scene(run: &LabRun, scene: &mut [&Lane], language: Language) -> Scene {
    scene.sort_by(|one, other| (&one.replica, one.sent_us).cmp(&(&other.replica, other.sent_us)));
    let entries = run.outcome.arms.iter().flat_map(|arm| &arm.forked);
    let duplicates: BTreeSet<_> =
        entries.flat_map(|fork| fork.entries.iter().skip(1)).map(|e| e.request_id).collect();

    let labels = scene.iter().map(|lane| lane.label.text(language));
    let mut names: Vec<String> = labels.collect();
    names.sort_unstable();

    let strategy =
        scene[0].arm.and_then(|arm| run.outcome.arms.get(arm)).map(|arm| arm.strategy.as_str());
    let known = strategy.and_then(Strategy::named);

    let requests: Vec<TracedRequest<'_>> = scene
        .iter()
        .map(|&lane| {
            let is_duplicate = duplicates.contains(&lane.request_id);
            TracedRequest { lane, is_duplicate, strategy: known }
        })
        .collect();

    let title = match (names.len(), strategy) {
        (..=MAX_NAMED_REQUESTS, _) => language.list(&names),
        (many, Some(strategy)) => {
            let variables = [("requests", many.into()), ("strategy", strategy.into())];
            language.text_with("lab-scene-under", &variables)
        }
        (many, None) => language.text_with("lab-scene", &[("requests", many.into())]),
    };

    Scene {
        title,
        is_large: names.len() > MAX_NAMED_REQUESTS,
        track: TimelineView::fitting(Timeline::of_requests(&requests, language), language),
    }
}
