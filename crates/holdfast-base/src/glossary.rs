//! The words of the field with their definitions, and where a text uses them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::messages::{Language, Message};

/// An id, the lesson that shows the word, and the pinyin by which Chinese sorts it: empty for a
/// word in Latin letters.
type Word = (&'static str, &'static str, &'static str);

/// In teaching order. The texts of each are in `locales/*/glossary.ftl`.
const WORDS: [Word; 39] = [
    ("lock", "dead-holder", "suo"),
    ("mutex", "one-replica", "hu chi suo"),
    ("holder", "dead-holder", "chi suo zhe"),
    ("owner", "check-then-delete", "chi suo zhe biao shi"),
    ("lease", "outlived", "zu yue"),
    ("ttl", "let-it-expire", ""),
    ("setnx", "dead-holder", ""),
    ("watchdog", "watchdog", "kan men gou"),
    ("get-del", "check-then-delete", ""),
    ("fencing-token", "fence", "zha lan ling pai"),
    ("replica", "one-replica", "fu ben"),
    ("transaction", "early-release", "shi wu"),
    ("row-version", "fence", "hang de ban ben"),
    ("compare-and-set", "unpaid", "bi jiao bing she zhi"),
    ("ledger", "lost-update", "zhang ben"),
    ("lost-update", "lost-update", "diu shi geng xin"),
    ("oversell", "lost-update", "chao mai"),
    ("undersell", "pre-deduct", "shao mai"),
    ("fork", "lost-update", "fen cha"),
    ("chain-break", "lost-update", "duan lian"),
    ("drift", "lost-update", "pian cha"),
    ("reconciliation", "pre-deduct", "dui zhang"),
    ("idempotency-key", "double-submit", "mi deng jian"),
    ("status-codes", "double-submit", ""),
    ("batch", "hot-item", "pi chu li"),
    ("deadlock", "two-items", "si suo"),
    ("majority", "redlock", "duo shu jie dian"),
    ("redlock", "redlock", ""),
    ("pipeline", "pipeline", "guan dao"),
    ("sorted-set", "unpaid", "you xu ji he"),
    ("flush", "pre-deduct", "qing kong"),
    ("p99", "waiting", ""),
    ("redis", "dead-holder", ""),
    ("postgres", "database", ""),
    ("lua-script", "check-then-delete", ""),
    ("uuid", "outlived", ""),
    ("row-lock", "database", "hang suo"),
    ("atomic", "database", "yuan zi"),
    ("batched", "hot-item", ""),
];

#[derive(Debug)]
pub struct GlossaryEntry {
    pub id: &'static str,
    pub word: String,
    pub definition: String,
    /// Name of the lesson that shows it.
    pub lesson: &'static str,
}

/// Returns all words in alphabetical order: from A to Z, and in Chinese by pinyin.
pub fn entries(language: Language) -> Vec<GlossaryEntry> {
    let word_of = |id: &str| language.text(&format!("glossary-{id}-word"));
    let mut words = WORDS;
    words.sort_by_cached_key(|&(id, _, pinyin)| match language {
        Language::Chinese if !pinyin.is_empty() => pinyin.to_owned(),
        _ => word_of(id).to_lowercase(),
    });

    let entry = |(id, lesson, _): Word| GlossaryEntry {
        id,
        word: word_of(id),
        definition: language.text(&format!("glossary-{id}")),
        lesson,
    };
    words.map(entry).into()
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub is_code: bool,
    /// Id of the entry that explains it.
    pub term: Option<&'static str>,
    /// Of a term, the punctuation beside it, which stays on its line: at the edge of a control,
    /// browsers break a line even before a comma.
    pub before: &'a str,
    pub after: &'a str,
}

impl<'a> Piece<'a> {
    fn new(text: &'a str, is_code: bool, term: Option<&'static str>) -> Self {
        Self { text, is_code, term, before: "", after: "" }
    }

    fn is_plain(&self) -> bool {
        !self.is_code && self.term.is_none()
    }
}

/// Splits a text, in which code stands between backticks, at the words of the glossary. Each entry
/// is marked once, where the text uses it first.
pub fn mark(text: &str, language: Language) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut marked = BTreeSet::new();
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 1 {
            let form = forms(language).iter().find(|form| form.is_code && form.text == part);
            let term = form.map(|form| form.id).filter(|id| marked.insert(*id));
            pieces.push(Piece::new(part, true, term));
        } else {
            mark_words(part, language, &mut marked, &mut pieces);
        }
    }
    join_punctuation(&mut pieces);
    pieces
}

