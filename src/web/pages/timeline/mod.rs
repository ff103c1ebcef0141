//! Draws a timeline as SVG, with the list of its events in words.
//!
//! Places on the time axis are percentages of its width. A drawing that *fits* is as wide as its
//! box, on a phone too, and shows of its labels those that have room; a *scrolled* one keeps the
//! width that all of its labels need. `static/swimlane.js` only lets a drawing play.

mod axis;

use std::ops::RangeInclusive;

use askama::Template;

use self::axis::{Axis, Percent, label_width};
use holdfast_base::messages::Language;
use holdfast_lab::timeline::{Activity, Event, EventKind, Overlap, Timeline};

/// Upper bound of the lanes of a fitting drawing that are drawn with labels.
const MAX_LABELLED_LANES: usize = 4;
/// Widths of a narrow and of a wide drawing in pixels; `swimlane.css` has the latter in `em`.
const WIDTHS: [f64; 2] = [290.0, 560.0];
/// Distances of two events of a fitting and of a scrolled drawing, in pixels.
const FITTING_GAPS: RangeInclusive<f64> = 9.0..=24.0;
const SCROLLED_GAPS: RangeInclusive<f64> = 18.0..=120.0;
const MARGIN: i32 = 6;

/// Events with a mark of their own.
const OWN_SHAPES: [&str; 10] = [
    "held",
    "read",
    "write",
    "commit",
    "committed",
    "refused",
    "release",
    "lost",
    "paused",
    "resumed",
];

/// Heights in pixels, from the top of the drawing or of a lane.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Height of the axis above the lanes; 0 without one.
    axis: i32,
    lane: i32,
    /// Baseline of the lane's name, if it is in the drawing.
    name: Option<i32>,
    bar: i32,
    bar_height: i32,
    label: i32,
    /// Room below the lanes of a drawing with overlaps, for the words on them.
    foot: i32,
}

const LABELLED: Size =
    Size { axis: 0, lane: 84, name: Some(18), bar: 40, bar_height: 14, label: 68, foot: 26 };
/// `swimlane.css` has the heights of lanes whose names are beside the drawing.
const COMPACT: Size =
    Size { axis: 0, lane: 24, name: None, bar: 12, bar_height: 10, label: 0, foot: MARGIN };
const SCROLLED: Size =
    Size { axis: 30, lane: 48, name: None, bar: 34, bar_height: 8, label: 18, foot: 26 };

/// `race.css` has the same heights.
const SMALL: Size =
    Size { axis: 0, lane: 38, name: None, bar: 12, bar_height: 8, label: 33, foot: MARGIN };

#[derive(Debug, Template)]
#[template(path = "parts/timeline.html")]
pub struct TimelineView {
    language: Language,
    pub timeline: Timeline,
    /// What the lane of each event does until its next one.
    activities: Vec<Activity>,
    next: Vec<Option<usize>>,
    overlaps: Vec<Overlap>,
    labels: Vec<String>,
    /// The style of each label: at which widths of the drawing it is shown.
    shown: Vec<&'static str>,
    axis: Axis,
    size: Size,
    pub is_animated: bool,
    /// Id of the description of a scrolled drawing; empty for one that fits.
    labelled_by: String,
}

impl TimelineView {
    /// Draws a timeline that fits its box, for a playback.
    pub fn fitting(timeline: Timeline, language: Language) -> Self {
        if timeline.lanes.len() > MAX_LABELLED_LANES {
            return Self::new(timeline, Vec::new(), COMPACT, language);
        }
        let overlaps = timeline.overlaps(false);
        Self::new(timeline, overlaps, LABELLED, language)
    }

    /// Draws a timeline of few events that fits its box, with low lanes.
    pub fn small(timeline: Timeline, language: Language) -> Self {
        let overlaps = timeline.overlaps(false);
        Self::new(timeline, overlaps, SMALL, language)
    }

