//! Scenes: requests of one arm that were in flight at the same time or changed the same value.

use std::collections::BTreeSet;

use crate::lab::run::{LabRun, Lane};
use crate::lab::timeline::{Timeline, TracedRequest};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::web::pages::timeline::TimelineView;

/// A scene with more requests is titled by their number.
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
