//! Statements and errors without their values: these may be the service's secrets, and a judgement
//! is read by others, too.

use std::collections::BTreeSet;
use std::iter::once;

use holdfast_services::Statement;

use crate::service::report::NO_ANSWER;
use crate::service::sale::Run;
use crate::service::sent::key_place;
use crate::service::sql::{Token, is_word, tokens};

/// Digits of the longest number that is shown: no secret fits into it.
const SHOWN_DIGITS: usize = 2;
/// Letters of a word in a key of Redis that is shown: it is as the name of a table.
const SHOWN_LETTERS: usize = 20;
/// Arguments of commands that are no values.
const OPTIONS: [&str; 8] = ["EX", "EXAT", "GET", "KEEPTTL", "NX", "PX", "PXAT", "XX"];

/// The values that are shown, besides short numbers.
pub(super) struct ShownValues {
    pub(super) item: String,
    pub(super) keys: Vec<String>,
}

impl ShownValues {
    pub(super) fn of(run: &Run) -> Self {
        let item = &run.item.id;
        Self {
            item: item.as_str().map_or_else(|| item.to_string(), str::to_owned),
            keys: run.outcomes.iter().map(|it| it.attempt.key.to_string()).collect(),
        }
    }

    fn contains(&self, value: &str) -> bool {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        let is_short = is_number && digits.len() <= SHOWN_DIGITS;
        is_short || self.item == value || self.keys.iter().any(|key| key == value)
    }

