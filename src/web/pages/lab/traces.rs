//! The traced requests of a run as drawings: forks, the entries that were computed from one read,
//! and scenes, the requests of a part of a lesson, or of one arm that belong together.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::upload::MAX_EVENTS;
use super::views;
use crate::web::pages::format::short_id;
use crate::web::pages::timeline::TimelineView;
use holdfast_base::messages::Language;
use holdfast_lab::fork_pair::ForkPair;
use holdfast_lab::lessons::Lesson;
use holdfast_lab::run::{ArmResult, ForkedEntry, ForkedVersion, LabRun, Lane};
use holdfast_lab::timeline::{TracedRequest, timeline_of};
use holdfast_lab::what_if;
use holdfast_shop::Strategy;
use holdfast_story::{Drawing, Handle, Timeline, format_ms};

/// Upper bound of the forks of an arm that are drawn; it bounds the size of the page.
pub const MAX_DRAWN_FORKS: usize = 8;

/// The events that a page may still draw, of [`MAX_EVENTS`]: each drawing takes its own.
#[derive(Debug)]
pub struct DrawingBudget {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl Default for DrawingBudget {
    fn default() -> Self {
        Self { left: Cell::new(MAX_EVENTS), is_exceeded: Cell::new(false) }
    }
}

impl DrawingBudget {
    /// Returns the sentence that not everything is drawn, if so.
    pub fn not_drawn(&self, language: Language) -> Option<String> {
        let events = [("events", views::count(MAX_EVENTS as u64).into())];
        self.is_exceeded.get().then(|| language.text_with("lab-not-drawn", &events))
    }

    /// Admits no further drawing.
    pub fn close(&self) {
        self.left.set(0);
        self.is_exceeded.set(true);
    }

