//! The form in which names are compared: one person's in any case, width and normal form.
//!
//! A user's name is stored in it. A student's nickname is stored as it was typed, and its folded
//! form beside it, which is unique. Postgres does not fold: in the locale C it knows ASCII alone.
//! Tests: `tests/it/names.rs`, `tests/pages/join.rs`.

use unicode_normalization::UnicodeNormalization as _;

pub(crate) const MAX_NAME_LENGTH: usize = 64;

/// Returns the form in which nicknames are compared: that of the PRECIS profile Nickname
/// (RFC 8266), without its classes of characters, which lack every newer emoji.
pub fn folded(nickname: &str) -> String {
    // Twice: the first finds the capitals among compatible characters, such as `Ａ`, and the second
    // composes what was not composed in upper case.
    let compatible: String = nickname.nfkc().collect();
    compatible.to_lowercase().nfkc().collect()
}

/// Returns the name of a user as it is stored, `alice` for `Alice`; `None` if no user can have it.
pub fn user_name(typed: &str) -> Option<String> {
    part_of_user_name(typed).filter(|name| (1..=MAX_NAME_LENGTH).contains(&name.len()))
}

/// Returns what can be a part of a user's name, in the form in which names are stored.
pub(crate) fn part_of_user_name(typed: &str) -> Option<String> {
    // Of the compatible characters only those of another width, as in the PRECIS profile
    // UsernameCaseMapped (RFC 8265): no user's name is typed with `ª` or `ſ`.
    let is_typed = |c: char| c.is_ascii() || matches!(c, '\u{ff01}'..='\u{ff5e}');
    let name = typed.chars().all(is_typed).then(|| folded(typed))?;

    let has_name_characters =
        name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'));
    has_name_characters.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_short_and_plain() {
        let longest = "A".repeat(MAX_NAME_LENGTH);
        for (typed, stored) in [
            ("a", "a"),
            ("lab-7", "lab-7"),
            ("Dora.the_2nd", "dora.the_2nd"),
            ("ＡＬＩＣＥ－１", "alice-1"),
            (&longest, &longest.to_lowercase()),
        ] {
            assert_eq!(user_name(typed).as_deref(), Some(stored), "{typed}");
        }

        let too_long = format!("{longest}a");
        for typed in
            ["", "dora smith", " dora", "dora@home", "dör", "ª", "\u{212a}", "ſ", "İ", &too_long]
        {
            assert_eq!(user_name(typed), None, "{typed}");
        }
        assert_eq!(part_of_user_name("").as_deref(), Some(""));
    }

    #[test]
    fn nicknames_fold_case_width_and_composition() {
        for (one, other) in [
            ("Mia", "mIA"),
            ("Émile", "e\u{301}mile"),
            ("ÖMER", "ömer"),
            ("JOSÉ", "jose\u{301}"),
            ("İpek", "i\u{307}pek"),
            ("ΝΊΚΟΣ", "Νίκος"),
            ("СОНЯ", "Соня"),
            ("Ｍｉａ", "mia"),
            ("𝐌ia", "mia"),
            ("ﾀﾛｳ", "タロウ"),
            ("ｶﾞｸ", "カ\u{3099}ク"),
            ("한", "\u{1112}\u{1161}\u{11ab}"),
            ("Nguyễn", "NGUYE\u{302}\u{303}N"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }

        for (one, other) in [
            ("Émile", "Emile"),
            ("Weiß", "Weiss"),
            ("小明", "小民"),
            ("タロウ", "たろう"),
            ("Соня", "Cоня"),
            ("🦊", "🐺"),
        ] {
            assert_ne!(folded(one), folded(other), "{one} {other}");
        }
    }

    /// Otherwise a stored form would not be found again.
    #[test]
    fn folded_form_is_final() {
        // No later character folds to another one.
        for c in '\0'..='\u{2fa1f}' {
            for name in [format!("{c}"), format!("a{c}\u{301}")] {
                let once = folded(&name);
                assert_eq!(folded(&once), once, "{name:?}");
            }
        }
    }
}
