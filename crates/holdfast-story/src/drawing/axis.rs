//! The time axis of a drawing: the places of events, in the order of time.

use std::collections::BTreeMap;
use std::fmt;

use super::labels::text_width;
use crate::{EventKind, TimelineEvent, format_ms};

const MARGIN: f64 = 12.0;
/// Scale between the least and the largest distance of two events.
const PIXELS_PER_MS: f64 = 12.0;
/// Least part of a fitting axis before its first event, and behind its last one.
const MARGIN_PART: f64 = 0.03;
const LABEL_PADDING: f64 = 12.0;
/// So that a gap of more than 60 ms is marked where the largest distance is 24 pixels.
const SHORTENED: f64 = 0.4;

/// A part of the axis, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}%", self.0)
    }
}

/// Least and largest distance of two events in pixels, and the scale between them.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub least: f64,
    pub most: f64,
    pub pixels_per_ms: f64,
    /// A gap is marked that has fewer pixels per ms.
    pub shortened: f64,
}

impl Scale {
    pub const fn within(least: f64, most: f64) -> Self {
        Self { least, most, pixels_per_ms: PIXELS_PER_MS, shortened: SHORTENED }
    }
}

#[derive(Debug, Default)]
pub struct Axis {
    times: Vec<u64>,
    /// In pixels.
    places: Vec<f64>,
    /// In pixels.
    pub width: f64,
    /// Where time is shortened: the event behind, and the place in pixels.
    breaks: Vec<(usize, f64)>,
}

impl Axis {
    /// As [`Self::of`], for a drawing of any width, in which half a mark has room at both ends.
    pub fn fitting<'l>(
        events: &[TimelineEvent],
        labels: impl Iterator<Item = &'l str>,
        scale: Scale,
    ) -> Self {
        let mut axis = Self::of(events, labels, scale);
        let margin = (axis.width * MARGIN_PART - MARGIN).max(0.0);
        let breaks = axis.breaks.iter_mut().map(|(_, place)| place);
        axis.places.iter_mut().chain(breaks).for_each(|place| *place += margin);
        axis.width += 2.0 * margin;
        axis
    }

    /// Makes every ms as long as any other.
    pub fn to_scale(events: &[TimelineEvent]) -> Self {
        let times: Vec<u64> = events.iter().map(|event| event.at_us).collect();
        let span = times.last().copied().unwrap_or(0).max(1) as f64;
        let inner = 100.0 * (1.0 - 2.0 * MARGIN_PART);
        let place = |time: &u64| 100.0 * MARGIN_PART + *time as f64 / span * inner;
        let places = times.iter().map(place).collect();
        Self { times, places, width: 100.0, breaks: Vec::new() }
    }

    /// Leaves room for the labels of each lane. Gaps outside of the scale's are stretched
    /// or shortened.
    pub fn of<'l>(
        events: &[TimelineEvent],
        labels: impl Iterator<Item = &'l str>,
        scale: Scale,
    ) -> Self {
        let mut axis = Self::default();
        // Where the last label of each lane ends.
        let mut ends: BTreeMap<usize, f64> = BTreeMap::new();
        let mut was_grant = false;
        for (event, label) in events.iter().zip(labels) {
            let mut place = MARGIN;
            if let (Some(time), Some(last)) = (axis.times.last(), axis.places.last()) {
                let gap_ms = event.at_us.saturating_sub(*time) as f64 / 1_000.0;
                let gap = gap_ms * scale.pixels_per_ms;
                let free = ends.get(&event.lane).filter(|_| !label.is_empty());
                // The grants of several nodes are one step.
                let is_same = was_grant && event.kind == EventKind::Granted;
                let least = if is_same { 0.0 } else { scale.least };
                place = free.copied().unwrap_or(0.0).max(last + gap.clamp(least, scale.most));
                let drawn = place - last;
                if drawn < gap_ms * scale.shortened {
                    axis.breaks.push((axis.times.len(), last + drawn / 2.0));
                }
            }

            was_grant = event.kind == EventKind::Granted;
            let end = place + label_width(label);
            if !label.is_empty() {
                ends.insert(event.lane, end);
            }

            axis.width = axis.width.max(end);
            axis.times.push(event.at_us);
            axis.places.push(place);
        }

        axis
    }

    fn percent(&self, pixels: f64) -> Percent {
        Percent(pixels / self.width.max(1.0) * 100.0)
    }

    /// Returns where time is shortened, each with the event behind it.
    pub fn breaks(&self) -> impl Iterator<Item = (usize, Percent)> {
        self.breaks.iter().map(|(event, place)| (*event, self.percent(*place)))
    }

    /// Returns the place of an event by its index; the end of the axis behind the last one.
    pub fn place(&self, index: usize) -> Percent {
        self.places.get(index).map_or(Percent(100.0), |place| self.percent(*place))
    }

    /// Returns the place of a time, which is that of the first event from then on.
    pub fn place_of(&self, at_us: u64) -> Percent {
        self.place(self.times.partition_point(|time| *time < at_us))
    }

    /// Returns the times that have room, with their places.
    pub fn ticks(&self) -> Vec<(Percent, String)> {
        let mut free = 0.0;
        let mut ticks = Vec::new();
        for (time, place) in self.times.iter().zip(&self.places) {
            let text = format_ms(*time);
            let end = place + label_width(&text);
            if *place >= free && end <= self.width {
                free = end;
                ticks.push((self.percent(*place), text));
            }
        }
        ticks
    }
}

/// Returns the width of a label with the distance from the next one, in pixels.
pub fn label_width(text: &str) -> f64 {
    LABEL_PADDING + text_width(text)
}