    /// Returns a statement in one line, without comments. Of a parameter that is not shown stays
    /// its number, of another value nothing.
    pub(super) fn of_statement(&self, statement: &Statement) -> String {
        let parts = tokens(&statement.text).into_iter().map(|token| match token {
            Token::Plain(text) => text.to_owned(),
            Token::Number(number) if self.contains(number) => number.to_owned(),
            Token::Number(_) => "…".to_owned(),
            Token::Text(text) if self.contains(text) => format!("'{text}'"),
            Token::Text(_) => "'…'".to_owned(),
            Token::Parameter(name) => {
                self.of_parameter(name, statement).unwrap_or_else(|| name.to_owned())
            }
            Token::Comment => " ".to_owned(),
        });
        let shown: String = parts.collect();
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the value of a parameter, if it is shown.
    fn of_parameter(&self, name: &str, statement: &Statement) -> Option<String> {
        let number: usize = name[1..].parse().ok()?;
        match statement.values.get(number.checked_sub(1)?)? {
            None => Some("null".to_owned()),
            Some(value) if !self.contains(value) => None,
            Some(value) if value.parse::<i64>().is_ok() => Some(value.clone()),
            Some(value) => Some(format!("'{value}'")),
        }
    }

    /// Returns a command to Redis with the names in its first key, and its options. Several values
    /// that are not shown are as one.
    pub(super) fn of_command(&self, command: &Statement) -> String {
        let key = key_place(command);
        let values = command.values.iter().enumerate().map(|(place, value)| {
            let value = value.as_deref().unwrap_or_default();
            let is_option = OPTIONS.iter().any(|option| value.eq_ignore_ascii_case(option));
            if Some(place) == key {
                self.of_key(value)
            } else if is_option || self.contains(value) {
                value.to_owned()
            } else {
                "…".to_owned()
            }
        });
        let mut words: Vec<String> = once(command.text.to_string()).chain(values).collect();
        words.dedup_by(|later, earlier| later == "…" && earlier == "…");
        words.join(" ")
    }

    fn of_key(&self, key: &str) -> String {
        let is_between = |letter: char| matches!(letter, ':' | '/' | '{' | '}');
        let parts = key.split_inclusive(is_between).map(|part| {
            let word = part.trim_end_matches(is_between);
            match self.is_name(word) {
                true => part.to_owned(),
                false => part.replacen(word, "…", 1),
            }
        });
        parts.collect()
    }

    /// Returns whether a word of a key has no more than letters besides what is shown.
    fn is_name(&self, word: &str) -> bool {
        let shown = once(&self.item).chain(&self.keys);
        let rest = shown.fold(word.to_owned(), |rest, value| rest.replace(value.as_str(), ""));
        let is_letter = |letter: char| letter.is_alphabetic() || matches!(letter, '_' | '-' | '.');
        let has_letters = rest.chars().all(is_letter) && rest.chars().count() <= SHOWN_LETTERS;
        has_letters || self.contains(word)
    }

    /// Returns what Redis answered a command. A value of a key may be a secret.
    pub(super) fn of_answer(&self, command: &Statement) -> String {
        if let Some(error) = &command.error {
            return format!("error: {}", self.of_error(error, command));
        }
        match command.tag.as_deref() {
            None => NO_ANSWER.to_owned(),
            Some("$-1" | "*-1" | "_") => "nil".to_owned(),
            Some(tag) if matches!(tag, "OK" | "QUEUED") || self.contains(tag) => tag.to_owned(),
            Some(_) => "…".to_owned(),
        }
    }

    /// Returns an error without longer numbers, and without the words of the statement's values, of
    /// which the server may quote a part. Other words stay, also those that a function raises.
    pub(super) fn of_error(&self, error: &str, statement: &Statement) -> String {
        let literals = tokens(&statement.text).into_iter().filter_map(|token| match token {
            Token::Number(value) | Token::Text(value) => Some(value),
            _ => None,
        });
        let bound = statement.values.iter().flatten().map(String::as_str);
        let masked = literals.chain(bound).filter(|value| !self.contains(value));
        let masked: BTreeSet<&str> =
            masked.flat_map(|value| value.split(|letter| !is_word(letter))).collect();

        let words = error.split_inclusive(|letter| !is_word(letter)).map(|part| {
            let word = part.trim_end_matches(|letter| !is_word(letter));
            let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
            let is_masked = is_number || masked.contains(word);
            match is_masked && !word.is_empty() && !self.contains(word) {
                true => part.replacen(word, "…", 1),
                false => part.to_owned(),
            }
        });
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> ShownValues {
        ShownValues { item: "item-1".into(), keys: vec!["key-1".into()] }
    }

    fn statement(text: &str, values: &[Option<&str>]) -> Statement {
        let values = values.iter().map(|value| value.map(str::to_owned)).collect();
        Statement { text: text.into(), values, ..Statement::default() }
    }

    #[test]
    fn statement_shows_only_item_key_and_short_numbers() {
        let values = [Some("item-1"), Some("secret"), Some("7"), Some("key-1"), None];
        for (text, expected) in [
            (
                "select a1\n  from goods where id = $1 and b = $2 and c = $3 and d = $4 and e = $5",
                "select a1 from goods where id = 'item-1' and b = $2 and c = 7 and d = 'key-1' \
                 and e = null",
            ),
            (
                "values ('item-1', 'key-1', 12, -1, 123, 12.50)",
                "values ('item-1', 'key-1', 12, -1, …, …)",
            ),
            (
                "values ('it''s secret', E'it\\'s secret', 'c:\\', 'd')",
                "values ('…', '…', '…', '…')",
            ),
            ("values ($$secret$$, $a$secret$a$, $1)", "values ('…', '…', 'item-1')"),
            ("-- name: secret\nselect \"a\"/* secret */from b -- secret", "select \"a\" from b"),
        ] {
            assert_eq!(shown().of_statement(&statement(text, &values)), expected);
        }
    }

    #[test]
    fn command_shows_the_names_in_its_key() {
        for (name, values, expected) in [
            ("SET", "lock:item-1 secret nx PX 30000", "SET lock:item-1 … nx PX …"),
            ("SET", "lock_item-1 secret EX 10", "SET lock_item-1 … EX 10"),
            ("EVALSHA", "1f2e 1 {shop}:lock secret 7", "EVALSHA … 1 {shop}:lock … 7"),
            ("GET", "session:a1b2:x@y.example", "GET session:…:…"),
            ("DEL", "cart:key-1 other", "DEL cart:key-1 …"),
        ] {
            let values: Vec<_> = values.split(' ').map(Some).collect();
            assert_eq!(shown().of_command(&statement(name, &values)), expected);
        }
        for (tag, expected) in
            [(Some("OK"), "OK"), (Some("$-1"), "nil"), (Some("1"), "1"), (Some("secret"), "…")]
        {
            let mut command = statement("GET", &[]);
            command.tag = tag.map(Into::into);
            assert_eq!(shown().of_answer(&command), expected);
        }
    }

    #[test]
    fn error_shows_no_part_of_a_value() {
        let values = [Some("{1,\"ann o'hara\"}"), Some("item-1"), None];
        let statement =
            statement("insert into a values ($1, 'x@y.example', $2, 'it''s', 12345)", &values);
        for (error, expected) in [
            (
                "duplicate key value violates unique constraint \"a_x_key\"",
                "duplicate key value violates unique constraint \"a_x_key\"",
            ),
            (
                "invalid input syntax for type integer: \"ann o'hara\"",
                "invalid input syntax for type integer: \"… …'…\"",
            ),
            ("not x@y.example, it's", "not …@….…, …'…"),
            ("12345 of 7 for item-1: value 98 or 987", "… of 7 for item-1: value 98 or …"),
        ] {
            assert_eq!(shown().of_error(error, &statement), expected);
        }
    }
}
