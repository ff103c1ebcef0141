//! The rows below the lanes, with a sign at the place of each event that changed something there:
//! which lane has the lock at each of several nodes, and the books, with a receipt for each sale.

use super::labels::{Label, ShownLabel};
use crate::activity::{Book, BookEntry};
use crate::kind::{DOT, EventKind};
use crate::{Timeline, Value};
use holdfast_base::messages::Language;

/// Between the owners of two nodes in a label, whose parts are drawn as boxes.
const BETWEEN: &str = "  ";
const FREE: &str = "–";
/// A sale without its unit.
pub const UNSOLD: &str = "unsold";
/// Width of a box in pixels; the template has it too.
const BOX: usize = 16;

#[derive(Debug)]
pub struct Row {
    pub title: String,
    /// The subject of its labels, in the list of events; `None` if they are no text.
    pub noun: Option<String>,
    /// By event.
    pub signs: Vec<Sign>,
}

#[derive(Debug)]
pub struct Sign {
    pub event: usize,
    /// Its name in styles, and of its shape.
    pub name: &'static str,
    /// The texts that may stand below it, the longest first.
    pub texts: Vec<String>,
    pub labels: Vec<ShownLabel>,
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

/// Returns the rows of a timeline. With `are_lanes`, each lane has values of its own.
pub fn rows(timeline: &Timeline, are_lanes: bool, language: Language) -> Vec<Row> {
    let books = timeline.books(are_lanes).into_iter().map(|book| of_book(&book, language));
    nodes(timeline, language).into_iter().chain(books).collect()
}

fn of_book(book: &Book, language: Language) -> Row {
    let is_money = book.entries.iter().any(|entry| matches!(entry.after, Value::Cents(_)));
    let noun = language.text(match is_money {
        true => "swimlane-balance",
        false if book.is_counter => "swimlane-counter",
        false => "swimlane-stock",
    });
    let opening = book.opening.map_or_else(|| FREE.to_owned(), |value| value.to_string());
    let variables = [("noun", noun.as_str().into()), ("opening", opening.into())];
    let mut title = language.text_with("swimlane-opening", &variables);
    if let Some(key) = &book.key {
        let variables = [("text", title.into()), ("key", key.as_str().into())];
        title = language.text_with("swimlane-with-key", &variables);
    }

    let sign = |entry: &BookEntry| Sign {
        event: entry.event,
        name: match entry.sold {
            _ if entry.is_loss => UNSOLD,
            ..0 => "returned",
            0 => DOT,
            _ => "sold",
        },
        texts: texts(entry, book.is_counter, language),
        labels: Vec::new(),
    };
    let signs = book.entries.iter().map(sign).collect();
    Row { title, noun: Some(noun), signs }
}

/// Returns what an entry says, the longest first; nothing if its sign says enough.
fn texts(entry: &BookEntry, is_counter: bool, language: Language) -> Vec<String> {
    let with = |id: &str, change: &str| {
        let sold = Value::Units(entry.sold).to_string();
        language.text_with(id, &[("change", change.into()), ("sold", sold.into())])
    };
    let after = entry.after.to_string();
    let sold = with("swimlane-entry-sold-short", "");
    let change = match entry.before {
        // It has changed before the sale.
        _ if is_counter && entry.sold > 0 => sold.clone(),
        Some(before) => format!("{before} → {after}"),
        None => after.clone(),
    };

    match entry.sold {
        _ if entry.is_loss => {
            let lost = with("swimlane-entry-lost", &change);
            vec![lost, language.text("swimlane-label-lost-update")]
        }
        ..0 => vec![with("swimlane-entry-returned", &change), change, after],
        1 if is_counter => Vec::new(),
        0 | 1 => vec![change, after],
        _ if is_counter => vec![sold],
        _ => vec![with("swimlane-entry-sold", &change), sold],
    }
}

fn nodes(timeline: &Timeline, language: Language) -> Option<Row> {
    let name = |lane: usize| timeline.lanes[lane].short_name().chars().take(1).collect();
    let owner = |lane: Option<usize>| lane.map_or_else(|| FREE.to_owned(), name);
    let signs = timeline.grants().into_iter().map(|(event, nodes)| Sign {
        event,
        name: match timeline.events[event].kind {
            EventKind::Granted => "granted",
            _ => DOT,
        },
        texts: vec![nodes.map(owner).join(BETWEEN)],
        labels: Vec::new(),
    });
    let signs: Vec<Sign> = signs.collect();
    (!signs.is_empty()).then(|| Row { title: language.text("swimlane-nodes"), noun: None, signs })
}
