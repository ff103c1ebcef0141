//! The catalogue, `locales/`: the same messages with the same variables in
//! every language, each of them used, and none missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fluent_syntax::ast::{Entry, Expression, InlineExpression, Pattern, PatternElement};
use fluent_syntax::parser::parse;
use holdfast_base::messages::Language;
use holdfast_judge::fault::Fault;
use holdfast_judge::report::ViolationKind;
use holdfast_judge::service::Pass;
use regex::Regex;
use strum::IntoEnumIterator as _;

/// The messages of one language, each with the names of its variables.
type Catalogue = BTreeMap<String, BTreeSet<String>>;

fn catalogue(language: &str) -> Catalogue {
    let mut catalogue = Catalogue::new();
    let files = fs::read_dir(Path::new("locales").join(language)).unwrap();
    for path in files.map(|file| file.unwrap().path()) {
        let parsed = parse(fs::read_to_string(&path).unwrap());
        let resource =
            parsed.unwrap_or_else(|(_, errors)| panic!("{}: {errors:?}", path.display()));
        for entry in resource.body {
            let Entry::Message(message) = entry else { continue };
            let mut variables = BTreeSet::new();
            let pattern = message.value.unwrap();
            collect_variables(&pattern, &mut variables);
            let previous = catalogue.insert(message.id.name.clone(), variables);
            assert!(previous.is_none(), "{language}: {} is there twice", message.id.name);
        }
    }
    catalogue
}

fn collect_variables(pattern: &Pattern<String>, variables: &mut BTreeSet<String>) {
    for element in &pattern.elements {
        let PatternElement::Placeable { expression } = element else { continue };
        let inline = match expression {
            Expression::Inline(inline) => inline,
            Expression::Select { selector, variants } => {
                for variant in variants {
                    collect_variables(&variant.value, variables);
                }
                selector
            }
        };
        if let InlineExpression::VariableReference { id } = inline {
            variables.insert(id.name.clone());
        }
    }
}