    /// Draws a timeline as wide as its labels need.
    pub fn scrolled(
        timeline: Timeline,
        overlaps: Vec<Overlap>,
        labelled_by: &str,
        language: Language,
    ) -> Self {
        let view = Self::new(timeline, overlaps, SCROLLED, language);
        Self { labelled_by: labelled_by.to_owned(), ..view }
    }

    fn new(timeline: Timeline, overlaps: Vec<Overlap>, size: Size, language: Language) -> Self {
        let is_scrolled = size.axis > 0;
        let label = |event: &Event| match size.label {
            0 => String::new(),
            _ => event.label(is_scrolled, language),
        };
        let labels: Vec<String> = timeline.events.iter().map(label).collect();

        // Reads and writes have room in any case.
        let has_room = |event: &Event| is_scrolled || is_main(event);
        let labelled = timeline.events.iter().zip(&labels);
        let kept = labelled.map(|(event, label)| if has_room(event) { label.as_str() } else { "" });
        let gaps = if is_scrolled { SCROLLED_GAPS } else { FITTING_GAPS };
        let axis = Axis::of(&timeline.events, kept, gaps);

        let mut view = Self {
            language,
            activities: timeline.activities(),
            next: timeline.next_in_lane(),
            timeline,
            overlaps,
            shown: Vec::new(),
            labels,
            axis,
            size,
            is_animated: false,
            labelled_by: String::new(),
        };

        view.shown = view.shown_labels();
        view
    }

    /// Returns, for each label, the widths of the drawing at which it has room: a read or write
    /// behind the label before it, any other one also before the next read or write of its lane.
    fn shown_labels(&self) -> Vec<&'static str> {
        let mut next_main = vec![100.0; self.timeline.lanes.len()];
        let mut limits = vec![100.0; self.labels.len()];
        for (index, event) in self.timeline.events.iter().enumerate().rev() {
            limits[index] = next_main[event.lane];
            if is_main(event) {
                next_main[event.lane] = self.axis.place(index).0;
            }
        }

