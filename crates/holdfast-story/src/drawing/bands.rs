//! The words on the bands of a drawing: the times in which several lanes worked on one value.

use super::axis::Percent;
use super::labels::{WIDTHS, text_width};
use super::size::ROW_HEIGHT;
use crate::{Overlap, Timeline};
use holdfast_base::messages::Language;

/// Rows of words below the lanes.
const ROWS: usize = 3;
/// Distance of two texts in a row, and from the edge, in pixels.
const DISTANCE: f64 = 10.0;

/// Words on a band, where they have room at a range of widths.
#[derive(Debug)]
pub struct BandText {
    pub text: String,
    pub middle: Percent,
    pub row: usize,
    /// Name of the range in `swimlane.css`.
    pub width: &'static str,
}

impl BandText {
    /// Returns how far its row is above the last of `rows`, in pixels.
    pub fn above_last(&self, rows: usize) -> i32 {
        ROW_HEIGHT * i32::try_from(rows.saturating_sub(self.row + 1)).unwrap_or(0)
    }
}

/// Returns the words on each band that have room, in as many rows as they need. `spans` are the
/// bands' places.
pub fn texts(
    timeline: &Timeline,
    overlaps: &[Overlap],
    spans: &[(Percent, Percent)],
    language: Language,
) -> Vec<BandText> {
    let mut placed = Vec::new();
    for (width, name) in WIDTHS {
        // Where the last text of each row ends.
        let mut ends = [f64::NEG_INFINITY; ROWS];
        for (overlap, (from, length)) in overlaps.iter().zip(spans) {
            let middle = (from.0 + length.0 / 2.0) / 100.0 * width;
            let words = words(timeline, overlap, language);
            let found = words.into_iter().find_map(|text| {
                let half = text_width(&text) / 2.0 + DISTANCE / 2.0;
                let middle = middle.clamp(half.min(width / 2.0), (width - half).max(width / 2.0));
                let fits = 2.0 * half <= width;
                let row = (0..ROWS).find(|row| fits && ends[*row] <= middle - half)?;
                ends[row] = middle + half;
                let middle = Percent(middle / width * 100.0);
                Some(BandText { text, middle, row, width: name })
            });
            placed.extend(found);
        }
    }
    placed
}

/// Returns what a band shows, the longest first.
fn words(timeline: &Timeline, overlap: &Overlap, language: Language) -> Vec<String> {
    let names = overlap.lanes.iter().map(|lane| timeline.lanes[*lane].short_name());
    let names: Vec<String> = names.collect();
    let lanes = match names.as_slice() {
        [one, other] => {
            let both = [("one", one.as_str().into()), ("other", other.as_str().into())];
            language.text_with("swimlane-both", &both)
        }
        names => language.list(names),
    };

    let with = |id: &str, value: String| {
        let variables = [("lanes", lanes.as_str().into()), ("value", value.into())];
        language.text_with(id, &variables)
    };
    match overlap.value {
        Some(value) => vec![
            with("swimlane-overlap", value.to_string()),
            with("swimlane-overlap-short", value.to_string()),
        ],
        None if timeline.has_grants() => vec![
            with("swimlane-overlap-holders", String::new()),
            language.text("swimlane-overlap-holders-short"),
        ],
        None => vec![
            with("swimlane-overlap-other", String::new()),
            language.text("swimlane-overlap-other-short"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Detail, EventKind, TimelineEvent, TimelineLane, Value};

    fn read(lane: usize, value: i64) -> TimelineEvent {
        let detail = Detail { value: Some(Value::Units(value)), ..Detail::default() };
        TimelineEvent { detail, ..TimelineEvent::new(lane, 0, EventKind::Read) }
    }

    /// Each band says who read what, and no text covers another one in its row.
    #[test]
    fn every_band_has_words_of_its_own() {
        let lane = |name: &str| TimelineLane { name: name.to_owned(), ..TimelineLane::default() };
        let lanes = ["A, late", "B", "C", "D"].map(lane).to_vec();
        let timeline = Timeline { lanes, events: vec![read(0, 10), read(1, 9), read(2, 8)] };
        let overlap = |read: usize| {
            let lanes = BTreeSet::from([read, read + 1]);
            let value = timeline.events[read].detail.value.filter(|_| read != 1);
            Overlap { from_us: 0, to_us: 1, read, value, lanes }
        };
        let overlaps = [overlap(0), overlap(1), overlap(2)];
        let spans = [20.0, 30.0, 90.0].map(|from| (Percent(from), Percent(10.0)));

        for (language, expected) in [
            (Language::English, ["A and B rely on 10", "B and C at once", "C and D rely on 8"]),
            (Language::Chinese, ["A 和 B 都以 10 为准", "B 和 C 同时执行", "C 和 D 都以 8 为准"]),
        ] {
            let texts = texts(&timeline, &overlaps, &spans, language);
            for (width, name) in WIDTHS {
                let own: Vec<&BandText> = texts.iter().filter(|it| it.width == name).collect();
                let words: Vec<&str> = own.iter().map(|it| it.text.as_str()).collect();
                assert_eq!(words, expected, "{width}");
                for (at, one) in own.iter().enumerate() {
                    let pixels = |it: &BandText| {
                        let (middle, half) =
                            (it.middle.0 / 100.0 * width, text_width(&it.text) / 2.0);
                        (middle - half, middle + half)
                    };
                    assert!(pixels(one).0 >= 0.0 && pixels(one).1 <= width, "{one:?}");
                    for other in own[at + 1..].iter().filter(|other| other.row == one.row) {
                        assert!(pixels(one).1 <= pixels(other).0, "{one:?} {other:?}");
                    }
                }
            }
        }
    }
}
