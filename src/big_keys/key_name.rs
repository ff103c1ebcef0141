//! Names of keys as text: any bytes, on one line, reversibly.
//!
//! Guarantees that the text parses to the same bytes, and that no name can move the cursor of the
//! terminal that displays it.

/// Formats a name: printable characters unchanged, a backslash as `\\`, all else as `\n`, `\r`,
/// `\t` or `\xNN`, byte by byte.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            // A longer escape: the character is invisible, or changes its neighbours.
            if letter.escape_debug().len() > 1 && !matches!(letter, '\'' | '"') {
                text += &letter.encode_utf8(&mut [0; 4]).as_bytes().escape_ascii().to_string();
            } else {
                text.push(letter);
            }
        }
        text += &chunk.invalid().escape_ascii().to_string();
    }
    text
}

/// Parses a name that [`escape`] formatted. Fails if a backslash does not begin a known escape.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut name = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let hex = |digit| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    while let Some(byte) = bytes.next() {
        let unescaped = match byte {
            b'\\' => match bytes.next() {
                Some(b'\\') => Some(b'\\'),
                Some(b'n') => Some(b'\n'),
                Some(b'r') => Some(b'\r'),
                Some(b't') => Some(b'\t'),
                Some(b'x') => bytes
                    .next()
                    .and_then(hex)
                    .zip(bytes.next().and_then(hex))
                    .map(|(high, low)| high * 16 + low),
                _ => None,
            },
            byte => Some(byte),
        };
        name.push(unescaped.ok_or_else(|| {
            format!(
                "“{text}” has a backslash that begins no known escape; a backslash of the key \
                 itself is written \\\\, any other byte \\xNN"
            )
        })?);
    }
    Ok(name)
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
