//! Formats numbers and times for people, and parses amounts.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::messages::{FluentValue, Language, is_chinese};
use crate::shop::Cents;

/// The sign before every amount of money.
const CURRENCY: char = '$';

/// An amount of money, as pages show it.
pub trait FormatMoney {
    /// With the currency sign: `$1,000.50`, `−$14.50`.
    fn money(&self) -> String;
}

impl FormatMoney for Cents {
    fn money(&self) -> String {
        let sign = if self.0 < 0 { "−" } else { "" };
        format!("{sign}{CURRENCY}{}", Self(self.0.saturating_abs()))
    }
}

/// Returns the sign between the two sides of the books' equation.
pub fn equals_sign(holds: bool) -> &'static str {
    if holds { "=" } else { "≠" }
}

/// Formats a change of units (`−2` or `+20`) or of money (`−$14.50` or `+$1,000.00`).
pub fn format_change(delta: i64, money: bool) -> String {
    let sign = if delta < 0 { "−" } else { "+" };
    let amount = delta.saturating_abs();
    if money { format!("{sign}{}", Cents(amount).money()) } else { format!("{sign}{amount}") }
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

/// Units of relative times and durations, in seconds.
const TIME_UNITS: [(u64, &str); 4] =
    [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
/// Relative times further away are shown as a date.
const MAX_RELATIVE_DAYS: u64 = 60;

/// Formats a time relative to `now`: `5 minutes ago`, `in 3 days`.
pub fn format_relative(at: OffsetDateTime, now: OffsetDateTime, language: Language) -> String {
    let (is_past, distance) = (at <= now, (now - at).unsigned_abs().as_secs());
    if distance > MAX_RELATIVE_DAYS * 86_400 {
        let day = format_description!("[year]-[month]-[day]");
        return at.format(&day).unwrap_or_default();
    }
    let unit = TIME_UNITS.into_iter().find(|(seconds, _)| distance >= *seconds && *seconds > 1);
    let Some((seconds, unit)) = unit else { return language.text("shop-time-now") };
    let id = if is_past { format!("shop-ago-{unit}") } else { format!("shop-in-{unit}") };
    language.text_with(&id, &[("count", count_of(distance / seconds))])
}

/// Formats the time left: `14 min 05 s`, rounded up to seconds, so 0 only if nothing is left.
pub fn format_time_left(left: Duration, language: Language) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let variables =
        [("minutes", count_of(seconds / 60)), ("seconds", format!("{:02}", seconds % 60).into())];
    language.text_with("shop-time-left", &variables)
}

/// Formats a duration in words: `15 minutes`, `1 minute 30 seconds`, `2 days`.
pub fn format_duration(time: Duration, language: Language) -> String {
    let mut rest = time.as_secs();
    let mut words = Vec::new();
    for (seconds, unit) in TIME_UNITS {
        let count = rest / seconds;
        rest %= seconds;
        if count > 0 || seconds == 1 && words.is_empty() {
            let id = format!("shop-duration-{unit}");
            words.push(language.text_with(&id, &[("count", count_of(count))]));
        }
    }
    words.join(" ")
}

fn count_of(count: u64) -> FluentValue<'static> {
    count.into()
}

/// Parses an amount, in cents: `25`, `25.5`, `1,000.50`. A comma separates thousands; a comma that
/// could separate cents is an error. The error is the text for the form's field.
pub fn parse_cents(text: &str, language: Language) -> Result<i64, String> {
    let unclear = || language.text("shop-amount-unclear");
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
        let typed = [("typed", text.to_owned().into())];
        return Err(language.text_with("shop-amount-ambiguous", &typed));
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

/// Formats an error of a field as a sentence, with the full stop of its script.
pub fn sentence(text: &str) -> String {
    let end = match text.chars().next_back() {
        Some('.' | '!' | '?' | '…' | '。' | '！' | '？') => "",
        _ if text.contains(is_chinese) => "。",
        _ => ".",
    };
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
            assert_eq!(parse_cents(text, Language::English), Ok(cents), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "1.234", "1.2.3", ",100", "9999999999999", "٣"] {
            let why = parse_cents(text, Language::English).unwrap_err();
            assert!(why.starts_with("Enter an amount"), "{text}: {why}");
        }
        for text in ["1,5", "25,50", "1,0000", "1000,000", "1,000,00"] {
            let why = parse_cents(text, Language::English).unwrap_err();
            assert!(why.starts_with(&format!("{text} is ambiguous")), "{why}");
        }
        assert_eq!(
            (format_count(1_000), format_count(12), format_count(0)),
            ("1,000".into(), "12".into(), "0".into())
        );
    }

    #[test]
    fn sentence_ends_with_stop_of_its_script() {
        for (text, expected) in [
            ("this name is taken", "This name is taken."),
            ("Choose another one.", "Choose another one."),
            ("此用户名已被占用，请换一个。", "此用户名已被占用，请换一个。"),
            ("1 到 64 个字符：a–z、0–9", "1 到 64 个字符：a–z、0–9。"),
            ("真的吗？", "真的吗？"),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }

    #[test]
    fn money_has_sign_before_currency() {
        assert_eq!(Cents(123_450).money(), "$1,234.50");
        assert_eq!(Cents(-5).money(), "−$0.05");
        assert_eq!(
            [(-2, false), (20, false), (-1_450, true)].map(|(delta, it)| format_change(delta, it)),
            ["−2", "+20", "−$14.50"]
        );
    }

    #[test]
    fn times_are_relative_in_both_languages() {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(86_400 * 365);
        for (seconds, english, chinese) in [
            (0, "just now", "刚刚"),
            (-59, "just now", "刚刚"),
            (-60, "1 minute ago", "1 分钟前"),
            (-7_200, "2 hours ago", "2 小时前"),
            (-86_400, "1 day ago", "1 天前"),
            (900, "in 15 minutes", "15 分钟后"),
            (86_400 * 30, "in 30 days", "30 天后"),
            (-86_400 * 61, "1970-11-01", "1970-11-01"),
        ] {
            let at = now + time::Duration::seconds(seconds);
            assert_eq!(format_relative(at, now, Language::English), english);
            assert_eq!(format_relative(at, now, Language::Chinese), chinese);
        }
    }

    #[test]
    fn durations_are_words_and_round_up() {
        for (seconds, english, chinese) in [
            (0, "0 seconds", "0 秒"),
            (1, "1 second", "1 秒"),
            (90, "1 minute 30 seconds", "1 分钟 30 秒"),
            (900, "15 minutes", "15 分钟"),
            (604_800, "7 days", "7 天"),
        ] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(format_duration(duration, Language::English), english);
            assert_eq!(format_duration(duration, Language::Chinese), chinese);
        }
        let left = |ms| format_time_left(Duration::from_millis(ms), Language::English);
        assert_eq!((left(845_000), left(1)), ("14 min 05 s".into(), "0 min 01 s".into()));
        let left = format_time_left(Duration::from_secs(65), Language::Chinese);
        assert_eq!(left, "1 分 05 秒");
    }
}
