//! The books: what each stored write left of a value, and what it sold.

use crate::Timeline;
use crate::event::Value;
use crate::kind::EventKind;

/// Values whose books are kept: a file may be anybody's.
const MAX_BOOKS: usize = 3;

/// The books of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    /// Its name, if the timeline concerns several.
    pub key: Option<String>,
    /// True for a counter, from which units are taken before they are sold.
    pub is_counter: bool,
    /// The first value, if a lane has seen it.
    pub opening: Option<Value>,
    /// By time.
    pub entries: Vec<BookEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookEntry {
    /// The event that stored it.
    pub event: usize,
    pub before: Option<Value>,
    pub after: Value,
    /// Units for which there is a receipt, one for a payment; below zero if units come back.
    pub sold: i64,
    /// True if a receipt has no unit: the update of this write, or of one before it, was lost.
    pub is_loss: bool,
}

impl Timeline {
    /// Returns the books of the first values that were written. With `are_lanes`, each lane has
    /// values of its own.
    pub fn books(&self, are_lanes: bool) -> Vec<Book> {
        let mut writes = self.stored_writes();
        writes.sort_by_key(|write| write.done);

        let mut books: Vec<Book> = Vec::new();
        for write in writes {
            let detail = &self.events[write.write].detail;
            let Some(after) = detail.value else { continue };
            let read = write.read.and_then(|read| self.events[read].detail.value);
            let own = are_lanes.then(|| self.lanes[write.lane].name.clone());
            let key = own.or_else(|| detail.key.clone());

            let place = books.iter().position(|book| book.key == key).unwrap_or(books.len());
            if place == MAX_BOOKS {
                continue;
            }
            if place == books.len() {
                let mut taken = self.events.iter().filter(|it| it.kind == EventKind::Deducted);
                let taken = taken.find(|it| it.detail.key == detail.key);
                let opening = taken.map_or(read, |first| first.detail.value);
                let (is_counter, entries) = (taken.is_some(), Vec::new());
                books.push(Book { key, is_counter, opening, entries });
            }
            let entries = &mut books[place].entries;
            let last = entries.last().map(|entry| entry.after);
            // Not all writes between two of them need be here.
            let before = if detail.is_loss { last.or(read) } else { read.or(last) };
            // Of two writes with one commit, the last one counts.
            entries.pop_if(|last| last.event == write.done);
            let (sold, is_loss) = (sold(read, after), detail.is_loss);
            entries.push(BookEntry { event: write.done, before, after, sold, is_loss });
        }

        for book in books.iter_mut().filter(|book| book.is_counter) {
            book.entries.extend(self.taken(book.key.as_ref()));
            book.entries.sort_by_key(|entry| entry.event);
        }
        books
    }

    /// Returns what was taken from a counter. What one has left there that stored nothing, the next
    /// one sees.
    fn taken(&self, key: Option<&String>) -> Vec<BookEntry> {
        let writes = self.stored_writes();
        let taken = self.events.iter().enumerate().filter(|(_, event)| {
            event.kind == EventKind::Deducted && event.detail.key.as_ref() == key
        });
        let taken: Vec<_> = taken.collect();
        let entries = taken.iter().zip(1..).filter_map(|((event, first), next)| {
            let own = writes.iter().find(|it| it.lane == first.lane && it.write > *event);
            let own = own.map(|it| &self.events[it.write]);
            let after = own.or(taken.get(next).map(|(_, next)| *next))?.detail.value?;
            let before = first.detail.value;
            Some(BookEntry { event: *event, before, after, sold: 0, is_loss: false })
        });
        entries.collect()
    }
}

