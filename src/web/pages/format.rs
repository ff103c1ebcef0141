//! Formats numbers and times for people, and parses amounts.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use holdfast_base::messages::{FluentValue, Language, is_chinese};
use holdfast_shop::Cents;

pub fn equals_sign(holds: bool) -> &'static str {
    if holds { "=" } else { "≠" }
}

/// Says of a sum of corrections whether units were added or removed, for the texts to choose.
pub fn direction(sum: &i64) -> &'static str {
    if *sum < 0 { "removed" } else { "added" }
}

/// Formats a change of units (`−2` or `+20`) or of money (`−$14.50` or `+$1,000.00`).
pub fn format_change(delta: i64, money: bool) -> String {
    let sign = if delta < 0 { "−" } else { "+" };
    let amount = delta.saturating_abs();
    if money { format!("{sign}{}", Cents(amount).money()) } else { format!("{sign}{amount}") }
}

pub trait FormatTime {
    fn in_utc(&self) -> String;
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

const TIME_UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
const MAX_RELATIVE_DAYS: u64 = 60;

/// Formats a time relative to `now`: `5 minutes ago`, `in 3 days`.
pub fn format_relative(at: OffsetDateTime, now: OffsetDateTime, language: Language) -> String {
    let (is_past, distance) = (at <= now, (now - at).unsigned_abs().as_secs());
    if distance > MAX_RELATIVE_DAYS * 86_400 {
        let day = format_description!("[year]-[month]-[day]");
        return at.format(&day).unwrap_or_default();
    }
    let unit = TIME_UNITS.into_iter().find(|(seconds, _)| distance >= *seconds);
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

fn count_of(count: u64) -> FluentValue<'static> {
    count.into()
}

/// Parses an amount in cents: `25`, `25.5`, `1000.50`. With a comma it is unclear, which may
/// separate thousands or cents.
pub fn parse_cents(text: &str) -> Option<i64> {
    let text = text.trim();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_plain || whole.is_empty() || whole.len() > 12 || part.len() > 2 {
        return None;
    }
    format!("{whole}{part:0<2}").parse().ok()
}

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
    let mut rest = text.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    let capitalized: String = first.chain(rest).collect();
    format!("{capitalized}{end}")
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
            ("1000.50", 100_050),
        ] {
            assert_eq!(parse_cents(text), Some(cents), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "1.234", "1.2.", "1,5", "1,000", "9999999999999", "٣"]
        {
            assert_eq!(parse_cents(text), None, "{text}");
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
    fn time_left_rounds_up() {
        let left = |ms| format_time_left(Duration::from_millis(ms), Language::English);
        assert_eq!((left(845_000), left(1)), ("14 min 05 s".into(), "0 min 01 s".into()));
        let left = format_time_left(Duration::from_secs(65), Language::Chinese);
        assert_eq!(left, "1 分 05 秒");
    }
}
