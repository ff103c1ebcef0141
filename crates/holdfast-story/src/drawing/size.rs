//! The measures of the drawings: with labels, low, compact or scrolled.

use super::axis::Scale;

pub(super) const MARGIN: i32 = 6;
/// Of a row of labels.
pub(super) const ROW_HEIGHT: i32 = 20;
/// Baseline of the first row of labels below a sign, from the top of its row.
pub(super) const SIGN_LABEL: i32 = 56;
/// Rows of labels below a sign.
pub(super) const SIGN_ROWS: usize = 3;
/// Room for the longest cause that can be dragged, in pixels.
const MAX_DRAG: f64 = 200.0;

/// Heights in pixels, from the top of the drawing or of a lane, and the scale of time.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Height of the axis above the lanes; 0 without one.
    pub axis: i32,
    pub lane: i32,
    /// Baseline of the lane's name, if it is in the drawing.
    pub name: Option<i32>,
    pub bar: i32,
    pub bar_height: i32,
    /// The baseline of the first row of labels.
    pub label: i32,
    /// Rows that labels may take; the lane grows with those that they take.
    pub rows: usize,
    /// Room below the lanes of a drawing with overlaps, for the words on them.
    pub foot: i32,
    /// Height of a row below the lanes; 0 if it has none.
    pub below: i32,
    /// True if each lane has values of its own.
    pub are_values_of_lanes: bool,
    pub scale: Scale,
}

impl Size {
    /// Makes the scale so that a time of `ms` has room.
    pub fn up_to(mut self, ms: u64) -> Self {
        self.scale.pixels_per_ms = MAX_DRAG / ms.max(1) as f64;
        self
    }
}

pub(super) const LABELLED: Size = Size {
    axis: 0,
    lane: 84,
    name: Some(18),
    bar: 40,
    bar_height: 14,
    label: 68,
    rows: 3,
    foot: 26,
    below: 62,
    are_values_of_lanes: false,
    scale: Scale::within(12.0, 24.0),
};
pub(super) const LANES: Size = Size { below: 0, ..LABELLED };
/// Two strategies are compared: each has its item.
pub(super) const TO_SCALE: Size = Size { are_values_of_lanes: true, ..LABELLED };
/// As `LABELLED`, with long times: what is dragged has to move.
pub(super) const HANDLED: Size = Size { scale: Scale::within(14.0, MAX_DRAG), ..LABELLED };
/// `swimlane.css` has the heights of lanes whose names are beside the drawing.
pub(super) const COMPACT: Size = Size {
    axis: 0,
    lane: 24,
    name: None,
    bar: 12,
    bar_height: 10,
    label: 0,
    rows: 0,
    foot: MARGIN,
    below: 0,
    are_values_of_lanes: false,
    scale: Scale::within(12.0, 24.0),
};
pub(super) const SCROLLED: Size = Size {
    axis: 30,
    lane: 48,
    name: None,
    bar: 34,
    bar_height: 8,
    label: 18,
    rows: 1,
    foot: 26,
    below: 62,
    are_values_of_lanes: false,
    scale: Scale { shortened: 2.0, ..Scale::within(18.0, 120.0) },
};
/// `race.css` has the same heights.
pub(super) const SMALL: Size = Size {
    lane: 38,
    bar_height: 8,
    label: 33,
    rows: 1,
    scale: Scale::within(9.0, 24.0),
    ..COMPACT
};
