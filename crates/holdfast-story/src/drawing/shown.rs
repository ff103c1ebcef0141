//! What a template shows of a drawing: where everything is, the signs, and the words.

use std::collections::BTreeSet;

use strum::IntoEnumIterator as _;

use super::axis::{Percent, label_width};
use super::bands::BandText;
use super::below::{Row, Sign, UNSOLD, boxes};
use super::labels::Label;
use super::size::{MARGIN, ROW_HEIGHT, SIGN_LABEL};
use super::{ALL_WIDTHS, Drawing};
use crate::TimelineLane;
use crate::activity::{Activity, Overlap};
use crate::event::TimelineEvent;
use crate::kind::EventKind;

impl Drawing {
    /// Returns the place at which the first overlap begins, from 0 to 1.
    pub fn place_of_overlap(&self) -> f64 {
        let from_us = self.overlaps.first().map_or(0, |overlap| overlap.from_us);
        self.axis.place_of(from_us).0 / 100.0
    }

    pub fn list_title(&self) -> String {
        let steps = self.timeline.events.len();
        self.language.text_with("swimlane-list", &[("steps", steps.into())])
    }

    pub fn text(&self, event: &TimelineEvent) -> String {
        event.text(self.language)
    }

    /// Returns what an event changed in the books: `stock 10 → 9`.
    pub fn booked(&self, index: &usize) -> Vec<String> {
        let entry = |row: &Row| {
            let (noun, sign) = (row.noun.as_ref()?, row.sign(*index)?);
            Some(format!("{noun} {}", sign.texts.first()?))
        };
        self.rows.iter().filter_map(entry).collect()
    }

    pub fn legend(&self) -> Vec<Activity> {
        let is_drawn =
            |activity: &Activity| self.states.iter().any(|state| state.activity == *activity);
        Activity::SHOWN.into_iter().filter(is_drawn).collect()
    }

    pub fn has_pauses(&self) -> bool {
        self.states.iter().any(|state| state.is_paused())
    }

    /// Returns the marks that are drawn, each once: its name, its shape and its meaning.
    pub fn signs(&self) -> Vec<(&'static str, &'static str, String)> {
        let kinds: BTreeSet<&str> =
            self.timeline.events.iter().map(|event| event.kind.name()).collect();
        let drawn = EventKind::iter().filter(|kind| kinds.contains(kind.name()));
        let drawn = drawn.map(|kind| {
            let (name, text) = kind.legend(self.language);
            (name, kind.shape(), text)
        });

        let below: BTreeSet<&'static str> =
            self.rows.iter().flat_map(|row| &row.signs).map(|sign| sign.name).collect();
        let legend = |name| self.language.text(&format!("swimlane-legend-{name}"));
        let below = below.into_iter().map(|name| (name, name, legend(name)));

        let mut texts = BTreeSet::new();
        drawn.chain(below).filter(|(.., text)| texts.insert(text.clone())).collect()
    }

    /// Returns the signs of an event below the lanes, each with the top of its row.
    pub fn signs_below(&self, index: &usize) -> Vec<(i32, &Sign)> {
        let rows = self.rows.iter().zip(&self.tops[self.timeline.lanes.len()..]);
        rows.filter_map(|(row, top)| Some((*top, row.sign(*index)?))).collect()
    }

