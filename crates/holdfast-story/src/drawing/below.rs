//! The rows below the lanes, with a sign at the place of each event that changed something there:
//! which lane has the lock at each of several nodes.

use super::labels::{Label, Shown};
use crate::{EventKind, Timeline};
use holdfast_base::messages::Language;

/// Between the owners of two nodes in a label, whose parts are drawn as boxes.
const BETWEEN: &str = "  ";
const FREE: &str = "–";
/// The sign of an event that needs no explanation.
pub const NO_SIGN: &str = "dot";
/// Width of a box in pixels; the template has it too.
const BOX: usize = 16;

#[derive(Debug)]
pub struct Row {
    pub title: String,
    /// By event.
    pub signs: Vec<Sign>,
}

#[derive(Debug)]
pub struct Sign {
    pub event: usize,
    /// Its name in styles, and of its shape.
    pub name: &'static str,
    /// What may stand below it, the longest first.
    pub texts: Vec<String>,
    pub labels: Vec<Shown>,
}

impl Row {
    /// Returns the sign of an event.
    pub fn sign(&self, event: usize) -> Option<&Sign> {
        let found = self.signs.binary_search_by_key(&event, |sign| sign.event);
        Some(&self.signs[found.ok()?])
    }
}

/// Returns what the boxes of a label have, each with its place beside the mark in pixels; nothing
/// for a label that is text.
pub fn boxes(label: &Label) -> Vec<(i32, &str)> {
    if !label.text.contains(BETWEEN) {
        return Vec::new();
    }
    let owners: Vec<&str> = label.text.split(BETWEEN).collect();
    let places = (0..).step_by(BOX).zip(owners.iter().copied());
    let shift = if label.is_end { BOX * owners.len() } else { 0 };
    let shift = i32::try_from(shift).unwrap_or(0);
    places.map(|(place, owner)| (place - shift, owner)).collect()
}

pub fn rows(timeline: &Timeline, language: Language) -> Vec<Row> {
    nodes(timeline, language).into_iter().collect()
}

fn nodes(timeline: &Timeline, language: Language) -> Option<Row> {
    let name = |lane: usize| timeline.lanes[lane].short_name().chars().take(1).collect();
    let owner = |lane: Option<usize>| lane.map_or_else(|| FREE.to_owned(), name);
    let signs = timeline.grants().into_iter().map(|(event, nodes)| Sign {
        event,
        name: match timeline.events[event].kind {
            EventKind::Granted => "granted",
            _ => NO_SIGN,
        },
        texts: vec![nodes.map(owner).join(BETWEEN)],
        labels: Vec::new(),
    });
    let signs: Vec<Sign> = signs.collect();
    (!signs.is_empty()).then(|| Row { title: language.text("swimlane-nodes"), signs })
}