fn sources(folder: &str, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(path.to_str().unwrap(), text);
        } else if path
            .extension()
            .is_some_and(|kind| ["rs", "html", "py", "js"].iter().any(|it| kind == *it))
        {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn program() -> String {
    let mut text = String::new();
    sources("src", &mut text);
    sources("crates", &mut text);
    sources("templates", &mut text);
    text
}

#[test]
fn languages_have_equal_messages() {
    let (english, chinese) = (catalogue("en"), catalogue("zh"));
    let only = |one: &Catalogue, other: &Catalogue| -> Vec<String> {
        one.keys().filter(|id| !other.contains_key(*id)).cloned().collect()
    };
    assert_eq!(only(&english, &chinese), [""; 0], "missing in zh");
    assert_eq!(only(&chinese, &english), [""; 0], "missing in en");
    for (id, variables) in &english {
        assert_eq!(Some(variables), chinese.get(id), "the variables of {id} differ");
    }
}

#[test]
fn every_message_is_used() {
    let mut program = program();
    sources("static", &mut program);
    // A literal that is a whole id, or one with parts to fill in: `"lesson-{name}-title"`, and in
    // a script `${name}` between backticks.
    let part = r"\$?\{[a-zA-Z_.]*\}";
    let literal = format!(r#"["`]([a-z][a-z0-9]*(?:-(?:[a-z0-9]+|{part}))+)["`]"#);
    let literal = Regex::new(&literal).unwrap();
    let part = Regex::new(part).unwrap();
    let (mut whole, mut patterns) = (BTreeSet::new(), Vec::new());
    for found in literal.captures_iter(&program) {
        let text = &found[1];
        if text.contains('{') {
            let filled = part.replace_all(text, "[a-z0-9-]+");
            patterns.push(Regex::new(&format!("^{filled}$")).unwrap());
        } else {
            whole.insert(text.to_owned());
        }
    }
    let unused =
        |id: &&String| !whole.contains(*id) && !patterns.iter().any(|pattern| pattern.is_match(id));
    let unused: Vec<String> = catalogue("en").keys().filter(unused).cloned().collect();
    assert_eq!(unused, [""; 0]);
}

#[test]
fn every_used_message_exists() {
    let english = catalogue("en");
    let call = Regex::new(r#"(?s)(?:\btext(?:_with)?|\bmessage!)\(\s*"([a-z0-9-]+)""#).unwrap();
    let mut program = program();
    // The scripts that name messages by their whole ids.
    for script in ["static/scheduler.js", "static/scheduler-postgres.js"] {
        program.push_str(&fs::read_to_string(script).unwrap());
    }
    let missing = call.captures_iter(&program).map(|found| found[1].to_owned());
    // `form.text("next")` reads a field of a form, whose names have no hyphen.
    let missing = missing.filter(|id| id.contains('-') && !english.contains_key(id));
    assert_eq!(missing.collect::<BTreeSet<_>>(), BTreeSet::new());
}

/// A message without one of its variables is not formatted, and shows its id.
#[test]
fn messages_get_their_variables() {
    let english = catalogue("en");
    let call = Regex::new(r#"\bmessage!\(\s*"([a-z0-9-]+)""#).unwrap();
    let name = Regex::new(r"^\s*([a-z0-9_]+)\s*(?:=|$)").unwrap();
    let program = program();
    let mut missing = Vec::new();
    for found in call.captures_iter(&program) {
        let Some(variables) = english.get(&found[1]) else { continue };
        let (arguments, rest) = arguments(&program[found.get(0).unwrap().end()..]);
        // What is added later is not in the call.
        if rest.trim_start().starts_with(".with(") {
            continue;
        }
        let names = arguments.iter().filter_map(|it| Some(name.captures(it)?[1].to_owned()));
        let names: BTreeSet<String> = names.collect();
        let absent = variables.difference(&names).map(|it| format!("{}: {it}", &found[1]));
        missing.extend(absent);
    }
    assert_eq!(missing, [""; 0]);
}

/// Splits what follows in a call at its commas, up to the closing bracket; returns the rest, too.
fn arguments(text: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut is_quoted, mut from) = (0, false, 0);
    let mut arguments = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                arguments.push(&text[from..at]);
                return (arguments, &text[at + 1..]);
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    panic!("a call without an end: {text}")
}

/// Chinese texts address the reader as 你. Their punctuation is full-width and has no space after
/// it, except where a dot or a slash separates parts.
#[test]
fn chinese_texts_have_one_style() {
    let wrong = [
        "您",
        "[\u{4e00}-\u{9fff}][(,;:?!]",
        "[),;:?!][\u{4e00}-\u{9fff}]",
        "[，。：；、！？（“] ",
        "[）”] [\u{4e00}-\u{9fff}（“]",
    ];
    assert_eq!(chinese_lines_with(&wrong, &[]), [""; 0]);
}

/// A lease, its holder, its renewal, a failover, a kill and the judge have one word in Chinese.
#[test]
fn chinese_texts_have_one_word_per_thing() {
    let others = ["租期", "持有者", "故障转移", "故障切换", "续租", "被杀([^死]|$)", "评判程序"];
    let documents = ["docs/COURSE.zh.md", "docs/TEACHING.zh.md"];
    assert_eq!(chinese_lines_with(&others, &documents), [""; 0]);
}

/// Returns the lines of all Chinese messages, and of `documents`, that match a pattern.
fn chinese_lines_with(patterns: &[&str], documents: &[&str]) -> Vec<String> {
    let wanted = Regex::new(&patterns.join("|")).unwrap();
    let messages = fs::read_dir("locales/zh").unwrap().map(|file| file.unwrap().path());
    let mut found = Vec::new();
    for file in messages.chain(documents.iter().map(PathBuf::from)) {
        let text = fs::read_to_string(file).unwrap();
        found.extend(text.lines().filter(|line| wanted.is_match(line)).map(str::to_owned));
    }
    found
}

/// Pages show the rules of the audit in every language: the catalogue has those of `checks.sql`.
#[test]
fn catalogue_has_every_audit_rule() {
    let checks = fs::read_to_string("crates/holdfast-shop/src/audit/checks.sql").unwrap();
    let english = fs::read_to_string("locales/en/admin.ftl").unwrap();
    let rules: Vec<(&str, &str)> = checks
        .lines()
        .filter_map(|line| line.strip_prefix("-- check ")?.split_once(": "))
        .collect();
    assert!(rules.len() > 20, "{rules:?}");
    for (name, rule) in rules {
        let message = format!("audit-check-{name} = {rule}");
        assert!(english.lines().any(|line| line == message), "{message}");
    }
}

/// A page shows a fault, a pass or a violation without a text by its id.
#[test]
fn catalogue_has_every_fault_pass_and_violation() {
    for language in Language::ALL {
        let titles = Fault::ALL.iter().map(|fault| fault.title(language));
        let about = Fault::ALL.iter().map(|fault| fault.about(language));
        let kinds = ViolationKind::iter().map(|kind| kind.title(language));
        let passes = Pass::ALL.iter().flat_map(|it| [it.title(language), it.about(language)]);
        for text in titles.chain(about).chain(kinds).chain(passes) {
            assert!(!text.starts_with("Unknown localization key"), "{text}");
        }
    }
    // In English a fault and a pass have the names that the command line knows.
    for fault in Fault::ALL {
        assert_eq!(fault.title(Language::English), fault.name());
    }
    for pass in Pass::ALL {
        assert_eq!(pass.title(Language::English), pass.name());
    }
}

/// Figures of a result that are written by hand, with the reason: they are no measurement.
const FIGURES_BY_HAND: [(&str, &str); 3] = [
    ("run-waiting-fact-3", "the name of a percentile"),
    ("counted-run-waiting-fact-3", "the name of a percentile"),
    ("run-waiting-verdict", "the name of a percentile"),
];

/// What a run has found is told in the run's own figures, and a claim, which is read beside them,
/// names none.
#[test]
fn results_have_no_figures_written_by_hand() {
    let result = Regex::new(
        "^(counted-)?run-.*-(verdict|fact-[0-9]+)$|^run-.*-scene-.*$|^run-two-items-of$",
    );
    let result = result.unwrap();
    let figure = Regex::new("[0-9]").unwrap();
    let step = Regex::new("^run-.*-step-[0-9]+$").unwrap();
    let outcome = Regex::new("Sold: [0-9]|售出：[0-9]|taken once|扣了一次").unwrap();
    let claim = Regex::new("^lesson-.*-claim$").unwrap();
    let measured =
        Regex::new("[0-9] ?(ms|s)\\b|million|thousand|half a second|百万|一千|半秒").unwrap();

    let mut found = Vec::new();
    for language in ["en", "zh"] {
        for file in ["runs", "lessons"] {
            let path = Path::new("locales").join(language).join(file).with_extension("ftl");
            for entry in parse(fs::read_to_string(&path).unwrap()).unwrap().body {
                let Entry::Message(message) = entry else { continue };
                let id = message.id.name;
                let is_excepted = FIGURES_BY_HAND.iter().any(|(excepted, _)| *excepted == id);
                let pattern = match id.as_str() {
                    id if result.is_match(id) => &figure,
                    id if step.is_match(id) => &outcome,
                    id if claim.is_match(id) => &measured,
                    _ => continue,
                };
                let mut text = String::new();
                collect_text(&message.value.unwrap(), &mut text);
                if pattern.is_match(&text) && !is_excepted {
                    found.push(format!("{language} {id}: {text}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Collects what stands in a message itself; not the names of its variants.
fn collect_text(pattern: &Pattern<String>, text: &mut String) {
    for element in &pattern.elements {
        match element {
            PatternElement::TextElement { value } => text.push_str(value),
            PatternElement::Placeable { expression: Expression::Select { variants, .. } } => {
                // `[one] 1 fork` repeats what it selects.
                let others = variants.iter().filter(|variant| variant.default);
                others.for_each(|variant| collect_text(&variant.value, text));
            }
            PatternElement::Placeable { .. } => text.push('#'),
        }
    }
}