/// Moves the punctuation beside each term from the texts into its piece.
fn join_punctuation(pieces: &mut Vec<Piece<'_>>) {
    const OPENING: [char; 3] = ['（', '“', '('];
    let is_closing = |c: char| !c.is_alphanumeric() && !c.is_whitespace() && !OPENING.contains(&c);

    for place in 1..pieces.len() {
        let [left, right] = &mut pieces[place - 1..=place] else { continue };
        if left.is_plain() && right.term.is_some() {
            let rest = left.text.trim_end_matches(OPENING);
            (left.text, right.before) = left.text.split_at(rest.len());
        } else if left.term.is_some() && right.is_plain() {
            let rest = right.text.trim_start_matches(is_closing);
            (left.after, right.text) = right.text.split_at(right.text.len() - rest.len());
        }
    }
    pieces.retain(|piece| !piece.text.is_empty());
}

fn mark_words<'a>(
    text: &'a str,
    language: Language,
    marked: &mut BTreeSet<&'static str>,
    pieces: &mut Vec<Piece<'a>>,
) {
    let piece = |text, term| Piece::new(text, false, term);
    let lower_case = text.to_ascii_lowercase();
    let mut at = 0;
    while let Some((start, form)) = first_form(&lower_case, at, language) {
        let end = start + form.text.len();
        if marked.insert(form.id) {
            pieces.push(piece(&text[at..start], None));
            pieces.push(piece(&text[start..end], Some(form.id)));
        } else {
            pieces.push(piece(&text[at..end], None));
        }
        at = end;
    }
    pieces.push(piece(&text[at..], None));
}

/// Finds the earliest form from `at`; of two that begin there, the longer one.
fn first_form(text: &str, at: usize, language: Language) -> Option<(usize, &'static Form)> {
    let found = forms(language).iter().filter(|form| !form.is_code).filter_map(|form| {
        let matches = text[at..].match_indices(&form.text).map(|(start, _)| at + start);
        let mut whole = matches.filter(|start| is_whole(text, *start, start + form.text.len()));
        Some((whole.next()?, form))
    });
    found.min_by_key(|(start, form)| (*start, usize::MAX - form.text.len()))
}

/// Returns whether Latin letters do not go on beyond either end: `fence`, but not in `defence`.
/// Chinese has no spaces, so a word of it is whole anywhere.
fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let is_latin = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let joins = |left: &str, right: &str| {
        is_latin(left.chars().next_back()) && is_latin(right.chars().next())
    };
    let (word, rest) = text[start..].split_at(end - start);
    !joins(&text[..start], word) && !joins(word, rest)
}

#[derive(Debug)]
struct Form {
    id: &'static str,
    /// In lower case, except code.
    text: String,
    is_code: bool,
}

fn forms(language: Language) -> &'static [Form] {
    static ENGLISH: LazyLock<Vec<Form>> = LazyLock::new(|| read_forms(Language::English));
    static CHINESE: LazyLock<Vec<Form>> = LazyLock::new(|| read_forms(Language::Chinese));
    match language {
        Language::English => &ENGLISH,
        Language::Chinese => &CHINESE,
    }
}

