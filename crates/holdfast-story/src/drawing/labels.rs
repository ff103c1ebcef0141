//! Places the labels of a drawing that fits its box, so that none covers another one.
//!
//! A label begins or ends at its mark, in one of a few rows. A drawing is as wide as its box, so
//! its labels are placed for the least of each range of widths: wider, they only move apart.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_base::messages::is_chinese;

/// The least width of a drawing, in pixels, of each range of widths, and the range's name in
/// `swimlane.css`.
pub const WIDTHS: [(f64, &str); 4] =
    [(240.0, "narrow"), (300.0, "middle"), (540.0, "wide"), (800.0, "full")];
/// Distance of two labels in a row, in pixels.
const DISTANCE: f64 = 8.0;
/// How far a label reaches beyond the middle of its mark, in pixels; `swimlane.css` has it too.
const SHIFT: f64 = 6.0;
/// Labels of no importance are in these rows only, so that a lane is low where it may be.
const MAX_PLAIN_ROWS: usize = 2;

/// An event that is to be labelled.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub lane: usize,
    /// Place on the axis, from 0 to 1.
    pub place: f64,
    /// The lower, the earlier a place is given: 0 for what the drawing is about.
    pub rank: u8,
    /// The longest first; none if the mark says enough.
    pub texts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub text: String,
    pub row: usize,
    /// True if it ends at its mark.
    pub is_end: bool,
}

/// A label, and the widths of the drawing at which it is shown.
#[derive(Debug)]
pub struct ShownLabel {
    pub label: Label,
    pub widths: String,
}

/// Returns, for each event, its labels in a drawing that may have any width.
pub fn place_at_all_widths(wanted: &[Wanted], rows: usize) -> Vec<Vec<ShownLabel>> {
    let placed = WIDTHS.map(|(width, name)| (name, place(wanted, width, rows)));
    let of_event = |index: usize| {
        let mut shown: Vec<ShownLabel> = Vec::new();
        for (name, labels) in &placed {
            let Some(label) = &labels[index] else { continue };
            match shown.iter_mut().find(|shown| shown.label == *label) {
                Some(same) => same.widths = format!("{} {name}", same.widths),
                None => shown.push(ShownLabel { label: label.clone(), widths: (*name).to_owned() }),
            }
        }
        shown
    };
    (0..wanted.len()).map(of_event).collect()
}

/// The pixels that labels take, by lane and row, each with its event. A row has room for few.
type OccupiedRanges = BTreeMap<(usize, usize), Vec<(usize, Range<f64>)>>;

/// Returns, for each event, its label if it has room in a drawing of a width.
pub fn place(wanted: &[Wanted], width: f64, rows: usize) -> Vec<Option<Label>> {
    let mut placed: Vec<Option<Label>> = vec![None; wanted.len()];
    let mut taken = OccupiedRanges::new();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|index| wanted[*index].rank);

    // First all of them in short, then those that have room in full.
    for index in &order {
        let short = wanted[*index].texts.last();
        placed[*index] =
            short.and_then(|text| find(*index, text, wanted, &mut taken, (width, rows)));
    }
    for index in order.into_iter().filter(|index| wanted[*index].texts.len() > 1) {
        let texts = &wanted[index].texts;
        let mut longer = texts[..texts.len() - 1].iter();
        let found = longer.find_map(|text| find(index, text, wanted, &mut taken, (width, rows)));
        placed[index] = found.or(placed[index].take());
    }
    placed
}

/// Takes the first free place of a text, which begins at its mark if it can, instead of the place
/// that its event has.
fn find(
    index: usize,
    text: &str,
    wanted: &[Wanted],
    taken: &mut OccupiedRanges,
    (width, rows): (f64, usize),
) -> Option<Label> {
    let Wanted { lane, place, rank, .. } = wanted[index];
    let rows = if rank < 2 { rows } else { rows.min(MAX_PLAIN_ROWS) };
    let low = rows.min(MAX_PLAIN_ROWS);
    let places = [(0..low, false), (0..low, true), (low..rows, false), (low..rows, true)];
    let mut places =
        places.into_iter().flat_map(|(rows, is_end)| rows.map(move |row| (row, is_end)));

    let (label, pixels) = places.find_map(|(row, is_end)| {
        let (mark, length) = (place * width, text_width(text));
        let pixels = if is_end {
            mark + SHIFT - length..mark + SHIFT
        } else {
            mark - SHIFT..mark - SHIFT + length
        };

        let is_inside = pixels.start >= 0.0 && pixels.end <= width;
        let mut others = taken.get(&(lane, row)).into_iter().flatten();
        let is_taken = others.any(|(other, it)| {
            let touches = pixels.start < it.end + DISTANCE && it.start < pixels.end + DISTANCE;
            *other != index && touches
        });
        let label = Label { text: text.to_owned(), row, is_end };
        (is_inside && !is_taken).then_some((label, pixels))
    })?;

    taken.values_mut().for_each(|row| row.retain(|(event, _)| *event != index));
    taken.entry((lane, label.row)).or_default().push((index, pixels));
    Some(label)
}

