//! Lists in pages: a page reads one row more than it shows, to know whether more follow.

/// Shortens `rows` to a page of `length`. Returns the cursor of the last one if more follow.
pub fn cut_page<T, C>(rows: &mut Vec<T>, length: i64, cursor: impl Fn(&T) -> C) -> Option<C> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let has_more = rows.len() > length;
    rows.truncate(length);
    rows.last().filter(|_| has_more).map(cursor)
}
