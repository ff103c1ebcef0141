//! Draws a timeline as SVG, with the list of its events in words.
//!
//! Places on the time axis are percentages of its width. A drawing that *fits* is as wide as its
//! box, on a phone too, and shows of its labels those that have room ([`labels`]); a *scrolled* one
//! keeps the width that all of its labels need. `static/swimlane.js` only lets a drawing play.

mod axis;
mod labels;
mod size;

use std::collections::BTreeSet;

use askama::Template;

use self::axis::{Axis, Percent, label_width};
use self::labels::{Label, WIDTHS, Wanted};
use self::size::{COMPACT, HANDLED, LABELLED, MARGIN, SCROLLED, SMALL, Size};
use holdfast_base::messages::Language;
use holdfast_lab::timeline::{Activity, Event, EventKind, Overlap, Timeline};
use holdfast_lab::what_if::Handle;

/// Upper bound of the lanes of a fitting drawing that are drawn with labels.
const MAX_LABELLED_LANES: usize = 4;
const ROW_HEIGHT: i32 = 20;
/// The style of what is shown at every width.
const ALL_WIDTHS: &str = "narrow middle wide";

/// A label, and the widths of the drawing at which it is shown.
#[derive(Debug)]
struct Shown {
    label: Label,
    widths: String,
}

