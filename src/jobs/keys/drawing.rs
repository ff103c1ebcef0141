//! Formats keys as text for a terminal.

use std::fmt::Write as _;

use super::terminal::Deleted;
use super::{Big, Entry, Found, Kind, Progress, With, name};
use crate::shop::types::grouped;

/// Characters of a name in the progress line, and (`LONG`) in a table.
const SHORT: usize = 40;
const LONG: usize = 120;

pub(super) fn far(far: &Progress) -> String {
    let Progress { seen, all, big } = *far;
    format!("{} of {} keys looked at, {} big", grouped(seen), grouped(all), grouped(big))
}

pub(super) fn going(shown: &str, gone: u64, of: u64) -> String {
    format!("{}: {} of {} removed", cut(shown, SHORT), grouped(gone), grouped(of))
}

pub(super) fn table(found: &Found, big: Big) -> String {
    let mut text = String::new();
    if !found.top.is_empty() {
        let _ = writeln!(text, "{:>11} {:>14}    {:<8} key", "memory", "length", "type");
    }
    for entry in &found.top {
        let memory = entry.memory_bytes.map_or("?".to_owned(), size);
        let mark = if entry.big { '*' } else { ' ' };
        let (length, kind) = (length(entry), cut(entry.kind.word(), SHORT));
        let shown = cut(&name::shown(&entry.name), LONG);
        let _ = writeln!(text, "{memory:>11} {length:>14}  {mark} {kind:<8} {shown}");
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
        let _ = writeln!(text, "{memory:>11} {keys:>14}    {:<8} {big}", cut(kind, SHORT));
    }
    text.push_str(&notes(found));
    text
}

fn notes(found: &Found) -> String {
    let mut text = String::new();
    let mut note = |words: &str, many: u64| {
        if many > 0 {
            let _ = writeln!(text, "{words}: {}", grouped(many));
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

pub(super) fn deleted(deleted: &[Deleted]) -> String {
    let mut text = String::new();
    for Deleted { entry, removal } in deleted {
        let shown = cut(&name::shown(&entry.name), LONG);
        let _ = match removal {
            None => writeln!(text, "not removed  {shown}"),
            Some(removal) => {
                let how = match removal.with {
                    With::Unlink => "UNLINK".to_owned(),
                    With::Batches => format!("{} commands", grouped(removal.commands)),
                };
                let left = match removal.left {
                    0 => String::new(),
                    left => format!(", {} left", grouped(left)),
                };
                writeln!(
                    text,
                    "removed      {shown} ({}, {}): {how} in {:.1} s, the longest {:.1} ms{left}",
                    entry.kind.word(),
                    length(entry),
                    removal.took.as_secs_f64(),
                    removal.longest.as_secs_f64() * 1e3
                )
            }
        };
    }
    text
}

fn length(entry: &Entry) -> String {
    match (&entry.kind, entry.length) {
        (_, None) => "?".to_owned(),
        (Kind::String, Some(bytes)) => format!("{} bytes", grouped(bytes)),
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

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, grouped, size};

    #[test]
    fn numbers_sizes_and_names_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1_023, 1_024, 10_240, 5 << 20, 3 << 30].map(size),
            ["0 B", "1023 B", "1.0 KB", "10.0 KB", "5.0 MB", "3.0 GB"]
        );
        assert_eq!((cut("абвг", 4), cut("абвг", 3)), ("абвг".to_owned(), "абв…".to_owned()));
    }
}
