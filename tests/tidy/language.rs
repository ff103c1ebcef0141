//! Comments, names and the README are in plain technical English, and short.
//!
//! Counted over `src` and `crates`; names of tests also over `tests`. `script/words` shows the
//! counts and the worst files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{count_word, relative, rust_files};

/// Colloquial words and phrases that have a term in the field, or none is needed.
const ODD: [&str; 23] = [
    "whoever",
    "whomever",
    "whatever",
    "whichever",
    "nobody",
    "somebody",
    "told",
    "tells",
    "hear",
    "hears",
    "so many",
    "so long as",
    "give back",
    "gives back",
    "gave back",
    "given back",
    "come too late",
    "comes too late",
    "came of",
    "has had",
    "meanwhile",
    "suffice",
    "suffices",
];
/// Openings of item docs that ask instead of naming the thing.
const OPENINGS: [&str; 14] = [
    "What",
    "Who",
    "Whose",
    "Whether",
    "So many",
    "So long",
    "So much",
    "How many",
    "How often",
    "How long",
    "Since when",
    "Until when",
    "Under which",
    "In which",
];
/// Type names that are customarily used more than once.
const SHARED_TYPES: [&str; 4] = ["Error", "Row", "Args", "Future"];

const MAX_ODD_PER_10_000: f64 = 10.0;
const MAX_OPENINGS_PERCENT: f64 = 3.0;
const MAX_SHARED_TYPES_PERCENT: f64 = 10.0;
const MAX_README_WORDS: usize = 900;
/// Files and names that a report lists.
const WORST: usize = 12;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below these folders of the repository, with their text.
fn files(folders: &[&str]) -> Vec<(String, String)> {
    let folders = folders.iter().map(|folder| root().join(folder)).filter(|path| path.exists());
    let paths: Vec<PathBuf> = folders.flat_map(|folder| rust_files(&folder)).collect();
    assert!(paths.len() > 30, "the files were not found");
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    paths.iter().map(|path| (relative(path), text(path))).collect()
}

/// The text of a comment line.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim_start())
}

/// The largest counts, one per line.
fn worst<'a>(counts: impl IntoIterator<Item = (&'a String, usize)>) -> String {
    let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts.iter().take(WORST).map(|(name, count)| format!("\n  {count:4} {name}")).collect()
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[test]
fn comments_are_plain_english() {
    let mut words = 0;
    let mut odd = BTreeMap::new();
    for (file, text) in files(&["src", "crates"]) {
        let comments: Vec<String> =
            text.lines().filter_map(comment).map(str::to_lowercase).collect();
        let is_word = |word: &&str| word.contains(|c: char| c.is_ascii_alphabetic());
        let all = comments
            .iter()
            .flat_map(|comment| comment.split(|c: char| !c.is_ascii_alphabetic() && c != '\''));
        words += all.filter(is_word).count();
        let found = |text: &String| ODD.iter().map(|word| count_word(text, word)).sum::<usize>();
        odd.insert(file, comments.iter().map(found).sum::<usize>());
    }
    let rate = 100.0 * percent(odd.values().sum(), words);
    let worst = worst(odd.iter().map(|(file, count)| (file, *count)));
    println!("{rate:.1} odd words per 10,000 words of comment{worst}");
    assert!(rate < MAX_ODD_PER_10_000, "{rate:.1} odd words per 10,000 words{worst}");
}

#[test]
fn item_docs_name_the_item() {
    let mut docs = 0;
    let mut openings = BTreeMap::new();
    for (file, text) in files(&["src", "crates"]) {
        let mut previous = "";
        for line in text.lines().map(str::trim) {
            if line.starts_with("///") && !previous.starts_with("///") {
                docs += 1;
                let text = comment(line).unwrap();
                if OPENINGS.iter().any(|opening| {
                    text.strip_prefix(opening)
                        .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                }) {
                    *openings.entry(file.clone()).or_insert(0) += 1;
                }
            }
            previous = line;
        }
    }
    let share = percent(openings.values().sum(), docs);
    let worst = worst(openings.iter().map(|(file, count)| (file, *count)));
    println!("{share:.1} % of item docs open with What, Who, Whether, So many{worst}");
    assert!(share < MAX_OPENINGS_PERCENT, "{share:.1} % of item docs open with a question{worst}");
}

/// The name of a type that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn type_names_are_unique() {
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in files(&["src", "crates"]) {
        for name in text.lines().filter_map(defined_type) {
            *types.entry(name.to_owned()).or_default() += 1;
        }
    }
    let shared =
        |(name, uses): &(&String, usize)| *uses > 1 && !SHARED_TYPES.contains(&name.as_str());
    let shared: Vec<_> = types.iter().map(|(name, uses)| (name, *uses)).filter(shared).collect();
    let share = percent(shared.iter().map(|(_, uses)| uses).sum(), types.values().sum());
    let worst = worst(shared);
    println!("{share:.1} % of type names are used twice{worst}");
    assert!(share < MAX_SHARED_TYPES_PERCENT, "{share:.1} % of type names are used twice{worst}");
}

#[test]
fn readme_is_short() {
    let words = fs::read_to_string(root().join("README.md")).unwrap().split_whitespace().count();
    println!("README: {words} words");
    assert!(words <= MAX_README_WORDS, "the README has {words} words");
}

/// The names of a file's tests, also of those that a macro runs in several topologies.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        let attribute = line.strip_prefix("#[").and_then(|rest| rest.split(['(', ']']).next());
        is_test |= attribute.is_some_and(|path| path.rsplit("::").next() == Some("test"));
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let Some(name) = function.and_then(|rest| rest.split('(').next()) {
            names.extend(Some(name).filter(|name| is_test && !name.starts_with('$')));
            is_test = false;
        }
    }
    let lists = text.split("\neverywhere!(").skip(1).map(|rest| rest.split(");").next().unwrap());
    names.extend(lists.flat_map(|list| list.split(',')).map(str::trim).filter(|n| !n.is_empty()));
    names
}

#[test]
fn test_names_have_three_to_eight_words() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (file, text) in files(&["src", "crates", "tests"]) {
        for name in test_names(&text) {
            count += 1;
            if !(3..=8).contains(&name.split('_').count()) {
                wrong.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(count > 500, "only {count} tests were found");
    println!("{} of {count} test names have fewer than 3 or more than 8 words", wrong.len());
    assert!(wrong.is_empty(), "not 3 to 8 words:\n{}", wrong.join("\n"));
}
