//! What is read from the text of a statement. Its words are looked at, not its grammar: a crate
//! that parses SQL would make the first build longer, and knows no statement that it can't parse.

/// The access of a statement to a table; the stronger one last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Read,
    Write,
}

/// A part of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A word, a name in quotes, or another character.
    Plain(&'a str),
    Number(&'a str),
    /// A text, as it stands between its quotes.
    Text(&'a str),
    /// `$1`.
    Parameter(&'a str),
    Comment,
}

/// Cuts a statement into its parts.
pub(super) fn tokens(mut sql: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    while let Some(first) = sql.chars().next() {
        let (token, length) = first_token(sql, first);
        tokens.push(token);
        sql = &sql[length..];
    }
    tokens
}

/// Returns the first part, and its length. One without an end is all that is left.
fn first_token(sql: &str, first: char) -> (Token<'_>, usize) {
    let end_of = |from: usize, is_part: fn(char) -> bool| {
        let end = sql[from..].find(|letter: char| !is_part(letter));
        end.map_or(sql.len(), |at| from + at)
    };
    let until = |from: usize, end: &str| match sql[from..].find(end) {
        Some(at) => (&sql[from..from + at], from + at + end.len()),
        None => (&sql[from..], sql.len()),
    };

    match first {
        '-' if sql.starts_with("--") => (Token::Comment, until(2, "\n").1),
        '/' if sql.starts_with("/*") => (Token::Comment, until(2, "*/").1),
        '\'' => first_text(sql, 1, false),
        'e' | 'E' if sql[1..].starts_with('\'') => first_text(sql, 2, true),
        '"' => {
            let (_, length) = until(1, "\"");
            (Token::Plain(&sql[..length]), length)
        }
        '$' => {
            let end = end_of(1, is_word);
            let is_number = sql[1..].starts_with(|letter: char| letter.is_ascii_digit());
            if sql[end..].starts_with('$') && !is_number {
                let (text, length) = until(end + 1, &sql[..=end]);
                return (Token::Text(text), length);
            }
            (Token::Parameter(&sql[..end]), end)
        }
        '0'..='9' => {
            let end = end_of(0, |letter| is_word(letter) || letter == '.');
            (Token::Number(&sql[..end]), end)
        }
        _ if is_word(first) => {
            let end = end_of(0, |letter| is_word(letter) || letter == '$');
            (Token::Plain(&sql[..end]), end)
        }
        _ => (Token::Plain(&sql[..first.len_utf8()]), first.len_utf8()),
    }
}

/// Returns the text that begins after `begin` bytes, and where the rest begins. A doubled quote
/// does not end it, nor one after a backslash, if it has escapes.
fn first_text(sql: &str, begin: usize, has_escapes: bool) -> (Token<'_>, usize) {
    let text = &sql[begin..];
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let is_quote = letter == '\'';
        let is_doubled = is_quote && letters.peek().is_some_and(|(_, next)| *next == '\'');
        if is_quote && !is_doubled {
            return (Token::Text(&text[..at]), begin + at + 1);
        }
        if is_doubled || (has_escapes && letter == '\\') {
            letters.next();
        }
    }
    (Token::Text(text), sql.len())
}

/// Returns a statement without its values, comments and the lengths of its lists: what is the same
/// each time that it is sent.
pub(super) fn fingerprint(sql: &str) -> String {
    let parts = tokens(sql).into_iter().map(|token| match token {
        Token::Plain(text) => text.to_lowercase(),
        Token::Comment => " ".to_owned(),
        Token::Number(_) | Token::Text(_) | Token::Parameter(_) => "?".to_owned(),
    });
    let mut text = parts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ");
    for list in ["?, ?", "?,?"] {
        while text.contains(list) {
            text = text.replace(list, "?");
        }
    }
    text
}

/// Returns whether another request may come between statements and those before them: not, if they
/// are only about their session, or the server.
pub(super) fn is_scheduled(fingerprint: &str) -> bool {
    fingerprint.split(';').any(|statement| {
        let statement = statement.trim();
        let mut words = statement.split([' ', '(']);
        match words.next().unwrap_or_default() {
            "" | "begin" | "start" | "set" | "show" | "reset" | "discard" | "deallocate"
            | "savepoint" | "release" | "listen" | "unlisten" | "close" => false,
            "rollback" => words.next() != Some("to"),
            "select" => {
                let is_catalog = ["pg_catalog.pg_", "information_schema."];
                statement != "select ?" && !is_catalog.iter().any(|name| statement.contains(name))
            }
            _ => true,
        }
    })
}

/// Returns whether a text without values does nothing but end a transaction.
pub(super) fn ends_transaction(fingerprint: &str) -> bool {
    let mut statements = fingerprint.split(';').map(str::trim).filter(|it| !it.is_empty());
    statements.all(|statement| {
        let first = statement.split(' ').next().unwrap_or_default();
        matches!(first, "commit" | "end" | "rollback" | "abort")
    })
}

pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns a text in lower case without its values and comments.
fn plain(sql: &str) -> String {
    let plain = tokens(sql).into_iter().map(|token| match token {
        Token::Plain(plain) => plain,
        _ => " ",
    });
    plain.collect::<String>().to_lowercase()
}

/// Returns whether a text ends a transaction, so that what it has written stays.
pub(super) fn is_commit(sql: &str) -> bool {
    let text = plain(sql);
    let mut first_words = text.split(';').filter_map(|part| part.split_whitespace().next());
    first_words.any(|word| matches!(word, "commit" | "end"))
}

/// Returns what a statement does with one of the tables. Its words are looked at, not its grammar:
/// what a function or a trigger does is not seen.
pub(super) fn access(sql: &str, tables: &[String]) -> Option<Access> {
    let text = plain(sql).replace('"', "");
    let words: Vec<&str> = text
        .split(|letter: char| !(letter.is_alphanumeric() || "_.".contains(letter)))
        .filter(|word| !word.is_empty() && *word != "only")
        .collect();

    let mut found = None;
    for (place, word) in words.iter().enumerate() {
        let name = word.rsplit('.').next().unwrap_or(word);
        if !tables.iter().any(|table| table == name) {
            continue;
        }
        let before = |distance: usize| place.checked_sub(distance).map(|place| words[place]);
        let is_write = matches!(
            (before(2), before(1)),
            (_, Some("update"))
                | (Some("insert" | "merge"), Some("into"))
                | (Some("delete"), Some("from"))
        );
        if is_write {
            // A statement may lock a row of a table for an update, too.
            return Some(Access::Write);
        }
        found = Some(Access::Read);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_cut_into_its_parts() {
        use Token::{Number, Parameter, Text};
        for (sql, expected) in [
            ("select a1 + 12.5, $12 from \"it's 7\"", vec![Number("12.5"), Parameter("$12")]),
            ("in ('', 'it''s', '''')", vec![Text(""), Text("it''s"), Text("''")]),
            // A backslash is one of the text, unless that has escapes.
            (r"in ('c:\', 'd')", vec![Text(r"c:\"), Text("d")]),
            (r"in (e'\'c''\\', 'd')", vec![Text(r"\'c''\\"), Text("d")]),
            ("do $$it's$$, $a_1$ $1 $$ $a_1$", vec![Text("it's"), Text(" $1 $$ ")]),
            ("a -- it's 12\n + /* 'b' -- */ 34", vec![Number("34")]),
            ("'open", vec![Text("open")]),
            ("$a$open", vec![Text("open")]),
        ] {
            let mut values = tokens(sql);
            values.retain(|token| !matches!(token, Token::Plain(_) | Token::Comment));
            assert_eq!(values, expected, "{sql}");
        }
    }

    #[test]
    fn fingerprint_is_the_same_for_all_values() {
        assert_eq!(
            fingerprint("SELECT \"a\"  from goods -- x\n where id in ($1, $2,3) and b = 'it''s'"),
            "select \"a\" from goods where id in (?) and b = ?"
        );
        for sql in
            ["", "select 1;", "begin isolation level serializable", "rollback to a", "show a"]
        {
            assert!(!is_scheduled(&fingerprint(sql)), "{sql}");
        }
        let write = "begin; update goods set stock = 1";
        for sql in ["select f(1)", "commit", "rollback", write, "update pg_catalog.pg_a set b = 1"]
        {
            assert!(is_scheduled(&fingerprint(sql)), "{sql}");
        }
    }

    #[test]
    fn commit_is_known_by_its_first_word() {
        for commit in ["COMMIT", "/* of 'x' */ commit;", "select 1; end transaction", "end"] {
            assert!(is_commit(commit), "{commit}");
        }
        for other in ["select case when a then b end", "rollback -- commit", "select '; commit'"] {
            assert!(!is_commit(other), "{other}");
        }
    }

    #[test]
    fn access_is_read_from_the_words() {
        let of = |text: &str| access(text, &["goods".to_owned()]);
        for read in [
            "select stock from goods where sku = $1 for update",
            "SELECT s.\"stock\" FROM \"public\".\"goods\" s",
            "select * from orders join goods on true",
        ] {
            assert_eq!(of(read), Some(Access::Read), "{read}");
        }
        for write in [
            "update goods set stock = stock - 1",
            "UPDATE ONLY \"shop\".\"goods\" SET stock = 0",
            "with gone as (select 1 from goods) delete from goods",
            "insert into goods (id) values (1)",
        ] {
            assert_eq!(of(write), Some(Access::Write), "{write}");
        }
        for neither in [
            "select 1 from goodsold",
            "insert into words values ('the goods', $$goods$$, $goods)",
            "select 1 /* goods */ -- from goods",
        ] {
            assert_eq!(of(neither), None, "{neither}");
        }
        assert_eq!(of("-- name: sell\nupdate goods set stock = 0"), Some(Access::Write));
        assert_eq!(of("update carts set goods = 1"), Some(Access::Read));
    }
}