        let mut ends = vec![[0.0; 2]; self.timeline.lanes.len()];
        let mut shown = Vec::with_capacity(self.labels.len());
        for (index, event) in self.timeline.events.iter().enumerate() {
            let place = self.axis.place(index).0;
            let ends_at_mark = self.ends_at_mark(&index);

            let mut fits = [false; 2];
            for (at, width) in WIDTHS.into_iter().enumerate() {
                let length = label_width(&self.labels[index]) / width * 100.0;
                let from = if ends_at_mark { place - length } else { place };
                let end = from + length;
                let free = &mut ends[event.lane][at];
                fits[at] = from >= *free && (is_main(event) || end <= limits[index]);
                if fits[at] && !self.labels[index].is_empty() {
                    *free = end;
                }
            }

            shown.push(match (fits, self.size.axis) {
                ([true, true], _) | (_, 1..) => "",
                ([true, false], _) => "narrow",
                ([false, true], _) => "wide",
                ([false, false], _) => "hidden",
            });
        }
        shown
    }

    /// Returns whether a read or write is so near to the right edge of a narrow drawing that its
    /// label ends at its mark instead of beginning there.
    fn ends_at_mark(&self, index: &usize) -> bool {
        let length = label_width(&self.labels[*index]) / WIDTHS[0] * 100.0;
        let is_fitting = self.size.axis == 0;
        let is_near = self.axis.place(*index).0 + length > 100.0;
        is_fitting && is_near && is_main(&self.timeline.events[*index])
    }

    pub fn place(&self, index: usize) -> f64 {
        self.axis.place(index).0 / 100.0
    }

    fn begin(&self, index: &usize) -> String {
        fade_begin(self.place(*index))
    }

    /// Returns the part of an animation that is over when the first overlap begins.
    fn begin_of_overlap(&self) -> String {
        let from_us = self.overlaps.first().map_or(0, |overlap| overlap.from_us);
        fade_begin(self.axis.place_of(from_us).0 / 100.0)
    }

    /// Returns the step, from 1, at which a playback begins: the first read that matters.
    pub fn first(&self) -> usize {
        self.overlaps.first().map_or(1, |overlap| overlap.read + 1)
    }

    pub fn list_title(&self) -> String {
        let steps = self.timeline.events.len();
        self.language.text_with("swimlane-list", &[("steps", steps.into())])
    }

    pub fn text(&self, event: &Event) -> String {
        event.text(self.language)
    }

    pub fn has_names_beside(&self) -> bool {
        self.size.name.is_none()
    }

    pub fn legend(&self) -> Vec<Activity> {
        let is_drawn = |activity: &Activity| self.activities.contains(activity);
        Activity::SHOWN.into_iter().filter(is_drawn).collect()
    }

    pub fn has_loss(&self) -> bool {
        self.timeline.events.iter().any(|event| event.detail.is_loss)
    }

    /// Returns what the color of a step means: `loss`, or the name of an activity.
    pub fn kind(&self, index: &usize) -> &'static str {
        let event = &self.timeline.events[*index];
        match event.kind {
            _ if event.detail.is_loss => "loss",
            EventKind::Held | EventKind::Release => Activity::Lock.name(),
            _ => self.activities[*index].name(),
        }
    }

    fn width(&self) -> String {
        if self.size.axis > 0 { format!("{:.0}", self.axis.width) } else { "100%".to_owned() }
    }

    fn bottom(&self) -> i32 {
        self.top(&self.timeline.lanes.len())
    }

    pub fn height(&self) -> i32 {
        self.bottom() + if self.overlaps.is_empty() { MARGIN } else { self.size.foot }
    }

    fn top(&self, lane: &usize) -> i32 {
        self.size.axis + self.size.lane * i32::try_from(*lane).unwrap_or(0)
    }

    fn x(&self, index: &usize) -> Percent {
        self.axis.place(*index)
    }

    /// Returns the label of an event with its style, if it has room.
    fn label(&self, index: &usize) -> Option<(&str, &'static str)> {
        let label = (self.labels[*index].as_str(), self.shown[*index]);
        (!label.0.is_empty() && label.1 != "hidden").then_some(label)
    }

    /// Returns the shape of a mark (`timeline_marks.svg`), so that color is never the only sign.
    fn shape(&self, event: &Event) -> &'static str {
        match event.kind {
            EventKind::Killed | EventKind::Broken => "cross",
            _ if OWN_SHAPES.contains(&event.kind.name()) => event.kind.name(),
            _ => "dot",
        }
    }

    /// Returns place, width and height of the bar behind an event; a thin line for an idle lane.
    fn bar(&self, index: &usize) -> Option<(Percent, Percent, i32)> {
        let is_idle = self.activities[*index] == Activity::Idle;
        if is_idle && self.next[*index].is_none() {
            return None;
        }
        let from = self.axis.place(*index);
        let to = self.axis.place(self.next[*index].unwrap_or(usize::MAX));
        Some((from, Percent(to.0 - from.0), if is_idle { 2 } else { self.size.bar_height }))
    }

    fn spans(&self) -> Vec<(Percent, Percent)> {
        let span = |overlap: &Overlap| {
            let from = self.axis.place_of(overlap.from_us);
            (from, Percent(self.axis.place_of(overlap.to_us).0 - from.0))
        };
        self.overlaps.iter().map(span).collect()
    }

    /// Returns the words on the overlaps, and the middle of the first, moved so that the drawing
    /// contains them.
    fn overlap_label(&self) -> Option<(String, Percent)> {
        let (from, width) = *self.spans().first().filter(|_| self.size.foot > MARGIN)?;
        let is_fitting = self.size.axis == 0;
        let text = if is_fitting { "swimlane-overlap" } else { "judge-overlap" };
        let text = self.language.text(text);
        let room = if is_fitting { WIDTHS[0] } else { self.axis.width };
        let half = (label_width(&text) / room * 50.0).min(50.0);
        Some((text, Percent((from.0 + width.0 / 2.0).clamp(half, 100.0 - half))))
    }
}

