//! Formats numbers and times for people, and parses amounts.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::shop::Cents;
use crate::shop::types::grouped;

/// Formats a change of units (`−2` or `+20`) or of money (`−14.50` or `+1,000.00`).
pub fn format_change(delta: i64, money: bool) -> String {
    let sign = if delta < 0 { "−" } else { "+" };
    let amount = delta.unsigned_abs();
    if money {
        format!("{sign}{}.{:02}", grouped(amount / 100), amount % 100)
    } else {
        format!("{sign}{amount}")
    }
}

/// A time, as pages show it.
pub trait FormatTime {
    /// For people, in UTC.
    fn in_utc(&self) -> String;
    /// For programs.
    fn rfc3339(&self) -> String;
}

impl FormatTime for OffsetDateTime {
    fn in_utc(&self) -> String {
        let shape = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
        self.format(&shape).unwrap_or_default()
    }

    fn rfc3339(&self) -> String {
        self.format(&Rfc3339).unwrap_or_default()
    }
}

/// Formats the time left: `14 min 05 s`, rounded up to seconds, so 0 only if nothing is left.
pub fn format_time_left(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

/// Formats a duration in words: `15 minutes`, `1 minute 30 seconds`, `2 days`.
pub fn format_duration(time: Duration) -> String {
    let mut rest = time.as_secs();
    let mut words = Vec::new();
    for (seconds, name) in [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")] {
        let count = rest / seconds;
        rest %= seconds;
        if count > 0 {
            words.push(format!("{count} {name}{}", if count == 1 { "" } else { "s" }));
        }
    }
    if words.is_empty() { "no time".to_owned() } else { words.join(" ") }
}

/// Parses an amount, in cents: `25`, `25.5`, `1,000.50`. A comma separates thousands; a comma that
/// could separate cents is an error. The error is the text for the form's field.
pub fn parse_cents(text: &str) -> Result<i64, String> {
    let unclear = || "Type an amount such as 25 or 1,000.50.".to_owned();
    let text = text.trim();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let has_commas = whole.contains(',');
    if !digits(&whole.replace(',', "")) || part.len() > 2 || !digits(part) || first.is_empty() {
        return Err(unclear());
    }
    if has_commas && (first.len() > 3 || groups.any(|group| group.len() != 3)) {
        return Err(format!(
            "{text} can be read in two ways. Type a point before the cents, and a comma only \
             between thousands: 1,000.50."
        ));
    }
    let whole = whole.replace(',', "");
    if whole.len() > 12 {
        return Err(unclear());
    }
    format!("{whole}{part:0<2}").parse().map_err(|_| unclear())
}

/// Formats a count with commas between thousands.
pub fn format_count(number: i64) -> String {
    let money = Cents(number.saturating_mul(100)).to_string();
    money.strip_suffix(".00").unwrap_or(&money).to_owned()
}

/// Formats an error of a field as a sentence.
pub fn sentence(text: &str) -> String {
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{}{end}", capitalize(text))
}

pub fn capitalize(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Returns the last group of an id, enough to distinguish ids (the first groups are a time).
pub fn short_id(id: &impl ToString) -> String {
    let id = id.to_string();
    id.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Splits a text with `code` in it into pieces; `true` for code.
pub fn split_code<T: AsRef<str> + ?Sized>(text: &T) -> Vec<(bool, &str)> {
    text.as_ref().split('`').enumerate().map(|(place, piece)| (place % 2 == 1, piece)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_amount_is_parsed_to_cents() {
        for (text, cents) in [
            ("25", 2_500),
            (" 25.5 ", 2_550),
            ("0.05", 5),
            ("10000000", 10_i64.pow(9)),
            ("1,000", 100_000),
            ("1,000.50", 100_050),
            ("10,000,000.00", 10_i64.pow(9)),
        ] {
            assert_eq!(parse_cents(text), Ok(cents), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "1.234", "1.2.3", ",100", "9999999999999", "٣"] {
            assert!(parse_cents(text).unwrap_err().starts_with("Type an amount"), "{text}");
        }
        for text in ["1,5", "25,50", "1,0000", "1000,000", "1,000,00"] {
            let why = parse_cents(text).unwrap_err();
            assert!(why.starts_with(&format!("{text} can be read in two ways")), "{why}");
        }
        assert_eq!(
            (format_count(1_000), format_count(12), format_count(0)),
            ("1,000".into(), "12".into(), "0".into())
        );
    }

    #[test]
    fn changes_are_signed_and_time_left_counts_down() {
        assert_eq!(
            (format_change(-2, false), format_change(20, false), format_change(-1_450, true)),
            ("−2".to_owned(), "+20".to_owned(), "−14.50".to_owned())
        );
        assert_eq!(format_time_left(Duration::from_secs(845)), "14 min 05 s");
        assert_eq!(format_time_left(Duration::from_millis(1)), "0 min 01 s");
    }

    #[test]
    fn duration_is_formatted_in_words() {
        for (seconds, words) in [
            (1, "1 second"),
            (8, "8 seconds"),
            (90, "1 minute 30 seconds"),
            (900, "15 minutes"),
            (5_400, "1 hour 30 minutes"),
            (604_800, "7 days"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), words);
        }
    }
}
