//! Draws the events of a violation: a lane per client, time to the right.
//!
//! The drawing is static, so it works in a file without scripts. Labels keep their size: a lane is
//! as wide as its labels need, and the page scrolls it. Gaps are not to scale: short ones are
//! stretched until labels do not overlap, long ones are shortened and marked.

use std::collections::BTreeMap;

use super::columns::count;
use super::lane_work::{self, Activity};
use crate::judge::report::{ClientId, Event};
use crate::messages::Language;
use crate::web::pages::format::format_count;

/// Height of a lane and of the axis above the lanes, in pixels; `judged.css` has the same.
const LANE_HEIGHT: i32 = 48;
const AXIS_HEIGHT: i32 = 30;
/// Room below the lanes for the label of an overlap.
const FOOT_HEIGHT: i32 = 24;
/// Position of the bar of a lane, below its labels.
const BAR_Y: i32 = 34;
const BAR_HEIGHT: i32 = 8;
/// Room before the first event, for a lock that is held already.
const LEFT: f64 = 24.0;
/// Distance between two events, and pixels per millisecond between these bounds.
const MIN_GAP: f64 = 18.0;
const MAX_GAP: f64 = 120.0;
const PIXELS_PER_MS: f64 = 12.0;
/// Width of a character of a label of 14 px: a Latin one, and a Chinese one.
const CHARACTER: f64 = 8.4;
const WIDE_CHARACTER: f64 = 14.5;
const LABEL_PADDING: f64 = 12.0;
/// Upper bound of the events that are drawn; of more, the first is this far before those that
/// matter.
const MAX_DRAWN: usize = 100;
const BEFORE_FOCUS: usize = 14;

/// A drawing, in pixels.
#[derive(Debug, Default)]
pub struct Swimlane {
    pub width: i32,
    pub height: i32,
    /// Bottom of the lanes.
    pub bottom: i32,
    pub lanes: Vec<LaneDrawing>,
    pub ticks: Vec<Tick>,
    /// Places of gaps that are shortened.
    pub breaks: Vec<i32>,
    pub overlaps: Vec<Span>,
    /// The drawn events, from 1; the whole list has `count`.
    pub first: usize,
    pub last: usize,
    pub count: usize,
}

#[derive(Debug)]
pub struct LaneDrawing {
    pub name: String,
    /// Baseline of the labels, and middle of the bar.
    pub label_y: i32,
    pub y: i32,
    pub bars: Vec<Bar>,
    pub marks: Vec<EventMark>,
}

#[derive(Debug)]
pub struct Bar {
    pub kind: &'static str,
    pub span: Span,
    pub y: i32,
    pub height: i32,
}

#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub x: i32,
    pub width: i32,
}

#[derive(Debug)]
pub struct EventMark {
    /// Class of the mark.
    pub kind: &'static str,
    pub x: i32,
    pub label: String,
    /// A write that lost an update.
    pub is_loss: bool,
}

#[derive(Debug)]
pub struct Tick {
    pub x: i32,
    pub text: String,
}

/// Class of an event's mark, and the message of its label; empty without a label.
const MARKS: [(&str, &str, &str); 10] = [
    ("ask", "wait", ""),
    ("granted", "held", "swimlane-label-held"),
    ("read", "read", "swimlane-label-read"),
    ("write", "write", "swimlane-label-write"),
    ("refused", "refused", "judge-label-refused"),
    ("released", "release", "swimlane-label-release"),
    ("lost", "gone", "judge-label-lost"),
    ("paused", "paused", "swimlane-label-paused"),
    ("continued", "resumed", "judge-label-continued"),
    ("killed", "killed", "swimlane-label-killed"),
];

/// Formats the time of an event.
pub fn format_ms(t_ms: f64) -> String {
    let tenths = (t_ms * 10.0).round() as u64;
    format!("{}.{}", count(tenths / 10), tenths % 10)
}

/// Returns the label of an event; an unknown event has its own name.
fn label(event: &Event, is_loss: bool, language: Language) -> String {
    let value = event.value.map(format_count).unwrap_or_default();
    let message = MARKS.iter().find(|(name, ..)| *name == event.event).map(|(_, _, id)| *id);
    let text = match message {
        None => event.event.clone(),
        Some("") => return String::new(),
        Some(_) if is_loss => language.text_with("judge-label-stale", &[("value", value.into())]),
        Some(id) => language.text_with(id, &[("value", value.into())]),
    };
    match event.fence {
        Some(fence) if event.event == "granted" => {
            language.text_with("judge-label-granted", &[("fence", fence.to_string().into())])
        }
        _ => text.trim().to_owned(),
    }
}

fn label_width(label: &str) -> f64 {
    let width = |c: char| if c.is_ascii() { CHARACTER } else { WIDE_CHARACTER };
    label.chars().map(width).sum::<f64>() + LABEL_PADDING
}

