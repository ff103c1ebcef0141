//! *Which lock?*: five questions about a value that is read and then updated, and the answer with
//! its price, what it still needs, and what its judgement found. `docs/WHICH-LOCK.md` has the same
//! in tables.

use std::collections::BTreeMap;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::lab::judged::judgement_of;
use super::layout::Layout;
use super::respond::html;
use crate::web::middleware::Query;
use crate::web::page_place::render;
use crate::web::{HttpResult, Problem};
use holdfast_base::messages::Language;
use holdfast_lab::lessons;

/// The questions, each with its two answers.
const QUESTIONS: [(&str, [&str; 2]); 5] = [
    ("processes", ["one", "several"]),
    ("money", ["no", "yes"]),
    ("fence", ["no", "yes"]),
    ("hot", ["yes", "no"]),
    ("wait", ["yes", "no"]),
];

/// A lock, and the answers that lead to it.
#[derive(Debug, PartialEq)]
struct Choice {
    needs: &'static [(&'static str, &'static str)],
    strategy: &'static str,
    lesson: &'static str,
    /// Name of a judgement; empty for what is no lock.
    judged: &'static str,
}

macro_rules! choices {
    ($($($question:ident $answer:ident),+ => $strategy:literal, $lesson:literal, $judged:literal;)+) => {
        &[$(Choice {
            needs: &[$((stringify!($question), stringify!($answer))),+],
            strategy: $strategy,
            lesson: $lesson,
            judged: $judged,
        }),+]
    };
}

/// A decision tree: each set of answers leads to one row.
const CHOICES: &[Choice] = choices! {
    processes one => "local", "one-replica", "flock";
    processes several, money no => "owner", "outlived", "redis-py";
    processes several, money yes, fence no => "advisory", "database", "sqlx-advisory";
    processes several, money yes, fence yes, hot yes, wait yes
        => "batched", "hot-item", "holdfast-lock-fenced";
    processes several, money yes, fence yes, hot yes, wait no
        => "fenced", "fence", "holdfast-lock-fenced";
    processes several, money yes, fence yes, hot no, wait yes
        => "row-lock", "database", "sqlx-advisory";
    processes several, money yes, fence yes, hot no, wait no
        => "version", "database", "";
};

impl Choice {
    fn answer_to(&self, question: &str) -> Option<&'static str> {
        self.needs.iter().find(|(name, _)| *name == question).map(|(_, answer)| *answer)
    }

    /// Returns the answers that lead to it, for the site's script.
    fn needs(&self) -> String {
        let needs: Vec<String> =
            self.needs.iter().map(|(name, answer)| format!("{name}={answer}")).collect();
        needs.join(" ")
    }

    /// Returns what it is; with `-price` what it costs, with `-needed` what it does not do.
    fn part(&self, part: &str, language: Language) -> String {
        language.text(&format!("choose-{}{part}", self.strategy))
    }

    /// Returns what the judge found: its verdict, the faults under which the lock lost updates, and
    /// those that touched it.
    fn evidence(&self, language: Language) -> Vec<String> {
        let Some(judgement) = judgement_of(self.judged) else { return Vec::new() };
        let statements = judgement.statements(language).into_iter().map(|said| said.text);
        let lost = judgement.lost_under(language);
        statements.chain(lost).chain(judgement.reached(language)).collect()
    }

    fn title_of_lesson(&self, language: Language) -> String {
        lessons::named(self.lesson).map_or_else(String::new, |lesson| lesson.title(language))
    }

    /// Returns whether the store can check a write: then one statement may do without a lock.
    fn is_checked(&self) -> bool {
        self.answer_to("fence") == Some("yes")
    }
}

#[derive(Debug, Template)]
#[template(path = "which_lock.html")]
struct WhichLockPage {
    layout: Layout,
    answers: ChosenAnswers,
}

#[derive(Debug, Default)]
struct ChosenAnswers(BTreeMap<String, String>);

impl ChosenAnswers {
    fn is_given(&self, question: &str, answer: &str) -> bool {
        self.0.get(question).is_some_and(|given| given == answer)
    }

    fn has(&self, (question, answers): &(&str, [&str; 2])) -> bool {
        answers.iter().any(|answer| self.is_given(question, answer))
    }

    fn is_empty(&self) -> bool {
        !QUESTIONS.iter().any(|question| self.has(question))
    }

    fn is_open(&self, name: &str) -> bool {
        let mut questions = QUESTIONS.iter().filter(|question| question.0 == name);
        questions.all(|question| !self.has(question))
    }

    /// Returns whether the answers allow a choice, with any answer to `besides`.
    fn allow(&self, choice: &Choice, besides: &str) -> bool {
        choice.needs.iter().all(|(name, answer)| {
            *name == besides || self.is_open(name) || self.is_given(name, answer)
        })
    }

    /// Returns whether the answer to a question can change the lock, given those to the others.
    fn matters(&self, question: &str) -> bool {
        let mut possible = CHOICES.iter().filter(|choice| self.allow(choice, question));
        possible.any(|choice| choice.answer_to(question).is_some())
    }

    /// Returns the lock for these answers; else the question that is to be answered next.
    fn choose(&self) -> Result<&'static Choice, &'static str> {
        let mut possible = CHOICES.iter().filter(|choice| self.allow(choice, ""));
        let first = possible.next().ok_or(QUESTIONS[0].0)?;
        match first.needs.iter().find(|(name, _)| self.is_open(name)) {
            Some((name, _)) => Err(name),
            None => Ok(first),
        }
    }
}

