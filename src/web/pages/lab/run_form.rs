//! The form fields of a run: their values and errors.

use crate::lab::lessons::{DefaultLoad, Lesson};
use crate::lab::run::{Fault, FaultKind, Journey, RunRequest};
use crate::lab::validate::{describe_range, invalid_number, range_of};
use crate::messages::Language;
use crate::web::middleware::FormFields;
use crate::web::pages::format::sentence;

#[derive(Debug)]
pub struct NumberField {
    pub name: &'static str,
    pub label: String,
    pub range: String,
    pub default_value: String,
    pub value: String,
    pub wrong: Option<String>,
}

/// The number fields of a custom load, each with its default.
const LOAD_NUMBERS: [(&str, &str); 6] = [
    ("stock", "100"),
    ("buyers", "16"),
    ("orders", "200"),
    ("work_ms", "0"),
    ("ttl_ms", SERVER_LEASE),
    ("seed", "1"),
];
const FAULT_NUMBERS: [(&str, &str); 2] = [("fault_at_ms", "0"), ("fault_for_ms", "0")];
/// Defaults that are messages.
const SERVER_LEASE: &str = "lab-default-lease";

/// An error: the field and the reason.
pub type FieldError = (&'static str, String);

/// Returns the fields of a custom load: those of the load, and those of the fault.
pub fn fields(
    input: &FormFields,
    wrong: &[FieldError],
    language: Language,
) -> (Vec<NumberField>, Vec<NumberField>) {
    let of = |(name, default): (&'static str, &str)| {
        field(name, default.to_owned(), input, wrong, language)
    };
    (LOAD_NUMBERS.map(of).into(), FAULT_NUMBERS.map(of).into())
}

pub fn label(field: &str, language: Language) -> String {
    let name = field.replace('_', "-");
    language.text(&format!("lab-field-{name}"))
}

pub fn fault_name(name: &str, language: Language) -> String {
    language.text(&format!("lab-fault-{name}"))
}

pub fn lesson_fields(
    lesson: &Lesson,
    input: &FormFields,
    wrong: &[FieldError],
    language: Language,
) -> Vec<NumberField> {
    lesson_parameters(lesson)
        .into_iter()
        .map(|(name, default_value)| field(name, default_value, input, wrong, language))
        .collect()
}

fn lesson_parameters(lesson: &Lesson) -> Vec<(&'static str, String)> {
    let Some(DefaultLoad { stock, buyers, orders, work_ms, lease }) = lesson.load else {
        return Vec::new();
    };
    let mut parameters = vec![
        ("stock", stock.to_string()),
        ("buyers", buyers.to_string()),
        ("orders", orders.to_string()),
        ("work_ms", work_ms.to_string()),
    ];
    if lease {
        parameters.push(("ttl_ms", SERVER_LEASE.to_owned()));
    }
    parameters
}

fn field(
    name: &'static str,
    default_value: String,
    input: &FormFields,
    wrong: &[FieldError],
    language: Language,
) -> NumberField {
    let is_message = default_value == SERVER_LEASE;
    NumberField {
        name,
        label: label(name, language),
        range: describe_range(name).text(language),
        default_value: if is_message { language.text(&default_value) } else { default_value },
        value: input.trimmed(name).to_owned(),
        wrong: wrong.iter().find(|(field, _)| *field == name).map(|(_, why)| sentence(why)),
    }
}

/// Parses a lesson's form; fields that the lesson does not accept are ignored.
pub fn lesson(
    lesson: &Lesson,
    input: &FormFields,
    language: Language,
) -> (RunRequest, Vec<FieldError>) {
    let parameters = lesson_parameters(lesson);
    let accepted = |name: &String| parameters.iter().any(|(parameter, _)| parameter == name);
    let input = input.0.iter().filter(|(name, _)| accepted(name)).cloned().collect();
    let mut wrong = Vec::new();
    let mut run = numbers(&FormFields(input), &mut wrong, language);
    run.lesson = Some(lesson.name.to_owned());
    validate(run, wrong, language)
}

pub fn load(input: &FormFields, language: Language) -> (RunRequest, Vec<FieldError>) {
    let mut wrong = Vec::new();
    let mut run = numbers(input, &mut wrong, language);
    run.strategies = input.all("strategies").map(str::to_owned).collect();
    run.journey = (input.trimmed("journey") == "pay").then_some(Journey::Pay);
    run.wait = Some(input.trimmed("wait").to_owned()).filter(|wait| !wait.is_empty());
    run.seed = number(input, "seed", &mut wrong, language);
    let kind = input.trimmed("fault");
    match FaultKind::ALL.into_iter().find(|(_, name)| *name == kind) {
        Some((kind, ..)) => {
            run.fault = Some(Fault {
                kind,
                at_ms: number(input, "fault_at_ms", &mut wrong, language).unwrap_or(0),
                for_ms: number(input, "fault_for_ms", &mut wrong, language).unwrap_or(0),
            });
        }
        None if kind.is_empty() => {}
        None => wrong.push(("fault", language.text("lab-wrong-choice"))),
    }
    validate(run, wrong, language)
}

fn numbers(input: &FormFields, wrong: &mut Vec<FieldError>, language: Language) -> RunRequest {
    RunRequest {
        stock: number(input, "stock", wrong, language),
        buyers: number(input, "buyers", wrong, language),
        orders: number(input, "orders", wrong, language),
        work_ms: number(input, "work_ms", wrong, language),
        ttl_ms: number(input, "ttl_ms", wrong, language),
        ..RunRequest::default()
    }
}

/// Parses a number; `None` if the field is empty or wrong. Commas may separate thousands.
fn number<T: TryFrom<u64>>(
    input: &FormFields,
    name: &'static str,
    wrong: &mut Vec<FieldError>,
    language: Language,
) -> Option<T> {
    let text = input.trimmed(name);
    if text.is_empty() {
        return None;
    }
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b',');
    let number = if plain { text.replace(',', "").parse().ok() } else { None };
    let number = number.filter(|number| range_of(name).contains(number));
    if number.is_none() {
        wrong.push((name, invalid_number(name).text(language)));
    }
    number.and_then(|number| T::try_from(number).ok())
}