    pub fn boxes<'a>(&self, label: &'a Label) -> Vec<(i32, &'a str)> {
        boxes(label)
    }

    /// Returns the y of the baseline of a label below the lanes.
    pub fn below_y(&self, top: &i32, label: &Label) -> i32 {
        top + SIGN_LABEL + ROW_HEIGHT * i32::try_from(label.row).unwrap_or(0)
    }

    /// Returns where the bars of lanes are cut, as time is shortened there.
    pub fn cuts(&self) -> Vec<(Percent, i32)> {
        if self.size.axis > 0 {
            return self.axis.breaks().map(|(_, x)| (x, self.size.axis - 6)).collect();
        }
        if self.size.below == 0 {
            return Vec::new();
        }
        let (mut cuts, mut next) = (Vec::new(), 0);
        let mut last: Vec<Option<usize>> = vec![None; self.timeline.lanes.len()];
        for (behind, x) in self.axis.breaks() {
            for index in next..behind {
                last[self.timeline.events[index].lane] = Some(index);
            }
            next = behind;
            let goes_on =
                |lane: &usize| last[*lane].is_some_and(|index| self.bar(&index).is_some());
            let lanes = (0..last.len()).filter(goes_on);
            cuts.extend(lanes.map(|lane| (x, self.top(&lane) + self.size.bar)));
        }
        cuts
    }

    pub fn has_wrong_write(&self) -> bool {
        self.timeline.events.iter().any(|event| event.detail.is_wrong)
    }

    /// Returns the step that shows the most, from 1 on: the last loss, or the last refusal, or the
    /// end.
    pub fn telling(&self) -> usize {
        let events = &self.timeline.events;
        let last = |is: fn(&TimelineEvent) -> bool| events.iter().rposition(is);
        let unsold = (0..events.len()).rfind(|index| self.is_unsold(*index));
        let loss = unsold.or_else(|| last(|event| event.detail.is_loss));
        let refusal = || last(|event| matches!(event.kind, EventKind::Refused | EventKind::Stale));
        loss.or_else(refusal).map_or(events.len(), |index| index + 1)
    }

    /// Returns whether an event sold something without a unit.
    fn is_unsold(&self, index: usize) -> bool {
        let mut signs = self.rows.iter().filter_map(|row| row.sign(index));
        signs.any(|sign| sign.name == UNSOLD)
    }

    /// Returns what the color of a step means: `loss`, or the name of an activity.
    pub fn kind(&self, index: &usize) -> &'static str {
        let event = &self.timeline.events[*index];
        match event.kind {
            _ if event.detail.is_wrong || self.is_unsold(*index) => "loss",
            EventKind::Foreign => "loss",
            EventKind::Held | EventKind::Release => Activity::Lock.name(),
            EventKind::Expired | EventKind::Gone => Activity::Over.name(),
            _ => self.activity(index).name(),
        }
    }

    /// Returns the server of a lane in words, if it is known by its port.
    pub fn server(&self, lane: &TimelineLane) -> String {
        match lane.replica.parse::<u16>() {
            Ok(_) => {
                let port = [("port", lane.replica.as_str().into())];
                self.language.text_with("swimlane-server", &port)
            }
            Err(_) => lane.replica.clone(),
        }
    }

    pub fn width(&self) -> String {
        if self.size.axis > 0 { format!("{:.0}", self.axis.width) } else { "100%".to_owned() }
    }

    /// Returns the end of the lanes, and of what is below them.
    pub fn bottom(&self) -> i32 {
        self.top(&(self.timeline.lanes.len() + self.rows.len()))
    }

    pub fn height(&self) -> i32 {
        self.bottom() + if self.overlaps.is_empty() { MARGIN } else { self.size.foot }
    }

    pub fn top(&self, lane: &usize) -> i32 {
        self.tops.get(*lane).copied().unwrap_or(0)
    }

    pub fn x(&self, index: &usize) -> Percent {
        self.axis.place(*index)
    }

    /// Returns the y of a label's baseline.
    pub fn label_y(&self, event: &TimelineEvent, label: &Label) -> i32 {
        let row = i32::try_from(label.row).unwrap_or(0);
        self.top(&event.lane) + self.size.label + ROW_HEIGHT * row
    }

    pub fn activity(&self, index: &usize) -> Activity {
        self.states[*index].activity
    }

    /// Returns place, width and height of the bar behind an event; a thin line for an idle lane.
    pub fn bar(&self, index: &usize) -> Option<(Percent, Percent, i32)> {
        let is_idle = self.activity(index) == Activity::Idle;
        // A lock may outlive the drawing; one whose write was rejected is done.
        let is_over = is_idle || self.timeline.events[*index].kind == EventKind::Refused;
        if is_over && self.next[*index].is_none() {
            return None;
        }
        let (from, width) = self.until_next(index);
        Some((from, width, if is_idle { 2 } else { self.size.bar_height }))
    }

    /// Returns place, width and height of the sign of a pause, which lies in the bar.
    pub fn pause(&self, index: &usize) -> Option<(Percent, Percent, i32)> {
        let is_paused = self.states[*index].is_paused() && self.next[*index].is_some();
        let (from, width) = self.until_next(index);
        is_paused.then_some((from, width, self.size.bar_height / 2 - 1))
    }

    /// Returns the place of an event, and how far it is to the next one of its lane.
    fn until_next(&self, index: &usize) -> (Percent, Percent) {
        let from = self.axis.place(*index);
        let to = self.axis.place(self.next[*index].unwrap_or(usize::MAX));
        (from, Percent(to.0 - from.0))
    }

    pub fn spans(&self) -> Vec<(Percent, Percent)> {
        let span = |overlap: &Overlap| {
            let from = self.axis.place_of(overlap.from_us);
            (from, Percent(self.axis.place_of(overlap.to_us).0 - from.0))
        };
        self.overlaps.iter().map(span).collect()
    }

    /// Returns the words on the overlaps, their middles, how far they are above the last row, and
    /// the widths at which they are shown. In a scrolled drawing the first band has words.
    pub fn overlap_labels(&self) -> Vec<(String, Percent, i32, &'static str)> {
        if self.size.axis == 0 {
            let rows = self.band_rows();
            let of_band = |band: &BandText| {
                (band.text.clone(), band.middle, band.above_last(rows), band.width)
            };
            return self.bands.iter().map(of_band).collect();
        }

        let Some((from, width)) = self.spans().first().copied() else { return Vec::new() };
        let text = self.language.text("judge-overlap");
        let half = (label_width(&text) / self.axis.width * 50.0).min(50.0);
        let middle = Percent((from.0 + width.0 / 2.0).clamp(half, 100.0 - half));
        vec![(text, middle, 0, ALL_WIDTHS)]
    }
}
