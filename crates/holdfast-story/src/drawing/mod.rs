//! The drawing of a timeline: where its lanes, bars, marks and labels are. The template
//! `parts/timeline.html` makes SVG of it.
//!
//! Places on the time axis are percentages of its width. A drawing that *fits* is as wide as its
//! box, on a phone too, and shows of its labels those that have room ([`labels`]); a *scrolled* one
//! keeps the width that all of its labels need. `static/swimlane.js` only lets a drawing play.

mod axis;
mod bands;
mod below;
mod labels;
mod shown;
mod size;

use std::ops::RangeInclusive;

use self::axis::Axis;
use self::bands::BandText;
use self::below::{Row, UNSOLD};
use self::labels::{Label, ShownLabel, Wanted};
use self::size::{
    COMPACT, HANDLED, LABELLED, LANES, ROW_HEIGHT, SCROLLED, SIGN_ROWS, SMALL, Size, TO_SCALE,
};
use crate::Timeline;
use crate::activity::{LaneState, Overlap};
use crate::event::TimelineEvent;
use crate::kind::EventKind;
use holdfast_base::messages::Language;

/// Upper bound of the lanes of a fitting drawing that are drawn with labels.
const MAX_LABELLED_LANES: usize = 6;
/// The style of what is shown at every width.
const ALL_WIDTHS: &str = "narrow middle wide full";

/// A cause of what a drawing shows, which a visitor can drag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// Field of a request for a run, in milliseconds.
    pub field: &'static str,
    /// The value in this run.
    pub value: u64,
    pub range: RangeInclusive<u64>,
    /// The event of a lane that it moves.
    pub event: EventKind,
}

impl Handle {
    pub fn new(
        field: &'static str,
        value: u64,
        range: RangeInclusive<u64>,
        event: EventKind,
    ) -> Self {
        let value = value.clamp(*range.start(), *range.end());
        Self { field, value, range, event }
    }

    /// Returns the step of its slider.
    pub fn step(&self) -> u64 {
        match self.range.end() {
            ..=100 => 1,
            ..=200 => 5,
            _ => 10,
        }
    }

    /// Returns the least value of its slider, from which a whole number of steps leads to what it
    /// was in this run: a browser moves any other value to the next step.
    pub fn least(&self) -> u64 {
        self.range.start() + (self.value - self.range.start()) % self.step()
    }
}

#[derive(Debug)]
pub struct Drawing {
    language: Language,
    pub timeline: Timeline,
    /// The activity of each event's lane until its next event.
    states: Vec<LaneState>,
    next: Vec<Option<usize>>,
    overlaps: Vec<Overlap>,
    /// The labels of each event, which may differ by the width of the drawing.
    pub labels: Vec<Vec<ShownLabel>>,
    /// The words on the overlaps of a drawing that fits its box.
    bands: Vec<BandText>,
    /// The rows below the lanes.
    pub rows: Vec<Row>,
    /// The top of each lane, of each row below them, and the end of the last one.
    tops: Vec<i32>,
    pub axis: Axis,
    pub size: Size,
    /// The causes that can be dragged: the field and the event that shows it.
    pub grips: Vec<(&'static str, usize)>,
}

impl Drawing {
    /// Draws a timeline that fits its box, for a playback.
    pub fn fitting(timeline: Timeline, language: Language) -> Self {
        if timeline.lanes.len() > MAX_LABELLED_LANES {
            return Self::new(timeline, Vec::new(), COMPACT, language);
        }
        let overlaps =
            if timeline.has_grants() { timeline.shared_holds() } else { timeline.overlaps(false) };
        Self::new(timeline, overlaps, LABELLED, language)
    }

    /// Draws a timeline that fits its box, without rows below its lanes.
    pub fn lanes(timeline: Timeline, language: Language) -> Self {
        let overlaps = timeline.overlaps(false);
        Self::new(timeline, overlaps, LANES, language)
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
            let named = |event: &TimelineEvent| event.kind == handle.event;
            let first = events().find(|(_, event)| event.lane == 0 && named(event));
            let any = first.or_else(|| events().find(|(_, event)| named(event)));
            Some((handle.field, any?.0))
        };
        let grips = handles.iter().filter_map(grip).collect();
        Self { grips, ..view }
    }

    /// Returns the time that a drawing with grips is wide, in ms, by the scale of a drag.
    pub fn span_ms(&self) -> String {
        format!("{:.0}", self.axis.width / self.size.scale.pixels_per_ms)
    }

    /// Draws a timeline that fits its box, with time to scale.
    pub fn to_scale(timeline: Timeline, language: Language) -> Self {
        let axis = Axis::to_scale(&timeline.events);
        Self::on(axis, timeline, Vec::new(), TO_SCALE, language)
    }

    /// Draws a timeline of few events that fits its box, with low lanes.
    pub fn small(timeline: Timeline, language: Language) -> Self {
        let overlaps = timeline.overlaps(false);
        Self::new(timeline, overlaps, SMALL, language)
    }

    /// Draws a timeline as wide as its labels need.
    pub fn scrolled(timeline: Timeline, overlaps: Vec<Overlap>, language: Language) -> Self {
        Self::new(timeline, overlaps, SCROLLED, language)
    }

    fn new(timeline: Timeline, overlaps: Vec<Overlap>, size: Size, language: Language) -> Self {
        let texts: Vec<Vec<String>> =
            timeline.events.iter().map(|event| event.labels(language)).collect();
        let axis = axis(&timeline.events, &texts, &size);
        Self::on(axis, timeline, overlaps, size, language)
    }