/// Draws the events, which are in order of time; `is_overlap` is true for an overlap of holders.
pub fn draw(events: &[Event], is_overlap: bool, language: Language) -> Swimlane {
    let stale = lane_work::stale_writes(events);
    let overlaps = lane_work::overlaps(events, &stale, is_overlap);
    let focus = lane_work::focus(events, &overlaps, &stale);
    let (from, to) = window(events.len(), focus);
    let Some(drawn) = events.get(from..to).filter(|drawn| !drawn.is_empty()) else {
        return Swimlane::default();
    };
    let labels: Vec<String> =
        (from..to).map(|index| label(&events[index], stale.contains(&index), language)).collect();
    let axis = TimeAxis::of(drawn, &labels);
    let activities = lane_work::activities(events);
    let lanes = lane_work::lanes(drawn, &overlaps, events, &stale);
    let bottom = AXIS_HEIGHT + LANE_HEIGHT * i32::try_from(lanes.len()).unwrap_or(i32::MAX / 64);
    let lane_drawing = |(row, lane): (i32, &ClientId)| {
        let top = AXIS_HEIGHT + LANE_HEIGHT * row;
        let marks = drawn.iter().enumerate().filter(|(_, event)| ClientId::of(event) == *lane);
        let marks = marks.map(|(index, event)| EventMark {
            kind: MARKS
                .iter()
                .find(|(name, ..)| *name == event.event)
                .map_or("other", |(_, kind, _)| *kind),
            x: axis.places[index].round() as i32,
            label: labels[index].clone(),
            is_loss: stale.contains(&(from + index)),
        });
        let own = activities.iter().filter(|activity| activity.lane == *lane);
        LaneDrawing {
            name: lane.to_string(),
            label_y: top + 18,
            y: top + BAR_Y,
            bars: own.filter_map(|activity| bar(activity, top + BAR_Y, &axis)).collect(),
            marks: marks.collect(),
        }
    };
    let overlaps: Vec<Span> =
        overlaps.iter().filter_map(|(from, to)| axis.span(*from, *to)).collect();
    Swimlane {
        width: axis.width(&overlaps, label_width(&language.text("judge-overlap"))),
        height: bottom + FOOT_HEIGHT,
        bottom,
        lanes: (0..).zip(&lanes).map(lane_drawing).collect(),
        ticks: axis.ticks(),
        breaks: axis.breaks.clone(),
        overlaps,
        first: from + 1,
        last: to,
        count: events.len(),
    }
}

/// Returns the range of the events to draw: around the first that matters, or the last ones.
fn window(count: usize, focus: Option<usize>) -> (usize, usize) {
    let last = count.saturating_sub(MAX_DRAWN);
    let from = focus.map_or(last, |focus| last.min(focus.saturating_sub(BEFORE_FOCUS)));
    (from, count.min(from + MAX_DRAWN))
}

fn bar(activity: &Activity, y: i32, axis: &TimeAxis) -> Option<Bar> {
    let span = axis.span(activity.from, activity.to)?;
    let height = if activity.kind == "lock" { BAR_HEIGHT } else { BAR_HEIGHT - 2 };
    Some(Bar { kind: activity.kind, span, y: y - height / 2, height })
}

/// Places of the drawn events on the time axis.
struct TimeAxis {
    times: Vec<f64>,
    places: Vec<f64>,
    breaks: Vec<i32>,
    /// End of the last label.
    end: f64,
}

impl TimeAxis {
    fn of(drawn: &[Event], labels: &[String]) -> Self {
        // Where the last label of each lane ends.
        let mut ends: BTreeMap<ClientId, f64> = BTreeMap::new();
        let mut axis = Self { times: Vec::new(), places: Vec::new(), breaks: Vec::new(), end: 0.0 };
        for (event, label) in drawn.iter().zip(labels) {
            let lane = ClientId::of(event);
            let place = match (axis.times.last(), axis.places.last()) {
                (Some(time), Some(place)) => {
                    let gap = (event.t_ms - time) * PIXELS_PER_MS;
                    let next = place + gap.clamp(MIN_GAP, MAX_GAP);
                    if gap > MAX_GAP {
                        axis.breaks.push((place + MAX_GAP / 2.0).round() as i32);
                    }
                    next.max(ends.get(&lane).copied().unwrap_or(0.0))
                }
                _ => LEFT,
            };
            let end = place + label_width(label);
            ends.insert(lane, end);
            axis.end = axis.end.max(end);
            axis.times.push(event.t_ms);
            axis.places.push(place);
        }
        axis
    }

    /// Returns the place of a time, which is that of the last event until then.
    fn x(&self, t_ms: f64) -> f64 {
        match self.times.partition_point(|time| *time < t_ms) {
            index if index < self.places.len() => self.places[index],
            _ => self.end,
        }
    }

    /// Returns the part of the axis between two times, unless it is outside of the drawing.
    fn span(&self, from: f64, to: f64) -> Option<Span> {
        let (first, last) = (*self.times.first()?, *self.times.last()?);
        if to <= first || from > last {
            return None;
        }
        let start = if from < first { 0.0 } else { self.x(from) };
        let end = if to > last { self.end } else { self.x(to) };
        let width = (end - start).round() as i32;
        (width > 0).then_some(Span { x: start.round() as i32, width })
    }

    fn ticks(&self) -> Vec<Tick> {
        let mut free = 0.0;
        let mut ticks = Vec::new();
        for (time, place) in self.times.iter().zip(&self.places) {
            if *place >= free {
                let text = format_ms(*time);
                free = place + label_width(&text);
                ticks.push(Tick { x: place.round() as i32, text });
            }
        }
        ticks
    }

    /// Returns the width of all labels: of events, times, and the first overlap.
    fn width(&self, overlaps: &[Span], overlap_label: f64) -> i32 {
        let overlap = overlaps.first().map_or(0.0, |span| f64::from(span.x) + overlap_label);
        let time =
            self.ticks().last().map_or(0.0, |tick| f64::from(tick.x) + label_width(&tick.text));
        self.end.max(overlap).max(time).ceil() as i32
    }
}