fn sold(read: Option<Value>, after: Value) -> i64 {
    match (read, after) {
        (Some(Value::Units(read)), Value::Units(after)) => read.saturating_sub(after),
        (Some(Value::Cents(read)), Value::Cents(after)) => i64::from(read > after),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Detail, TimelineEvent, TimelineLane};

    fn event(lane: usize, kind: EventKind, value: Value, key: Option<&str>) -> TimelineEvent {
        let detail =
            Detail { value: Some(value), key: key.map(str::to_owned), ..Detail::default() };
        TimelineEvent { detail, ..TimelineEvent::new(lane, 0, kind) }
    }

    fn units(lane: usize, kind: EventKind, number: i64) -> TimelineEvent {
        event(lane, kind, Value::Units(number), None)
    }

    fn timeline(events: Vec<TimelineEvent>) -> Timeline {
        let lane = |name: &str| TimelineLane { name: name.to_owned(), ..TimelineLane::default() };
        let mut timeline = Timeline { lanes: ["a", "b", "c"].map(lane).into(), events };
        timeline.mark_stale_writes();
        timeline
    }

    /// Returns of each entry before, after, sold, and whether a receipt has no unit.
    fn shown(book: &Book) -> Vec<(Option<i64>, i64, i64, bool)> {
        let entry = |entry: &BookEntry| {
            let before = entry.before.map(Value::number);
            (before, entry.after.number(), entry.sold, entry.is_loss)
        };
        book.entries.iter().map(entry).collect()
    }

    #[test]
    fn lost_update_is_a_receipt_without_a_unit() {
        let timeline = timeline(vec![
            units(0, EventKind::Read, 10),
            units(1, EventKind::Read, 10),
            units(0, EventKind::Write, 9),
            units(1, EventKind::Write, 8),
            units(0, EventKind::Committed, 1),
            units(1, EventKind::Committed, 1),
            // It is rolled back.
            units(2, EventKind::Read, 8),
            units(2, EventKind::Write, 7),
            units(2, EventKind::Killed, 0),
            // A unit returns.
            units(0, EventKind::Read, 8),
            units(0, EventKind::Write, 9),
            units(0, EventKind::Committed, 1),
        ]);
        let [book] = timeline.books(false).try_into().expect("one value");
        assert_eq!((book.key.as_ref(), book.opening), (None, Some(Value::Units(10))));
        let expected = [(Some(10), 9, 1, false), (Some(9), 8, 2, true), (Some(8), 9, -1, false)];
        assert_eq!(shown(&book), expected);
        let stored: Vec<usize> = book.entries.iter().map(|entry| entry.event).collect();
        assert_eq!(stored, [4, 5, 11]);
    }

    /// Each value has its book, a payment one receipt, and one commit one entry of each value.
    #[test]
    fn each_value_has_its_book() {
        let units = |kind, number| event(0, kind, Value::Units(number), Some("tea"));
        let cents = |kind, number| event(0, kind, Value::Cents(number), Some("alice"));
        let many = (0..9).map(|number| {
            let key = number.to_string();
            event(1, EventKind::Write, Value::Units(number), Some(&key))
        });
        let own = [
            units(EventKind::Read, 3),
            cents(EventKind::Read, 1_000),
            units(EventKind::Write, 2),
            units(EventKind::Write, 1),
            cents(EventKind::Write, 250),
            units(EventKind::Committed, 1),
        ];
        let committed = event(1, EventKind::Committed, Value::Units(1), None);
        let books = timeline(own.into_iter().chain(many).chain([committed]).collect()).books(false);
        assert_eq!(books.len(), MAX_BOOKS);
        assert_eq!(shown(&books[0]), [(Some(3), 1, 2, false)]);
        assert_eq!(shown(&books[1]), [(Some(1_000), 250, 1, false)]);
        assert_eq!(shown(&books[2]), [(None, 0, 0, false)]);
    }

    /// A counter changes when a unit is taken, and the receipt comes later: the unit of who died in
    /// between has none. Who sells two has left after each what its own receipt says.
    #[test]
    fn counter_changes_before_the_sale() {
        let timeline = timeline(vec![
            units(0, EventKind::Deducted, 3),
            units(1, EventKind::Deducted, 2),
            units(1, EventKind::Read, 2),
            units(1, EventKind::Write, 1),
            units(1, EventKind::Deducted, 1),
            units(1, EventKind::Read, 1),
            units(1, EventKind::Write, 0),
        ]);
        let [book] = timeline.books(false).try_into().expect("one value");
        assert!(book.is_counter && book.opening == Some(Value::Units(3)));
        let expected = [
            (Some(3), 2, 0, false),
            (Some(2), 1, 0, false),
            (Some(2), 1, 1, false),
            (Some(1), 0, 0, false),
            (Some(1), 0, 1, false),
        ];
        assert_eq!(shown(&book), expected);
        let events: Vec<usize> = book.entries.iter().map(|entry| entry.event).collect();
        assert_eq!(events, [0, 1, 3, 4, 6]);
    }

    /// Two strategies that are compared sell different items.
    #[test]
    fn lanes_may_have_values_of_their_own() {
        let turn = |lane, read| {
            [units(lane, EventKind::Read, read), units(lane, EventKind::Write, read - 3)]
        };
        let books = timeline([turn(0, 10), turn(1, 10), turn(0, 7)].concat()).books(true);
        let keys: Vec<&str> = books.iter().filter_map(|book| book.key.as_deref()).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(shown(&books[0])[1], (Some(7), 4, 3, false));
    }
}
