//! A small drawing for each lesson: who does what, one after the other.
//!
//! A sketch has up to three rows, separated by `/`. A row has a name and its cells: `r10` and `w9`
//! read and write a number, a word in small letters is translated, `?` is what the lesson asks
//! about, and `.` is empty; anything else stands as it is, `_` for a space. `[` before a cell is
//! where the row gets the lock, `]` after it where it releases it, `)` where its lease ends, and
//! `*3` makes a cell three columns wide.

use holdfast_base::messages::Language;

use super::Lesson;

fn source(lesson: &str) -> Option<&'static str> {
    Some(match lesson {
        "lost-update" => "A r10 . w9 . / B . r? . w?",
        "one-replica" => "1 [r10 w9] . . / 1 waits*2 [r9 w8] / 2 . ? ? .",
        "database" => "A [r10 w9 works commit] / B . . waits r?",
        "check-then-decrement" => "A r1 . . −1 ? / B . r1 −1 . .",
        "wrong-key" => "A [order_1 r10 w9] . / B . [order_2 r? w?]",
        "dead-holder" => "A [SETNX works killed . . / B . . . SETNX ?",
        "let-it-expire" => "A [order .*3) . / B . waits*3 [order",
        "wrong-delete" => "A [works works) works DEL . / B . waits [works works ?",
        "check-then-delete" => "A [works GET . DEL / B . waits ? ?",
        "outlived" => "A [r10 works) works w? / B . waits [r10 works",
        "watchdog" => "A [r10 works works w9] / ↻ . renews renews .",
        "fence" => "A [#1 r10) . . w? / B . . [#2 w9] .",
        "failover" => "1 [A killed . . / 2 . . promoted ?",
        "redlock" => "A ✓ ✓ ✓ . . / B . . . ✓ ✓",
        "waiting" => "A [order works] . . . / B . retry 50_ms*2 retry",
        "reentrant" => "f [SET_NX works . . / g . . SET_NX ?",
        "two-items" => "A [tea works coffee ? / B [coffee works tea ?",
        "early-release" => "A [r10 w9] . commit / B . . [r? .",
        "hot-item" => "A [r10 w9 commit] . / B waits*3 ? / C waits*3 ?",
        "units" => "A [r1 works . killed] . / B . . ? . . / C . . . . [r1",
        "pre-deduct" => "A DECRBY killed . . / B . . DECRBY commit / C . . . ?",
        "double-submit" => "1 order commit killed . . / 2 . . . order ?",
        "machine-gun" => "A [K1] . [K2] . [K3] .",
        "unpaid" => "1 order +1 killed . . / 2 . . . order ?",
        "price-changed" => "A 1.00 order . [?] / $ 1.00 . 2.00 .",
        "queue" => "1 order order killed . . / 2 . . . . ?",
        "run-once" => "1 12:00 [works] . . . / 2 . . . 12:00 ?",
        "big-key" => "A DEL ?*2 / B . GET ?",
        "pipeline" => "1 SET OK SET OK / 2 SET SET OK OK",
        "no-rollback" => "A MULTI SET LPUSH SET EXEC",
        _ => return None,
    })
}

#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub cells: Vec<SketchCell>,
}

#[derive(Debug)]
pub struct SketchCell {
    pub text: String,
    pub columns: usize,
    /// Names of its style: what happens, and how far the lock reaches.
    pub class: String,
}

impl Lesson {
    /// Returns the rows of the sketch; empty for a lesson without one.
    pub fn sketch(&self, language: Language) -> Vec<Row> {
        let rows = source(self.name).unwrap_or_default().split('/');
        rows.filter_map(|row| parse_row(row, language)).collect()
    }
}

fn parse_row(row: &'static str, language: Language) -> Option<Row> {
    let mut parts = row.split_whitespace();
    let name = parts.next()?;
    let mut is_locked = false;
    let cells = parts.map(|part| parse_cell(part, &mut is_locked, language)).collect();
    Some(Row { name, cells })
}

fn parse_cell(part: &str, is_locked: &mut bool, language: Language) -> SketchCell {
    let mut lock = Vec::new();
    let part = match part.strip_prefix('[') {
        Some(rest) => {
            *is_locked = true;
            lock.push("begin");
            rest
        }
        None => part,
    };
    if *is_locked {
        lock.push("locked");
    }

    let released = part.strip_suffix(']').map(|rest| (rest, "released"));
    let part = match released.or(part.strip_suffix(')').map(|rest| (rest, "expired"))) {
        Some((rest, end)) => {
            *is_locked = false;
            lock.push(end);
            rest
        }
        None => part,
    };

    let (part, columns) = part.split_once('*').unwrap_or((part, "1"));
    let (kind, text) = label(part, language);
    lock.insert(0, kind);
    SketchCell { text, columns: columns.parse().unwrap_or(1), class: lock.join(" ") }
}

/// Returns the kind of a cell, and its text in a language.
fn label(part: &str, language: Language) -> (&'static str, String) {
    let is_number = |number: &str| number == "?" || number.parse::<u32>().is_ok();
    let of_number = |id: &str, number: &str| {
        let number = [("number", number.to_owned().into())];
        language.text_with(&format!("sketch-{id}"), &number)
    };

    if let Some(number) = part.strip_prefix('r').filter(|number| is_number(number)) {
        return ("read", of_number("read", number));
    }
    if let Some(number) = part.strip_prefix('w').filter(|number| is_number(number)) {
        return ("write", of_number("write", number));
    }
    if part == "." {
        return ("empty", String::new());
    }
    if part == "?" {
        return ("unknown", part.to_owned());
    }
    if part.chars().all(|c| c.is_ascii_lowercase()) {
        return (
            if part == "waits" { "wait" } else { "word" },
            language.text(&format!("sketch-{part}")),
        );
    }
    // The two orders and the pause have a number or a unit behind their word.
    match part.split_once('_') {
        Some(("order", number)) => ("word", of_number("order-of", number)),
        _ => ("command", part.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::LESSONS;
    use super::*;

    const MAX_ROWS: usize = 3;
    const MAX_COLUMNS: usize = 8;

    #[test]
    fn every_lesson_has_a_sketch_that_fits() {
        for language in Language::ALL {
            for lesson in LESSONS {
                let rows = lesson.sketch(language);
                assert!((1..=MAX_ROWS).contains(&rows.len()), "{}", lesson.name);
                let columns = |row: &Row| row.cells.iter().map(|cell| cell.columns).sum::<usize>();
                let width = columns(&rows[0]);
                assert!((1..=MAX_COLUMNS).contains(&width), "{}: {width}", lesson.name);
                for row in &rows {
                    assert_eq!(columns(row), width, "{}: {}", lesson.name, row.name);
                    for cell in &row.cells {
                        let text = &cell.text;
                        assert!(!text.contains("localization"), "{}: {text}", lesson.name);
                        assert!(text.chars().count() <= 8, "{}: {text}", lesson.name);
                    }
                }
            }
        }
    }

    #[test]
    fn lock_reaches_from_bracket_to_bracket() {
        let row = parse_row("A [r10 works) . w9 [GET]", Language::English).unwrap();
        let cells: Vec<(&str, &str)> =
            row.cells.iter().map(|cell| (&*cell.class, &*cell.text)).collect();
        let expected = [
            ("read begin locked", "read 10"),
            ("word locked expired", "works"),
            ("empty", ""),
            ("write", "write 9"),
            ("command begin locked released", "GET"),
        ];
        assert_eq!(cells, expected);
    }
}