/// Returns the width of a text of 14 px in bold, in pixels, in the widest of the usual fonts.
pub fn text_width(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | '·' | '’' | '\'' | '|' => 4.7,
        'f' | 'r' | 't' | ' ' | '(' | ')' | '-' => 6.0,
        'm' | 'w' | 'M' | 'W' | '×' | '✗' | '→' => 13.0,
        'A'..='Z' => 10.2,
        _ if is_chinese(c) => 14.5,
        _ => 9.0,
    };
    text.chars().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    const TEXTS: [&str; 8] = [
        "lock, fence 12",
        "read 10",
        "write 9, fence 2, lost update",
        "✗ write rejected",
        "deletes B’s lock",
        "租约过期",
        "删除 B 的锁",
        "rejected, 409",
    ];

    fn wanted(rng: &mut StdRng) -> Vec<Wanted> {
        let mut places: Vec<f64> =
            (0..rng.random_range(1..40)).map(|_| rng.random_range(0.03..0.97)).collect();
        places.sort_by(f64::total_cmp);

        let event = |place| {
            let rank = rng.random_range(0..3);
            let texts: Vec<String> = (0..rng.random_range(0..3))
                .map(|_| TEXTS[rng.random_range(0..TEXTS.len())].to_owned())
                .collect();
            Wanted { lane: rng.random_range(0..3), place, rank, texts }
        };
        places.into_iter().map(event).collect()
    }

    /// Returns the pixels that a label takes in a drawing.
    fn pixels(wanted: &Wanted, label: &Label, width: f64) -> Range<f64> {
        let (mark, length) = (wanted.place * width, text_width(&label.text));
        if label.is_end { mark + 6.0 - length..mark + 6.0 } else { mark - 6.0..mark - 6.0 + length }
    }

    /// Placed for a width, labels are apart in every wider drawing too.
    #[test]
    fn labels_never_touch() {
        let mut rng = StdRng::seed_from_u64(40);
        for _ in 0..200 {
            let wanted = wanted(&mut rng);
            for (least, _) in WIDTHS {
                let labels = place(&wanted, least, 3);
                for width in [least, least * 1.2, least * 4.0] {
                    let shown: Vec<_> = wanted
                        .iter()
                        .zip(&labels)
                        .filter_map(|(wanted, label)| Some((wanted, label.as_ref()?)))
                        .map(|(it, label)| ((it.lane, label.row), pixels(it, label, width)))
                        .collect();
                    for (at, (row, one)) in shown.iter().enumerate() {
                        assert!(one.start >= 0.0 && one.end <= width, "{wanted:#?}");
                        let others = shown[at + 1..].iter().filter(|(other, _)| other == row);
                        for (_, other) in others {
                            let is_apart = one.end <= other.start || other.end <= one.start;
                            assert!(is_apart, "{one:?} {other:?} at {width}: {wanted:#?}");
                        }
                    }
                }
            }
        }
    }

    /// The subject of a drawing is labelled first, also after other events; a longer text is shown
    /// where it takes the place of no other one.
    #[test]
    fn important_labels_come_first() {
        let event = |place, rank, texts: &[&str]| Wanted {
            lane: 0,
            place,
            rank,
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        let wanted = [
            event(0.30, 2, &["commit"]),
            event(0.32, 1, &["write 9, lost update", "write 9"]),
            event(0.34, 0, &["lease over"]),
        ];
        let texts = |width, rows| -> Vec<Option<String>> {
            place(&wanted, width, rows).into_iter().map(|label| Some(label?.text)).collect()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(texts(240.0, 1), [None, None, some("lease over")]);
        assert_eq!(
            texts(540.0, 2),
            [some("commit"), some("write 9, lost update"), some("lease over")]
        );
    }

    /// The subject of a drawing is labelled on the smallest phone, among other events.
    #[test]
    fn important_labels_have_room_on_a_phone() {
        let events = [
            ("lock", 2),
            ("read 10", 1),
            ("paused", 2),
            ("lease over", 0),
            ("write 9", 1),
            ("checked", 2),
            ("deletes B’s lock", 0),
            ("rejected, 409", 2),
        ];
        let event = |(at, (text, rank)): (usize, &(&str, u8))| Wanted {
            lane: 0,
            place: 0.05 + at as f64 * 0.12,
            rank: *rank,
            texts: vec![(*text).to_owned()],
        };
        let wanted: Vec<Wanted> = events.iter().enumerate().map(event).collect();
        for (width, _) in WIDTHS {
            let labels = place(&wanted, width, 3);
            for (index, (text, rank)) in events.iter().enumerate() {
                assert!(*rank > 1 || labels[index].is_some(), "{text} at {width}: {labels:?}");
            }
        }
    }
}
