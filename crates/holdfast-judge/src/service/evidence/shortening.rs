//! Long statements, made short so that their tables and their condition stay.

use crate::service::report::REDIS;

const SELECT: &str = "select ";

/// Leaves out the columns of a `select`, if they have more characters: an ORM names dozens, and
/// what matters is behind them.
pub(super) fn without_columns(sql: &str, chars: usize) -> String {
    match from_of(sql) {
        Some(from) if from > chars => format!("{}…{}", &sql[..SELECT.len()], &sql[from..]),
        _ => sql.to_owned(),
    }
}

/// Names a statement in two words: what it does, and its table; of a command to Redis, its name.
pub(super) fn name_of(sql: &str) -> String {
    if let Some(command) = sql.strip_prefix(REDIS) {
        let name = command.split(' ').next().unwrap_or_default();
        return format!("{REDIS}{name}");
    }
    // The first `from` is then its own.
    let sql = without_columns(sql, 0).replace('"', "");
    let words = || sql.split([' ', '(', ',', ';']).filter(|word| !word.is_empty());
    let is_before_table = |word: &str| {
        let before = ["from", "into", "update"];
        before.iter().any(|other| word.eq_ignore_ascii_case(other))
    };
    let verb = words().next().unwrap_or_default().to_uppercase();
    match words().skip_while(|word| !is_before_table(word)).nth(1) {
        Some(table) => format!("{verb} {table}"),
        None => verb,
    }
}

/// Returns where the `from` of a `select` begins; not that of a subquery, or of a function.
fn from_of(sql: &str) -> Option<usize> {
    let lower = sql.to_ascii_lowercase();
    if !lower.starts_with(SELECT) {
        return None;
    }
    let count = |text: &str, bracket: char| text.matches(bracket).count();
    let is_outside = |at: &usize| count(&lower[..*at], '(') == count(&lower[..*at], ')');
    lower.match_indices(" from ").map(|(at, _)| at).find(is_outside)
}

/// Shortens a statement to about `chars` characters: leaves out the columns of a `select`, and if
/// that is not enough, words in the middle. Its table is at the begin, its condition at the end.
pub(in crate::service) fn shortened(sql: &str, chars: usize) -> String {
    if sql.chars().count() <= chars {
        return sql.to_owned();
    }
    let sql = without_columns(sql, 0);
    if sql.chars().count() <= chars {
        return sql;
    }

    let words: Vec<&str> = sql.split(' ').collect();
    let head = fitting(words.iter().copied(), chars / 2);
    let tail = fitting(words.iter().copied().rev(), chars / 2);
    [&words[..head], &["…"], &words[words.len() - tail..]].concat().join(" ")
}

/// Returns how many of the words fit into `chars` characters.
fn fitting<'a>(words: impl Iterator<Item = &'a str>, chars: usize) -> usize {
    let mut used = 0;
    let is_fitting = |word: &&str| {
        used += word.chars().count() + 1;
        used <= chars
    };
    words.take_while(is_fitting).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_condition_stay_in_whole_words() {
        let long = "SELECT (select max(x) from y), \"a\".\"id\", \"a\".\"name\" FROM \"goods\" \
                    JOIN \"a\" ON true WHERE \"a\".\"id\" = 7";
        let short = "SELECT … FROM \"goods\" JOIN \"a\" ON true WHERE \"a\".\"id\" = 7";
        assert_eq!(shortened(long, 200), long);
        assert_eq!(without_columns(long, 20), short);
        assert_eq!(shortened(long, 60), short);
        assert_eq!(shortened(long, 46), "SELECT … FROM \"goods\" … WHERE \"a\".\"id\" = 7");

        let other = "update goods set stock = (select 1 from stocks) where id = 7";
        assert_eq!(without_columns(other, 0), other);
        assert_eq!(shortened(other, 30), "update goods … where id = 7");
    }

    #[test]
    fn name_has_the_table_of_the_statement() {
        for (sql, name) in [
            ("BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN"),
            (
                "select (select 1 from a), b FROM \"shop\".\"goods\" where c = 7",
                "SELECT shop.goods",
            ),
            ("insert into sales(id) select 1 from a", "INSERT sales"),
            ("update goods set stock = 1", "UPDATE goods"),
            ("commit;", "COMMIT"),
            ("redis SET lock:tea … NX", "redis SET"),
        ] {
            assert_eq!(name_of(sql), name);
        }
    }
}
