//! Tables as CSV, for spreadsheets: UTF-8 with a byte order mark (without it, Excel garbles
//! Chinese), a header line, CRLF, quotes as in RFC 4180. A text that a spreadsheet would take for a
//! formula begins with an apostrophe, also behind what separates cells in other countries; numbers
//! and times stay as they are.

use std::error::Error;

use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::http::header::CONTENT_DISPOSITION;

/// How a formula begins, also as Chinese keyboards write it.
const FORMULA_STARTS: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Behind these a spreadsheet may begin a cell: where the comma is that of decimals, `;` separates
/// them, and a quote within a cell means nothing.
const SEPARATORS: [char; 4] = [';', '\t', '\r', '\n'];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CsvCell {
    /// A text that a person may have typed.
    Text(String),
    /// A number or a time, written by the program.
    Plain(String),
    Empty,
}

impl CsvCell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn plain(value: impl ToString) -> Self {
        Self::Plain(value.to_string())
    }

    /// Returns an empty cell for `None`.
    pub fn maybe(value: Option<impl ToString>) -> Self {
        value.map_or(Self::Empty, Self::plain)
    }

    fn write(&self, line: &mut String) {
        let text = match self {
            Self::Text(text) => &defused(text),
            Self::Plain(text) => text,
            Self::Empty => "",
        };

        if text.contains([',', '"', '\r', '\n']) || text.trim() != text {
            line.extend(["\"", &text.replace('"', "\"\""), "\""]);
        } else {
            line.push_str(text);
        }
    }
}

fn defused(text: &str) -> String {
    let mut defused = String::with_capacity(text.len());
    let mut may_begin = true;
    for letter in text.chars() {
        if may_begin && FORMULA_STARTS.contains(&letter) {
            defused.push('\'');
        }
        may_begin = SEPARATORS.contains(&letter) || may_begin && [' ', '"'].contains(&letter);
        defused.push(letter);
    }
    defused
}

/// Returns the start of a file: the byte order mark and the header line, whose names are for
/// programs, in English in every language.
pub fn header(names: &str) -> String {
    format!("\u{feff}{names}\r\n")
}

pub fn line(cells: &[CsvCell]) -> String {
    let mut line = String::new();
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            line.push(',');
        }
        cell.write(&mut line);
    }
    line + "\r\n"
}

/// Responds with a file to download: a text, or a stream of lines.
pub fn download<B>(file_name: &str, body: B) -> HttpResponse
where
    B: MessageBody<Error: Into<Box<dyn Error>>> + 'static,
{
    HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8; header=present")
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{file_name}\"")))
        .body(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_by_spreadsheets() {
        let start = header("sku,name");
        assert_eq!(start.as_bytes(), b"\xef\xbb\xbfsku,name\r\n");

        for (cell, written) in [
            (CsvCell::text("铜锁"), "铜锁"),
            (CsvCell::text("a, b"), "\"a, b\""),
            (CsvCell::text("5\" lock"), "\"5\"\" lock\""),
            (CsvCell::text("two\nlines"), "\"two\nlines\""),
            (CsvCell::text(" kept "), "\" kept \""),
            // Text that would be calculated, and numbers that would not.
            (CsvCell::text("=1+1"), "'=1+1"),
            (CsvCell::text("=\"a\",1"), "\"'=\"\"a\"\",1\""),
            (CsvCell::text("+1"), "'+1"),
            (CsvCell::text("-1 left"), "'-1 left"),
            (CsvCell::text("@SUM(A1)"), "'@SUM(A1)"),
            (CsvCell::text("\t=1"), "'\t'=1"),
            (CsvCell::text("a;=1+1;"), "a;'=1+1;"),
            (CsvCell::text("a; \"@b\n-c"), "\"a; \"\"'@b\n'-c\""),
            (CsvCell::text("＝1"), "'＝1"),
            (CsvCell::text("a=1"), "a=1"),
            (CsvCell::plain(-3), "-3"),
            (CsvCell::maybe(None::<i64>), ""),
        ] {
            assert_eq!(line(&[cell.clone(), CsvCell::plain(7)]), format!("{written},7\r\n"));
        }
    }
}
