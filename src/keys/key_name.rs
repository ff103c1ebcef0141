//! Names of keys as text: any bytes, on one line, reversibly.
//!
//! Guarantees that the text parses to the same bytes, and that no name can move the cursor of the
//! terminal that displays it.

use std::fmt::Write as _;

/// Formats a name: printable characters unchanged, a backslash as `\\`, all else as `\n`, `\r`,
/// `\t` or `\xNN`, byte by byte.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let bytes = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\'' | '"' => text.push(letter),
                // A longer escape: the character is invisible, or changes its neighbours.
                _ if letter.escape_debug().len() > 1 => {
                    bytes(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => text.push(letter),
            }
        }
        bytes(&mut text, chunk.invalid());
    }
    text
}

/// Parses a name that [`escape`] formatted. Fails if a backslash does not begin a known escape.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            name.push(*first);
            continue;
        }
        let (byte, length) = match rest {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'x', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 3),
                _ => return Err(escape_error(text)),
            },
            _ => return Err(escape_error(text)),
        };
        name.push(byte);
        rest = &rest[length..];
    }
    Ok(name)
}

fn escape_error(text: &str) -> String {
    format!(
        "in “{text}” a backslash begins nothing that is known; a backslash of the key itself is \
         written \\\\, any other byte \\xNN"
    )
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Serializes a name as text: JSON strings cannot hold arbitrary bytes.
pub(super) fn serialize<S: serde::Serializer>(name: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&escape(name))
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn key_name_round_trips_on_one_line() {
        let mut names: Vec<Vec<u8>> = (0..=255).map(|byte| vec![b'a', byte, b'b']).collect();
        names.push((0..=255).collect());
        for text in ["", "tea", "a\\b", "\\x41", "ключ", "\u{202e}txt", "e\u{301}", "🫖", "a b'\""]
        {
            names.push(text.as_bytes().to_vec());
        }
        for name in names {
            let text = escape(&name);
            assert_eq!(unescape(&text).unwrap(), name, "{text}");
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
        assert_eq!(escape("ключ:🫖".as_bytes()), "ключ:🫖");
        assert_eq!(escape(b"a\x00\xff\n\x1b[2J"), "a\\x00\\xff\\n\\x1b[2J");
    }

    #[test]
    fn invalid_escape_is_rejected() {
        for text in ["\\", "a\\q", "\\x4", "\\xg0", "\\x"] {
            assert!(unescape(text).unwrap_err().contains("\\\\"), "{text}");
        }
    }
}