/// Adds the error of a field that is not a number.
fn validate(
    run: RunRequest,
    mut wrong: Vec<FieldError>,
    language: Language,
) -> (RunRequest, Vec<FieldError>) {
    wrong.extend(run.invalid_field().map(|(field, why)| (field, why.text(language))));
    (run, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::lessons;

    fn input(pairs: &[(&str, &str)]) -> FormFields {
        let field = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        FormFields(pairs.iter().map(field).collect())
    }

    fn english(input: &FormFields) -> (RunRequest, Vec<FieldError>) {
        load(input, Language::English)
    }

    #[test]
    fn lesson_form_has_its_parameters_and_defaults() {
        let of = |name: &str| {
            let lesson = lessons::named(name).expect("there is such a lesson");
            let fields = lesson_fields(lesson, &FormFields::default(), &[], Language::English);
            fields.into_iter().map(|field| (field.name, field.default_value)).collect::<Vec<_>>()
        };
        let own = [("stock", "100"), ("buyers", "16"), ("orders", "400"), ("work_ms", "2")];
        assert_eq!(
            of("lost-update"),
            own.map(|(name, default_value)| (name, default_value.to_owned()))
        );
        assert_eq!(of("waiting").last().expect("it has some").0, "ttl_ms");
        assert_eq!(of("big-key"), []);
        let big = lessons::named("big-key").expect("there is such a lesson");
        assert_eq!(lesson(big, &input(&[("stock", "5")]), Language::English).0.stock, None);
    }

    #[test]
    fn load_form_is_parsed() {
        let (wanted, wrong) = english(&input(&[
            ("strategies", "none"),
            ("strategies", "batched"),
            ("stock", " 1,000 "),
            ("buyers", ""),
            ("journey", "pay"),
            ("fault", "pause-replica"),
            ("fault_for_ms", "300"),
        ]));
        assert_eq!(wrong, []);
        assert_eq!((wanted.strategies.len(), wanted.stock, wanted.buyers), (2, Some(1_000), None));
        assert_eq!(wanted.journey, Some(Journey::Pay));
        assert_eq!(wanted.fault.map(|fault| (fault.at_ms, fault.for_ms)), Some((0, 300)));
    }

    #[test]
    fn invalid_values_are_reported_per_field() {
        let (_, wrong) = english(&input(&[
            ("strategies", "none"),
            ("stock", "many"),
            ("orders", "-1"),
            ("buyers", "65"),
            ("work_ms", "1001"),
        ]));
        let fields: Vec<&str> = wrong.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, ["stock", "buyers", "orders", "work_ms"]);
        let late =
            input(&[("strategies", "none"), ("fault", "flush-redis"), ("fault_at_ms", "1e9")]);
        assert_eq!(english(&late).1[0].0, "fault_at_ms");
        let late = [("strategies", "none"), ("fault", "flush-redis"), ("fault_for_ms", "10001")];
        assert_eq!(english(&input(&late)).1[0].0, "fault_for_ms");
        assert_eq!(english(&input(&[])).1[0].0, "strategies");
        let waiting = lessons::named("waiting").expect("there is such a lesson");
        let (field, why) = &lesson(waiting, &input(&[("ttl_ms", "5")]), Language::English).1[0];
        assert_eq!((*field, why.as_str()), ("ttl_ms", "Type a whole number, 10 to 60,000."));
    }
}