pub(crate) async fn show(
    request: HttpRequest,
    query: Query<BTreeMap<String, String>>,
) -> HttpResult {
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &WhichLockPage { layout, answers: ChosenAnswers(query.read()?) })
}

/// Renders the page of the site, whose script shows the answer.
pub(in crate::web) fn site_page(layout: Layout) -> Result<String, Problem> {
    render(&WhichLockPage { layout, answers: ChosenAnswers::default() })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    const ROOT: &str = env!("CARGO_MANIFEST_DIR");

    fn answers(given: &[(&str, &str)]) -> ChosenAnswers {
        let own = |(question, answer): &(&str, &str)| ((*question).into(), (*answer).into());
        ChosenAnswers(given.iter().map(own).collect())
    }

    /// Returns every set of answers to all questions.
    fn all_answers() -> Vec<Vec<(&'static str, &'static str)>> {
        QUESTIONS.iter().fold(vec![Vec::new()], |sets, (question, answers)| {
            let with = |set: &Vec<_>, answer| [set.as_slice(), &[(*question, answer)]].concat();
            sets.iter().flat_map(|set| answers.map(|answer| with(set, answer))).collect()
        })
    }

    #[test]
    fn each_set_of_answers_leads_to_one_lock() {
        let sets = all_answers();
        assert_eq!(sets.len(), 32);
        for set in sets {
            let is_met = |choice: &&Choice| choice.needs.iter().all(|need| set.contains(need));
            let met: Vec<&Choice> = CHOICES.iter().filter(is_met).collect();
            assert_eq!(met.len(), 1, "{set:?}: {met:?}");
            assert_eq!(answers(&set).choose(), Ok(met[0]), "{set:?}");
        }
    }

    #[test]
    fn next_open_question_is_named() {
        let several = ("processes", "several");
        for (given, expected) in [
            (&[][..], Err("processes")),
            (&[("wait", "no"), ("hot", "yes")], Err("processes")),
            (&[("processes", "banana")], Err("processes")),
            (&[several], Err("money")),
            (&[several, ("money", "yes")], Err("fence")),
            (&[several, ("money", "yes"), ("fence", "yes"), ("wait", "no")], Err("hot")),
            (&[several, ("money", "no")], Ok("owner")),
            (&[("processes", "one")], Ok("local")),
        ] {
            let choice = answers(given).choose().map(|choice| choice.strategy);
            assert_eq!(choice, expected, "{given:?}");
        }
    }

    #[test]
    fn question_that_changes_nothing_is_not_asked() {
        let asked = |given: &[(&str, &str)]| {
            let given = answers(given);
            let asked = QUESTIONS.iter().filter(|(question, _)| given.matters(question));
            asked.map(|(question, _)| *question).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[]).len(), 5);
        assert_eq!(asked(&[("processes", "one")]), ["processes"]);
        let several = ("processes", "several");
        assert_eq!(asked(&[several, ("money", "no")]), ["processes", "money"]);
        assert_eq!(asked(&[several, ("money", "yes"), ("fence", "yes")]).len(), 5);
    }

    #[test]
    fn choices_name_what_exists() {
        for choice in CHOICES {
            assert!(holdfast_shop::Strategy::named(choice.strategy).is_some(), "{choice:?}");
            assert!(lessons::named(choice.lesson).is_some(), "{choice:?}");
            let judged = format!("docs/judged/{}.json", choice.judged);
            let exists = Path::new(ROOT).join(judged).exists();
            assert!(exists || choice.strategy == "version", "{choice:?}");
        }
    }

    #[test]
    fn document_has_the_same_tables() {
        let language = Language::English;
        let (mut locks, mut prices, mut verdicts) = (String::new(), String::new(), String::new());
        for choice in CHOICES {
            let Choice { strategy, lesson, judged: name, .. } = choice;
            for (question, _) in QUESTIONS {
                write!(locks, "| {} ", choice.answer_to(question).unwrap_or("–")).unwrap();
            }
            let judgement = judgement_of(name);
            let link = match judgement {
                Some(_) => format!("[{name}](judged/{name}.json)"),
                None => "–".to_owned(),
            };
            writeln!(locks, "| `{strategy}` | `{lesson}` | {link} |").unwrap();

            let [text, price, needed] =
                ["", "-price", "-needed"].map(|part| choice.part(part, language));
            writeln!(prices, "| `{strategy}`: {text} | {price} | {needed} |").unwrap();

            let Some(judgement) = judgement else { continue };
            let statements = judgement.statements(language).into_iter().map(|said| said.text);
            let verdict: Vec<String> = statements.chain(judgement.lost_under(language)).collect();
            let row = format!("| {link} | {}. |\n", verdict.join(". "));
            // Some strategies have the same judgement.
            if !verdicts.contains(&row) {
                verdicts.push_str(&row);
            }
        }

        let document = std::fs::read_to_string(Path::new(ROOT).join("docs/WHICH-LOCK.md")).unwrap();
        for table in [locks, prices, verdicts] {
            assert!(document.contains(&table), "docs/WHICH-LOCK.md lacks the table:\n{table}");
        }
    }
}