    fn admits(&self, lanes: &[&Lane]) -> bool {
        // A request that is sent and answered is drawn, too.
        let events: usize = lanes.iter().map(|lane| lane.events.len() + 2).sum();
        match self.left.get().checked_sub(events) {
            Some(left) => self.left.set(left),
            None => self.is_exceeded.set(true),
        }
        !self.is_exceeded.get()
    }
}

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

/// Draws a fork; `None` if the page has drawn enough.
pub fn draw(
    arm: &ArmResult,
    fork: &ForkedVersion,
    lanes: &[&Lane; 2],
    budget: &DrawingBudget,
    language: Language,
) -> Option<TimelineView> {
    if !budget.admits(lanes) {
        return None;
    }

    let first = fork.entries.first().map(|entry| entry.request_id);
    let strategy = Strategy::named(&arm.strategy);
    let requests = (*lanes).map(|lane| {
        let is_duplicate = Some(lane.request_id) != first;
        TracedRequest { lane, is_duplicate, strategy }
    });
    Some(TimelineView::from(Drawing::fitting(timeline_of(&requests, language), language)))
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
    /// Id within the lesson; empty for requests of an arm.
    pub id: String,
    pub title: String,
    /// Its result in a sentence, if the run has one.
    pub sentence: Option<String>,
    pub track: TimelineView,
}

/// The drawing that plays first.
#[derive(Debug)]
pub struct DrawingPlayer {
    /// Id of its scene; empty if a fork is drawn.
    pub scene: String,
    /// Its subject in a sentence, if that needs words.
    pub sentence: Option<String>,
    pub track: TimelineView,
    /// The scene below, which goes another way, with its words.
    pub beside: Option<(String, TimelineView)>,
}

/// Returns the scene that the lesson asks about; without it the smallest fork, or the first scene;
/// `None` if that is more than a page draws. `handles` are the causes that can be dragged in a
/// scene.
pub fn player(
    run: &LabRun,
    lesson: Option<&Lesson>,
    handles: &[Handle],
    budget: &DrawingBudget,
    language: Language,
) -> Option<DrawingPlayer> {
    let groups = groups(run);
    let wanted = lesson.map_or("", |lesson| lesson.scene);
    let asked = groups.iter().find(|scene| !wanted.is_empty() && scene[0].scene == wanted);
    let drawn = |scene: &Vec<&Lane>, track| DrawingPlayer {
        scene: scene[0].scene.clone(),
        sentence: None,
        track,
        beside: None,
    };

    if let Some(scene) = asked {
        if !budget.admits(scene) {
            return None;
        }
        let track = match handles {
            [] => fitting(run, scene, language),
            handles => {
                let of_scene = timeline(run, scene, language);
                TimelineView::from(Drawing::handled(of_scene, handles, language))
            }
        };
        let beside = lesson.and_then(Lesson::beside);
        let beside = groups.iter().find(|group| Some(group[0].scene.as_str()) == beside);
        let beside = beside.filter(|beside| budget.admits(beside));
        let Some(beside) = beside else { return Some(drawn(scene, track)) };

        let below = fitting(run, beside, language);
        let lanes: Vec<Lane> = beside.iter().copied().cloned().collect();
        let late = [("ms", what_if::late_ms(&lanes).into())];
        let retry_ms = run.request.retry_ms.unwrap_or(what_if::RETRY_MS);
        return Some(DrawingPlayer {
            sentence: Some(language.text_with("lab-waits-retry", &[("retry_ms", retry_ms.into())])),
            beside: Some((language.text_with("lab-waits-queue", &late), below)),
            ..drawn(scene, track)
        });
    }
    if let Some(ForkPair { arm, fork, lanes, .. }) = run.shortest_fork() {
        let number = |number| views::amount(number, arm.is_money()).into();
        let variables = [
            ("before", number(fork.before)),
            ("after", number(written(fork, lanes[0]))),
            ("apart", apart(&lanes).into()),
        ];
        return Some(DrawingPlayer {
            scene: String::new(),
            sentence: Some(language.text_with("lab-pair", &variables)),
            track: draw(arm, fork, &lanes, budget, language)?,
            beside: None,
        });
    }
    let small = groups.iter().find(|scene| scene.len() <= MAX_NAMED_REQUESTS);
    let scene = small.or(groups.first()).filter(|scene| budget.admits(scene))?;
    Some(drawn(scene, fitting(run, scene, language)))
}

/// Draws the first scene of a run whose load goes on; `None` if it has none.
pub fn first_scene(
    run: &LabRun,
    budget: &DrawingBudget,
    language: Language,
) -> Option<TimelineView> {
    let mut lanes: Vec<&Lane> = run.progress.lanes.iter().collect();
    sort(&mut lanes);
    let is_drawn = !lanes.is_empty() && budget.admits(&lanes);
    is_drawn.then(|| fitting(run, &lanes, language))
}

/// Returns the scenes of the lesson that the player does not show, and the requests of its loads,
/// both up to what a page draws.
pub fn scenes(
    run: &LabRun,
    lesson: Option<&Lesson>,
    player: Option<&DrawingPlayer>,
    budget: &DrawingBudget,
    language: Language,
) -> (Vec<Scene>, Vec<Scene>) {
    let shown = [player.map(|player| player.scene.as_str()), lesson.and_then(Lesson::beside)];
    let is_load = |scene: &Vec<&Lane>| scene[0].scene.is_empty();
    let is_other = |scene: &Vec<&Lane>| !shown.contains(&Some(scene[0].scene.as_str()));
    let others = groups(run).into_iter().filter(|scene| is_load(scene) || is_other(scene));

    let drawn = others.filter(|scene| budget.admits(scene));
    let built = drawn.map(|scene| build_scene(run, lesson, &scene, language));
    built.partition(|scene| !scene.id.is_empty())
}

/// Returns the lanes of each scene in the order A, B, C: requests by the time at which they were
/// sent, then those who sent none.
fn groups(run: &LabRun) -> Vec<Vec<&Lane>> {
    let mut lanes: Vec<&Lane> = run.outcome.lanes.iter().collect();
    lanes.sort_by_key(|lane| (lane.arm, lane.sent_us));

    let mut groups: Vec<Group<'_>> = Vec::new();
    for lane in lanes {
        match groups.iter_mut().rev().find(|group| group.has(lane)) {
            Some(group) => group.add(lane),
            None => groups.push(Group::of(lane)),
        }
    }

    let mut scenes: Vec<Vec<&Lane>> = groups.into_iter().map(|group| group.lanes).collect();
    scenes.sort_by_key(|scene| scene[0].sent_us);
    for scene in &mut scenes {
        sort(scene);
    }
    scenes
}

fn sort(scene: &mut [&Lane]) {
    scene.sort_by_key(|lane| (lane.is_actor(), lane.sent_us));
}

/// Lanes that belong together, by the id of their scene. Lanes of arms and of old files have none:
/// those belong together that were in flight together or changed the same value.
struct Group<'a> {
    lanes: Vec<&'a Lane>,
    ends_us: u64,
    keys: BTreeSet<&'a str>,
}