    fn on(
        axis: Axis,
        timeline: Timeline,
        overlaps: Vec<Overlap>,
        size: Size,
        language: Language,
    ) -> Self {
        let texts: Vec<Vec<String>> =
            timeline.events.iter().map(|event| event.labels(language)).collect();
        let mut view = Self {
            language,
            states: timeline.states(),
            next: timeline.next_in_lane(),
            overlaps,
            labels: Vec::new(),
            bands: Vec::new(),
            rows: if size.below > 0 {
                below::rows(&timeline, size.are_values_of_lanes, language)
            } else {
                Vec::new()
            },
            tops: Vec::new(),
            timeline,
            axis,
            size,
            grips: Vec::new(),
        };

        view.place_signs();
        view.labels =
            if size.axis > 0 { view.all_labels(texts) } else { view.placed_labels(texts) };
        view.tops = view.lane_tops();
        if size.rows > 1 {
            let spans = view.spans();
            view.bands = bands::texts(&view.timeline, &view.overlaps, &spans, language);
            let more = i32::try_from(view.band_rows().saturating_sub(1)).unwrap_or(0);
            view.size.foot += ROW_HEIGHT * more;
        }
        view
    }

    /// Returns the top of each lane, which is as high as its labels need, and the end of the last.
    fn lane_tops(&self) -> Vec<i32> {
        let mut rows = vec![0; self.timeline.lanes.len()];
        for (event, labels) in self.timeline.events.iter().zip(&self.labels) {
            let own = labels.iter().map(|shown| shown.label.row).max().unwrap_or(0);
            rows[event.lane] = own.max(rows[event.lane]);
        }

        let mut tops = vec![self.size.axis];
        for rows in rows {
            let last = tops.last().copied().unwrap_or(0);
            let more = ROW_HEIGHT * i32::try_from(rows).unwrap_or(0);
            tops.push(last + self.size.lane + more);
        }
        for row in &self.rows {
            let labels = row.signs.iter().flat_map(|sign| &sign.labels);
            let more = labels.map(|shown| shown.label.row).max().unwrap_or(0);
            let last = tops.last().copied().unwrap_or(0);
            tops.push(last + self.size.below + ROW_HEIGHT * i32::try_from(more).unwrap_or(0));
        }
        tops
    }

    /// Places the labels of the signs below the lanes.
    fn place_signs(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        for row in &mut rows {
            let wanted = row.signs.iter().map(|sign| Wanted {
                lane: 0,
                place: self.place(sign.event),
                rank: u8::from(sign.name != UNSOLD),
                texts: sign.texts.clone(),
            });
            let wanted: Vec<Wanted> = wanted.collect();
            let placed = if self.size.axis > 0 {
                let placed = labels::place(&wanted, self.axis.width, SIGN_ROWS).into_iter();
                placed.map(|label| label.into_iter().map(at_all_widths).collect()).collect()
            } else {
                labels::place_at_all_widths(&wanted, SIGN_ROWS)
            };
            for (sign, labels) in row.signs.iter_mut().zip(placed) {
                sign.labels = labels;
            }
        }
        self.rows = rows;
    }

    fn band_rows(&self) -> usize {
        self.bands.iter().map(|band| band.row + 1).max().unwrap_or(0)
    }

    /// Returns the labels of a scrolled drawing, whose axis has room for all of them.
    fn all_labels(&self, texts: Vec<Vec<String>>) -> Vec<Vec<ShownLabel>> {
        let whole = texts.into_iter().map(|texts| texts.into_iter().next());
        let label = |text| at_all_widths(Label { text, row: 0, is_end: false });
        whole.map(|text| text.map(label).into_iter().collect()).collect()
    }

    fn placed_labels(&self, texts: Vec<Vec<String>>) -> Vec<Vec<ShownLabel>> {
        let events = self.timeline.events.iter().zip(texts).enumerate();
        let wanted = events.map(|(index, (event, texts))| Wanted {
            lane: event.lane,
            place: self.place(index),
            rank: rank(event),
            texts,
        });
        labels::place_at_all_widths(&wanted.collect::<Vec<_>>(), self.size.rows)
    }

    pub fn place(&self, index: usize) -> f64 {
        self.axis.place(index).0 / 100.0
    }
}

/// Returns the axis of a drawing, with the room that it keeps for labels: for all of a scrolled
/// drawing, for reads and writes of a low one.
fn axis(events: &[TimelineEvent], texts: &[Vec<String>], size: &Size) -> Axis {
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

fn at_all_widths(label: Label) -> ShownLabel {
    ShownLabel { label, widths: ALL_WIDTHS.to_owned() }
}

/// Returns how late a label is placed: the outcome first, then what a drawing is about, then reads
/// and writes. That an order goes on is seen by what it does next.
fn rank(event: &TimelineEvent) -> u8 {
    match &event.kind {
        EventKind::Write if event.detail.is_wrong => 0,
        EventKind::Stale => 0,
        EventKind::Answered if event.detail.problem.is_some() => 0,
        EventKind::Held => 1,
        EventKind::Wait if event.detail.key.is_some() => 1,
        EventKind::Committed if event.detail.value.is_some() => 1,
        EventKind::Sent if event.detail.shared_key.is_some() => 1,
        EventKind::Tries | EventKind::Resumed => 3,
        kind if EventKind::KEY.contains(kind) => 1,
        _ if is_main(event) => 2,
        _ => 3,
    }
}

fn is_main(event: &TimelineEvent) -> bool {
    let has_key = event.detail.shared_key.is_some();
    match event.kind {
        EventKind::Read | EventKind::Write | EventKind::Works => true,
        EventKind::Committed => has_key,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