/// Returns the part of an animation that is over when a place of the playback, from 0 to 1, is
/// reached; the rest shows the end.
pub fn fade_begin(at: f64) -> String {
    format!("{:.3}", 0.02 + at * 0.6)
}

fn is_main(event: &Event) -> bool {
    matches!(event.kind, EventKind::Read | EventKind::Write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_lab::timeline::{Detail, TimelineLane, Value};

    fn event(at_us: u64, lane: usize, kind: EventKind, value: i64) -> Event {
        let detail = Detail { value: Some(Value::Units(value)), ..Detail::default() };
        Event { lane, at_us, kind, detail }
    }

    /// Turns of eight clients, with a minute between the tenth and the eleventh event.
    fn many_events() -> Timeline {
        let mut events = Vec::new();
        for turn in 0..16_u64 {
            let at_us = turn * 7_500 + if turn < 2 { 0 } else { 60_000_000 };
            let value = 1_000_000 - i64::try_from(turn).unwrap();
            let lane = usize::try_from(turn % 8).unwrap();
            events.extend([
                event(at_us, lane, EventKind::Wait, value),
                event(at_us + 1_500, lane, EventKind::Held, value),
                event(at_us + 3_000, lane, EventKind::Read, value),
                event(at_us + 4_500, lane, EventKind::Write, value - 1),
                event(at_us + 6_000, lane, EventKind::Release, value),
            ]);
        }
        let lanes = vec![TimelineLane::default(); 8];
        Timeline { lanes, events }
    }

    /// Returns whether the labels of a lane that are shown end before the next one.
    fn is_legible(view: &TimelineView, width: f64, hidden: [&str; 2]) -> bool {
        (0..view.timeline.lanes.len()).all(|lane| {
            let events = view.timeline.events.iter().enumerate();
            let own = events.filter(|(index, event)| {
                event.lane == lane
                    && !view.labels[*index].is_empty()
                    && !hidden.contains(&view.shown[*index])
            });
            let spans = own.map(|(index, _)| {
                let wide = |c: char| if c.is_ascii() { 7.0 } else { 14.0 };
                let place = view.axis.place(index).0 / 100.0 * width;
                let length = view.labels[index].chars().map(wide).sum::<f64>();
                let from = if view.ends_at_mark(&index) { place - length } else { place };
                (from, from + length)
            });
            let spans: Vec<(f64, f64)> = spans.collect();
            spans.windows(2).all(|pair| pair[1].0 >= pair[0].1)
        })
    }

    #[test]
    fn labels_never_overlap() {
        for language in Language::ALL {
            let view = TimelineView::scrolled(many_events(), Vec::new(), "", language);
            assert!(is_legible(&view, view.axis.width, ["hidden"; 2]), "{view:?}");
            let mut few = many_events();
            few.events.truncate(15);
            few.lanes.truncate(3);
            let view = TimelineView::fitting(few, language);
            assert!(is_legible(&view, WIDTHS[0], ["wide", "hidden"]), "{view:?}");
            assert!(is_legible(&view, WIDTHS[1], ["narrow", "hidden"]), "{view:?}");
        }
    }

    #[test]
    fn long_gaps_are_shortened_and_marked() {
        let view = TimelineView::scrolled(many_events(), Vec::new(), "", Language::English);
        assert_eq!(view.axis.breaks().count(), 1);
        assert!(view.axis.width < 9_000.0, "{}", view.axis.width);
        let times: Vec<String> = view.axis.ticks().into_iter().map(|(_, text)| text).collect();
        assert!(times.contains(&"0.0".to_owned()) && times.contains(&"60,015.0".to_owned()));
    }
}
