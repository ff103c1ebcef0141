//! Texts of a race: for the script, whose variables it fills in, and the explanation of a result.

use serde_json::{Map, Value};

use crate::lab::race::model::{NO_ANSWER, Race, RaceResult, SOLD, SOLD_OUT};
use crate::messages::{FluentValue, Language};

/// Messages that the script uses, each with its variables. A variable is passed as `%name%`.
const TEXTS: &[(&str, &[&str])] = &[
    ("race-buy-both", &[]),
    ("race-buy-all", &["buyers"]),
    ("race-crowd-two", &[]),
    ("race-crowd", &["buyers", "stock"]),
    ("race-question", &[]),
    ("race-question-crowd", &["buyers", "stock"]),
    ("race-intro-off", &[]),
    ("race-intro-on", &[]),
    ("race-starting", &[]),
    ("race-queued", &["position"]),
    ("race-failed", &[]),
    ("race-error", &[]),
];

/// Returns the script's texts, by message id without its prefix.
pub(super) fn for_script(language: Language) -> Value {
    let texts = TEXTS.iter().map(|(id, variables)| {
        let variables: Vec<(&'static str, FluentValue<'_>)> =
            variables.iter().map(|name| (*name, format!("%{name}%").into())).collect();
        let name = id.strip_prefix("race-").unwrap_or(id);
        (name.to_owned(), Value::String(language.text_with(id, &variables)))
    });
    Value::Object(texts.collect::<Map<_, _>>())
}

/// Explains the result of a race in one or two sentences.
pub(super) fn explain(language: Language, race: &Race, result: &RaceResult) -> String {
    let count = |name: &str| result.lanes.iter().filter(|lane| lane.result == name).count();
    let is_duel = result.lanes.len() == 2;
    let doubled = result.doubled();
    let other = result.lanes.iter().map(|lane| lane.result.as_str());
    let other = other.into_iter().find(|name| ![SOLD, SOLD_OUT, NO_ANSWER].contains(name));
    if count(NO_ANSWER) > 0 {
        language.text_with("race-no-answer", &[("count", count(NO_ANSWER).into())])
    } else if doubled > 0 && is_duel {
        let read = result.lanes.first().and_then(|lane| lane.value_at("read"));
        let value = read.unwrap_or(race.stock);
        language.text_with("race-lost", &[("value", value.into()), ("after", (value - 1).into())])
    } else if doubled == 1 {
        language.text("race-crowd-lost-one")
    } else if doubled > 0 {
        language.text_with("race-crowd-lost", &[("doubled", doubled.into())])
    } else if let Some(other) = other {
        language.text_with("race-other", &[("result", other.into())])
    } else if let Some(winner) = result.lanes.iter().find(|lane| lane.result == SOLD)
        && let Some(loser) = result.lanes.iter().find(|lane| lane.result == SOLD_OUT)
        && is_duel
    {
        let names =
            [("winner", winner.buyer.as_str().into()), ("loser", loser.buyer.as_str().into())];
        language.text_with("race-held", &names)
    } else {
        language.text("race-crowd-held")
    }
}