#[derive(Debug, Template)]
#[template(path = "parts/timeline.html")]
pub struct TimelineView {
    language: Language,
    pub timeline: Timeline,
    /// What the lane of each event does until its next one.
    activities: Vec<Activity>,
    next: Vec<Option<usize>>,
    overlaps: Vec<Overlap>,
    /// The labels of each event, which may differ by the width of the drawing.
    labels: Vec<Vec<Shown>>,
    axis: Axis,
    size: Size,
    /// The causes that can be dragged: the field and the event that shows it.
    grips: Vec<(&'static str, usize)>,
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

    /// Draws a timeline that fits its box, whose causes can be dragged. Its scale has room for the
    /// longest of them.
    pub fn handled(timeline: Timeline, handles: &[Handle], language: Language) -> Self {
        let overlaps = timeline.overlaps(false);
        let longest = handles.iter().map(|handle| *handle.range.end()).max().unwrap_or(1);
        let view = Self::new(timeline, overlaps, HANDLED.up_to(longest), language);

        // A cause is one of the first request, unless only others show it.
        let grip = |handle: &Handle| {
            let events = || view.timeline.events.iter().enumerate();
            let named = |event: &Event| event.kind.name() == handle.event;
            let first = events().find(|(_, event)| event.lane == 0 && named(event));
            let any = first.or_else(|| events().find(|(_, event)| named(event)));
            Some((handle.field, any?.0))
        };
        let grips = handles.iter().filter_map(grip).collect();
        Self { grips, ..view }
    }

    /// Returns the time that a drawing with grips is wide, in ms, by the scale of a drag.
    fn span_ms(&self) -> String {
        format!("{:.0}", self.axis.width / self.size.scale.pixels_per_ms)
    }

    /// Draws a timeline that fits its box, with time to scale.
    pub fn to_scale(timeline: Timeline, language: Language) -> Self {
        let axis = Axis::to_scale(&timeline.events);
        Self { axis, ..Self::new(timeline, Vec::new(), COMPACT, language) }
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
        let texts: Vec<Vec<String>> =
            timeline.events.iter().map(|event| event.labels(language)).collect();
        let axis = axis(&timeline.events, &texts, &size);

        let mut view = Self {
            language,
            activities: timeline.activities(),
            next: timeline.next_in_lane(),
            timeline,
            overlaps,
            labels: Vec::new(),
            axis,
            size,
            grips: Vec::new(),
            is_animated: false,
            labelled_by: String::new(),
        };

        view.labels =
            if size.axis > 0 { view.all_labels(texts) } else { view.placed_labels(texts) };
        let rows = view.labels.iter().flatten().map(|shown| shown.label.row);
        if size.rows > 1 {
            view.size.lane += ROW_HEIGHT * i32::try_from(rows.max().unwrap_or(0)).unwrap_or(0);
        }
        view
    }

    /// Returns the labels of a scrolled drawing, whose axis has room for all of them.
    fn all_labels(&self, texts: Vec<Vec<String>>) -> Vec<Vec<Shown>> {
        let whole = texts.into_iter().map(|texts| texts.into_iter().next());
        let shown = |text| Shown {
            label: Label { text, row: 0, is_end: false },
            widths: ALL_WIDTHS.to_owned(),
        };
        whole.map(|text| text.map(shown).into_iter().collect()).collect()
    }

    fn placed_labels(&self, texts: Vec<Vec<String>>) -> Vec<Vec<Shown>> {
        let events = self.timeline.events.iter().zip(texts).enumerate();
        let wanted = events.map(|(index, (event, texts))| Wanted {
            lane: event.lane,
            place: self.place(index),
            rank: rank(event),
            texts,
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let placed =
            WIDTHS.map(|(width, name)| (name, labels::place(&wanted, width, self.size.rows)));

        let of_event = |index: usize| {
            let mut shown: Vec<Shown> = Vec::new();
            for (name, labels) in &placed {
                let Some(label) = &labels[index] else { continue };
                match shown.iter_mut().find(|shown| shown.label == *label) {
                    Some(same) => same.widths = format!("{} {name}", same.widths),
                    None => {
                        shown.push(Shown { label: label.clone(), widths: (*name).to_owned() });
                    }
                }
            }
            shown
        };
        (0..wanted.len()).map(of_event).collect()
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

    /// Returns the step, from 1, at which a playback begins: the first read that matters, unless
    /// something happens before that the drawing is about.
    pub fn first(&self) -> usize {
        let read = self.overlaps.first().map_or(0, |overlap| overlap.read);
        let mut before = self.timeline.events[..read].iter();
        if before.any(|event| rank(event) == 0) { 1 } else { read + 1 }
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

    /// Returns the marks that the legend explains: the kind's name, its shape and its meaning.
    pub fn signs(&self) -> Vec<(&'static str, &'static str, String)> {
        let kinds: BTreeSet<&str> =
            self.timeline.events.iter().map(|event| event.kind.name()).collect();
        let drawn = EventKind::KEY.iter().filter(|kind| kinds.contains(kind.name()));
        let sign = |kind: &EventKind| (kind.name(), shape(kind), kind.legend(self.language));
        drawn.map(sign).collect()
    }

    pub fn has_loss(&self) -> bool {
        self.timeline.events.iter().any(|event| event.detail.is_loss)
    }

    /// Returns what the color of a step means: `loss`, or the name of an activity.
    pub fn kind(&self, index: &usize) -> &'static str {
        let event = &self.timeline.events[*index];
        match event.kind {
            _ if event.detail.is_loss => "loss",
            EventKind::Foreign => "loss",
            EventKind::Held | EventKind::Release => Activity::Lock.name(),
            EventKind::Expired | EventKind::Gone => Activity::Over.name(),
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

    /// Returns the y of a label's baseline.
    fn label_y(&self, event: &Event, label: &Label) -> i32 {
        let row = i32::try_from(label.row).unwrap_or(0);
        self.top(&event.lane) + self.size.label + ROW_HEIGHT * row
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

    /// Returns the words on the overlaps, and the middle of the first at each range of widths,
    /// moved so that the drawing contains them.
    fn overlap_labels(&self) -> Vec<(String, Percent, &'static str)> {
        let first = self.spans().first().copied().filter(|_| self.size.foot > MARGIN);
        let Some((from, width)) = first else { return Vec::new() };
        let is_fitting = self.size.axis == 0;
        let text = if is_fitting { "swimlane-overlap" } else { "judge-overlap" };
        let text = self.language.text(text);

        let in_width = |room: f64| {
            let half = (label_width(&text) / room * 50.0).min(50.0);
            Percent((from.0 + width.0 / 2.0).clamp(half, 100.0 - half))
        };
        if !is_fitting {
            let middle = in_width(self.axis.width);
            return vec![(text, middle, ALL_WIDTHS)];
        }
        WIDTHS.map(|(width, name)| (text.clone(), in_width(width), name)).into()
    }
}

/// Returns the axis of a drawing, with the room that it keeps for labels: for all of a scrolled
/// drawing, for reads and writes of a low one.
fn axis(events: &[Event], texts: &[Vec<String>], size: &Size) -> Axis {
    let is_scrolled = size.axis > 0;
    let labelled = events.iter().zip(texts);
    let kept = labelled.map(|(event, texts)| match size.rows {
        1 if is_scrolled => texts.first().map_or("", String::as_str),
        1 if is_main(event) => texts.last().map_or("", String::as_str),
        _ => "",
    });
    if is_scrolled {
        Axis::of(events, kept, size.scale)
    } else {
        Axis::fitting(events, kept, size.scale)
    }
}

/// Returns the id of a mark's shape (`timeline_marks.svg`), so that color is never the only sign.
fn shape(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Killed | EventKind::Broken | EventKind::Busy => "cross",
        EventKind::Gone => EventKind::Lost.name(),
        EventKind::Left | EventKind::Removed => EventKind::Release.name(),
        EventKind::Stale => EventKind::Refused.name(),
        EventKind::Continued | EventKind::Restarted => EventKind::Resumed.name(),
        EventKind::Cut => EventKind::Disconnected.name(),
        EventKind::Tries | EventKind::Autocommit => EventKind::Commit.name(),
        EventKind::Sent
        | EventKind::Begin
        | EventKind::Wait
        | EventKind::Expire
        | EventKind::End
        | EventKind::Answered
        | EventKind::Other(_) => "dot",
        kind => kind.name(),
    }
}

/// Returns how late a label is placed: what a drawing is about first, then reads and writes.
fn rank(event: &Event) -> u8 {
    match &event.kind {
        kind if EventKind::KEY.contains(kind) => 0,
        _ if is_main(event) => 1,
        _ => 2,
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
    use strum::IntoEnumIterator as _;

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

    #[test]
    fn scrolled_labels_never_overlap() {
        for language in Language::ALL {
            let view = TimelineView::scrolled(many_events(), Vec::new(), "", language);
            for lane in 0..view.timeline.lanes.len() {
                let events = view.timeline.events.iter().enumerate();
                let own = events.filter(|(_, event)| event.lane == lane);
                let spans: Vec<(f64, f64)> = own
                    .filter_map(|(index, _)| {
                        let from = view.place(index) * view.axis.width;
                        let shown = view.labels[index].first()?;
                        Some((from, from + labels::text_width(&shown.label.text)))
                    })
                    .collect();
                assert!(spans.len() > 4, "{view:?}");
                assert!(spans.windows(2).all(|pair| pair[1].0 >= pair[0].1), "{view:?}");
            }
        }
    }

    /// Reads and writes of two orders, the loss and its fork are labelled on the smallest phone.
    #[test]
    fn few_events_have_all_main_labels() {
        let events = vec![
            event(0, 0, EventKind::Sent, 0),
            event(100, 1, EventKind::Sent, 0),
            event(1_000, 0, EventKind::Read, 10),
            event(1_200, 1, EventKind::Read, 10),
            event(2_000, 1, EventKind::Write, 9),
            event(2_300, 1, EventKind::Answered, 201),
            event(90_000, 0, EventKind::Write, 9),
            event(90_300, 0, EventKind::Answered, 201),
        ];
        for language in Language::ALL {
            let lanes = vec![TimelineLane::default(); 2];
            let view = TimelineView::fitting(Timeline { lanes, events: events.clone() }, language);
            for index in [2, 3, 4, 6] {
                let widths: String =
                    view.labels[index].iter().map(|it| it.widths.as_str()).collect();
                assert!(widths.contains("narrow") && widths.contains("wide"), "{view:?}");
            }
        }
    }

    #[test]
    fn every_kind_has_its_mark() {
        let marks = include_str!("../../../../templates/parts/timeline_marks.svg");
        for kind in EventKind::iter() {
            let id = format!("id=\"mark-{}\"", shape(&kind));
            assert!(marks.contains(&id), "{id}");
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