fn read_forms(language: Language) -> Vec<Form> {
    let of_entry = |id: &'static str| {
        let all = Message::new(&format!("glossary-{id}-forms")).format(language);
        let all = all.unwrap_or_else(|| language.text(&format!("glossary-{id}-word")));
        let form = |text: &str| match text.strip_prefix('`') {
            Some(code) => Form { id, text: code.replace('`', ""), is_code: true },
            None => Form { id, text: text.to_ascii_lowercase(), is_code: false },
        };
        all.split('|').map(form).collect::<Vec<_>>()
    };
    WORDS.into_iter().flat_map(|(id, ..)| of_entry(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &'static str, language: Language) -> Vec<(&'static str, &'static str)> {
        let pieces = mark(text, language).into_iter();
        pieces.filter_map(|piece| Some((piece.text, piece.term?))).collect()
    }

    #[test]
    fn words_are_found_whole_once_and_as_long_as_possible() {
        for (text, expected) in [
            (
                "A mutex, defences and a deadlock.",
                vec![("mutex", "mutex"), ("deadlock", "deadlock")],
            ),
            ("Fencing tokens, a fence", vec![("Fencing tokens", "fencing-token")]),
            ("A’s lease; B’s leases", vec![("lease", "lease")]),
            ("`GET`, get, `DEL key`, `DEL`", vec![("GET", "get-del")]),
            ("blocks a clock, p990", vec![]),
        ] {
            assert_eq!(terms(text, Language::English), expected, "{text}");
        }
        for (text, expected) in [
            ("持锁者的锁", vec![("持锁者", "holder"), ("锁", "lock")]),
            ("持锁者标识和互斥锁", vec![("持锁者标识", "owner"), ("互斥锁", "mutex")]),
            ("一个TTL，两个 TTL", vec![("TTL", "ttl")]),
        ] {
            assert_eq!(terms(text, Language::Chinese), expected, "{text}");
        }
    }

    #[test]
    fn pieces_are_the_whole_text() {
        let text = "The lock: `SET lock 1`, then `GET`. A lock, a lease.";
        let pieces = mark(text, Language::English);
        let joined: String =
            pieces.iter().flat_map(|piece| [piece.before, piece.text, piece.after]).collect();
        assert_eq!(joined, text.replace('`', ""));
        let code: Vec<&str> = pieces.iter().filter(|it| it.is_code).map(|it| it.text).collect();
        assert_eq!(code, ["SET lock 1", "GET"]);
    }

    #[test]
    fn punctuation_stays_with_its_word() {
        let pieces = |text: &str, language: Language| -> Vec<String> {
            let joined = |it: Piece<'_>| [it.before, it.text, it.after].concat();
            mark(text, language).into_iter().map(joined).collect()
        };
        let english = pieces("A lock, (`GET`). A lock.", Language::English);
        assert_eq!(english, ["A ", "lock,", " ", "(GET).", " A lock", "."]);
        let chinese = pieces("锁、锁“租约”（账本）到", Language::Chinese);
        assert_eq!(chinese, ["锁、", "锁", "“租约”", "（账本）", "到"]);
    }

    #[test]
    fn words_are_in_alphabetical_order() {
        let words = |language| entries(language).into_iter().map(|entry| entry.word);
        assert!(words(Language::English).is_sorted_by_key(|word| word.to_lowercase()));
        let chinese: Vec<String> = words(Language::Chinese).collect();
        let part = ["超卖", "持锁者", "持锁者标识", "丢失更新", "断链", "对账", "多数节点"];
        assert!(chinese.windows(part.len()).any(|it| it == part), "{chinese:?}");

        for (id, _, pinyin) in WORDS {
            let word = Language::Chinese.text(&format!("glossary-{id}-word"));
            let is_latin = word.starts_with(|c: char| c.is_ascii());
            let characters = if is_latin { 0 } else { word.chars().count() };
            assert_eq!(pinyin.split_whitespace().count(), characters, "{word}: {pinyin}");
        }
    }

    #[test]
    fn definitions_are_short_and_forms_unique() {
        for language in Language::ALL {
            let mut texts = BTreeSet::new();
            for form in forms(language) {
                assert!(texts.insert((&form.text, form.is_code)), "{} is there twice", form.text);
                assert!(
                    !form.text.is_empty() && !form.text.contains("localization"),
                    "{}",
                    form.id
                );
            }
            for GlossaryEntry { id, word, definition, .. } in entries(language) {
                assert!(definition.split_whitespace().count() <= 25, "{id}: {definition}");
                assert!(definition.chars().count() <= 150, "{id}: {definition}");
                assert!(definition.ends_with(['.', '。']), "{id}: {definition}");
                assert!(!word.contains("localization") && !definition.contains(".rs"), "{id}");
            }
        }
    }
}
