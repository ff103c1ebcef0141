//! Formats keys as text for a terminal.

use std::fmt::Write as _;

use super::command::DeletionResult;
use super::{BigKeyThreshold, KeyEntry, KeyRemovalMethod, KeyType, SearchResult, key_name};
use crate::shop::types::grouped;

/// Characters of a name in the progress line, and (`MAX_TABLE_NAME`) in a table.
const MAX_PROGRESS_NAME: usize = 40;
const MAX_TABLE_NAME: usize = 120;

pub(super) fn search_progress(result: &SearchResult) -> String {
    let SearchResult { seen, all, big, .. } = *result;
    format!("{} of {} keys looked at, {} big", grouped(seen), grouped(all), grouped(big))
}

pub(super) fn removal_progress(name: &str, removed: u64, of: u64) -> String {
    format!(
        "{}: {} of {} removed",
        truncate(name, MAX_PROGRESS_NAME),
        grouped(removed),
        grouped(of)
    )
}

pub(super) fn table(found: &SearchResult, big: BigKeyThreshold) -> String {
    let mut text = String::new();
    if !found.top.is_empty() {
        let _ = writeln!(text, "{:>11} {:>14}    {:<8} key", "memory", "length", "type");
    }
    for entry in &found.top {
        let memory = entry.memory_bytes.map_or("?".to_owned(), size);
        let mark = if entry.big { '*' } else { ' ' };
        let (length, kind) = (length(entry), truncate(entry.kind.label(), MAX_PROGRESS_NAME));
        let name = truncate(&key_name::escape(&entry.name), MAX_TABLE_NAME);
        let _ = writeln!(text, "{memory:>11} {length:>14}  {mark} {kind:<8} {name}");
    }
    let servers = match found.servers {
        1 => String::new(),
        servers => format!(" on {servers} primaries"),
    };
    let _ = writeln!(
        text,
        "\n{} of {} keys looked at{servers} in {:.1} s: {} big (* a string of more than {} bytes, \
         or more than {} elements)",
        grouped(found.seen),
        grouped(found.all),
        found.took.as_secs_f64(),
        grouped(found.big),
        grouped(big.string_bytes),
        grouped(big.elements),
    );
    if !found.types.is_empty() {
        let _ = writeln!(text, "\n{:>11} {:>14}    {:<8} big", "memory", "keys", "type");
    }
    for (kind, total) in &found.types {
        let memory = match found.no_memory {
            None => size(total.memory_bytes),
            Some(_) => "?".to_owned(),
        };
        let (keys, big) = (grouped(total.keys), grouped(total.big));
        let _ = writeln!(
            text,
            "{memory:>11} {keys:>14}    {:<8} {big}",
            truncate(kind, MAX_PROGRESS_NAME)
        );
    }
    text.push_str(&notes(found));
    text
}

fn notes(found: &SearchResult) -> String {
    let mut text = String::new();
    let mut note = |words: &str, count: u64| {
        if count > 0 {
            let _ = writeln!(text, "{words}: {}", grouped(count));
        }
    };
    let listed = u64::try_from(found.top.iter().filter(|entry| entry.big).count()).unwrap_or(0);
    let more = found.big.saturating_sub(listed).saturating_sub(found.left_out);
    note("big, but the list has no room for them (--top)", more);
    note("big, but the shop's own, which stay", found.left_out);
    note("gone before they could be looked at", found.gone);
    note("closed to this user of Redis", found.closed);
    if text.is_empty() { text } else { format!("\n{text}") }
}

pub(super) fn deleted(deleted: &[DeletionResult]) -> String {
    let mut text = String::new();
    for DeletionResult { entry, removal } in deleted {
        let name = truncate(&key_name::escape(&entry.name), MAX_TABLE_NAME);
        let _ = match removal {
            None => writeln!(text, "not removed  {name}"),
            Some(removal) => {
                let how = match removal.with {
                    KeyRemovalMethod::Unlink => "UNLINK".to_owned(),
                    KeyRemovalMethod::Batches => format!("{} commands", grouped(removal.commands)),
                };
                let left = match removal.left {
                    0 => String::new(),
                    left => format!(", {} left", grouped(left)),
                };
                writeln!(
                    text,
                    "removed      {name} ({}, {}): {how} in {:.1} s, the longest {:.1} ms{left}",
                    entry.kind.label(),
                    length(entry),
                    removal.took.as_secs_f64(),
                    removal.longest.as_secs_f64() * 1e3
                )
            }
        };
    }
    text
}

fn length(entry: &KeyEntry) -> String {
    match (&entry.kind, entry.length) {
        (_, None) => "?".to_owned(),
        (KeyType::String, Some(bytes)) => format!("{} bytes", grouped(bytes)),
        (_, Some(elements)) => grouped(elements),
    }
}

/// Formats a number of bytes; a KB is 1,024 bytes.
fn size(bytes: u64) -> String {
    let units = ["KB", "MB", "GB", "TB"];
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for next in units {
        if scaled < 1_024.0 {
            break;
        }
        scaled /= 1_024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{scaled:.1} {unit}") }
}

fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{grouped, size, truncate};

    #[test]
    fn numbers_sizes_and_names_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1_023, 1_024, 10_240, 5 << 20, 3 << 30].map(size),
            ["0 B", "1023 B", "1.0 KB", "10.0 KB", "5.0 MB", "3.0 GB"]
        );
        assert_eq!(
            (truncate("абвг", 4), truncate("абвг", 3)),
            ("абвг".to_owned(), "абв…".to_owned())
        );
    }
}