impl<'a> Group<'a> {
    fn of(lane: &'a Lane) -> Self {
        Self { lanes: vec![lane], ends_us: end(lane), keys: keys(lane).collect() }
    }

    fn has(&self, lane: &Lane) -> bool {
        let first = self.lanes[0];
        if (first.arm, &first.scene) != (lane.arm, &lane.scene) {
            return false;
        }
        let is_same =
            || lane.sent_us <= self.ends_us || keys(lane).any(|key| self.keys.contains(key));
        !lane.scene.is_empty() || is_same()
    }

    fn add(&mut self, lane: &'a Lane) {
        self.lanes.push(lane);
        self.ends_us = self.ends_us.max(end(lane));
        self.keys.extend(keys(lane));
    }
}

fn end(lane: &Lane) -> u64 {
    let last = lane.events.last().map_or(lane.sent_us, |event| event.at_us);
    lane.answered_us.unwrap_or(last).max(last)
}

fn keys(lane: &Lane) -> impl Iterator<Item = &str> {
    lane.events.iter().map(|event| event.key.as_str()).filter(|key| !key.is_empty())
}

fn timeline(run: &LabRun, scene: &[&Lane], language: Language) -> Timeline {
    let entries = run.outcome.arms.iter().flat_map(|arm| &arm.forked);
    let duplicates: BTreeSet<_> =
        entries.flat_map(|fork| fork.entries.iter().skip(1)).map(|e| e.request_id).collect();
    let of_arm = arm_of(run, scene[0]).map(|arm| arm.strategy.as_str());

    let requests: Vec<TracedRequest<'_>> = scene
        .iter()
        .map(|&lane| {
            let is_duplicate = duplicates.contains(&lane.request_id);
            let strategy = lane.strategy.as_deref().or(of_arm).and_then(Strategy::named);
            TracedRequest { lane, is_duplicate, strategy }
        })
        .collect();
    timeline_of(&requests, language)
}

fn fitting(run: &LabRun, scene: &[&Lane], language: Language) -> TimelineView {
    TimelineView::from(Drawing::fitting(timeline(run, scene, language), language))
}

pub fn arm_of<'a>(run: &'a LabRun, lane: &Lane) -> Option<&'a ArmResult> {
    run.outcome.arms.get(lane.arm?)
}

/// Draws lanes that were computed from the durations of a run.
pub fn draw_computed(lanes: &[Lane], handles: &[Handle], language: Language) -> TimelineView {
    let timeline = timeline_of_lanes(lanes, language);
    TimelineView::from(Drawing::handled(timeline, handles, language))
}

/// Returns the timeline of lanes that were made for a drawing.
pub fn timeline_of_lanes(lanes: &[Lane], language: Language) -> Timeline {
    let requests = lanes.iter().map(|lane| {
        let strategy = lane.strategy.as_deref().and_then(Strategy::named);
        TracedRequest { lane, is_duplicate: false, strategy }
    });
    timeline_of(&requests.collect::<Vec<_>>(), language)
}

fn build_scene(
    run: &LabRun,
    lesson: Option<&Lesson>,
    scene: &[&Lane],
    language: Language,
) -> Scene {
    let id = &scene[0].scene;
    let names: Vec<String> = scene.iter().map(|lane| lane.label.text(language)).collect();
    let of_arm = arm_of(run, scene[0]).map(|arm| arm.strategy.as_str());
    let by_lanes = || match (names.len(), of_arm) {
        (..=MAX_NAMED_REQUESTS, _) => language.list(&names),
        (many, Some(strategy)) => {
            let variables = [("requests", many.into()), ("strategy", strategy.into())];
            language.text_with("lab-scene-under", &variables)
        }
        (many, None) => language.text_with("lab-scene", &[("requests", many.into())]),
    };

    Scene {
        title: lesson.and_then(|it| it.scene_title(id, language)).unwrap_or_else(by_lanes),
        sentence: run.scene_sentence(id).map(|sentence| sentence.text(language)),
        id: id.clone(),
        track: fitting(run, scene, language),
    }
}
