//! The form fields of a run: their values and errors.

use std::str::FromStr;

use crate::lab::lessons::{DefaultLoad, Lesson};
use crate::lab::run::{Fault, FaultKind, Journey, RunRequest};
use crate::web::pages::format::sentence;

/// The fields of a form, in the order received.
pub type FormFields = Vec<(String, String)>;

#[derive(Debug)]
pub struct NumberField {
    pub name: &'static str,
    pub label: &'static str,
    pub range: &'static str,
    /// The default.
    pub default_value: String,
    pub value: String,
    pub wrong: Option<String>,
}

/// Number fields: name, label, range, default.
const NUMBERS: [(&str, &str, &str, &str); 9] = [
    ("stock", "Units on the shelf", "0 to 10,000", "100"),
    ("buyers", "Buyers at once", "1 to 64", "16"),
    ("orders", "Orders in all", "1 to 5,000", "200"),
    ("work_ms", "Work between read and write, ms", "0 to 1,000", "0"),
    ("ttl_ms", "Lease, ms", "10 to 60,000", "the shop’s"),
    ("replicas", "Replicas asked", "1 to 16", "all"),
    ("seed", "Seed of the arrivals", "any number", "1"),
    ("fault_at_ms", "It happens after, ms", "0 to 10,000", "0"),
    ("fault_for_ms", "It lasts, ms", "0 to 10,000", "0"),
];
/// Labels of the other fields that can be wrong.
const OTHERS: [(&str, &str); 3] = [
    ("strategies", "Strategies"),
    ("wait", "When the lock is taken"),
    ("fault", "What goes wrong"),
];

/// An error: the field and the reason.
pub type FieldError = (&'static str, String);

/// Returns the first value of that name, trimmed.
pub fn first_value<'a>(input: &'a FormFields, name: &str) -> &'a str {
    input.iter().find(|(input, _)| input == name).map_or("", |(_, value)| value.trim())
}

pub fn all_values(input: &FormFields, name: &str) -> Vec<String> {
    input.iter().filter(|(input, _)| input == name).map(|(_, value)| value.clone()).collect()
}

/// Returns the fields of a custom load: those of the load, and those of the fault.
pub fn fields(input: &FormFields, wrong: &[FieldError]) -> (Vec<NumberField>, Vec<NumberField>) {
    let mut load: Vec<NumberField> =
        NUMBERS.iter().map(|number| field(number, number.3.to_owned(), input, wrong)).collect();
    let fault = load.split_off(NUMBERS.len() - 2);
    (load, fault)
}

pub fn label(field: &str) -> &str {
    let number = NUMBERS.iter().find(|(name, ..)| *name == field).map(|number| number.1);
    let other = || OTHERS.iter().find(|(name, _)| *name == field).map(|(_, label)| *label);
    number.or_else(other).unwrap_or(field)
}

/// Returns the fields that a lesson accepts, with the lesson's defaults.
pub fn lesson_fields(
    lesson: &Lesson,
    input: &FormFields,
    wrong: &[FieldError],
) -> Vec<NumberField> {
    let parameters = lesson_parameters(lesson);
    let number = |name: &str| NUMBERS.iter().find(|number| number.0 == name);
    let fields = parameters.into_iter().filter_map(|(name, default_value)| {
        number(name).map(|number| field(number, default_value, input, wrong))
    });
    fields.collect()
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
        parameters.push(("ttl_ms", "the shop’s".to_owned()));
    }
    parameters
}

fn field(
    (name, label, range, _): &(&'static str, &'static str, &'static str, &'static str),
    default_value: String,
    input: &FormFields,
    wrong: &[FieldError],
) -> NumberField {
    NumberField {
        name,
        label,
        range,
        default_value,
        value: first_value(input, name).to_owned(),
        wrong: wrong.iter().find(|(field, _)| field == name).map(|(_, why)| sentence(why)),
    }
}

/// Parses a lesson's form; fields that the lesson does not accept are ignored.
pub fn lesson(lesson: &Lesson, input: &FormFields) -> (RunRequest, Vec<FieldError>) {
    let parameters = lesson_parameters(lesson);
    let offered = |name: &String| parameters.iter().any(|(parameter, _)| parameter == name);
    let input: FormFields = input.iter().filter(|(name, _)| offered(name)).cloned().collect();
    let mut wrong = Vec::new();
    let mut wanted = numbers(&input, &mut wrong);
    wanted.lesson = Some(lesson.name.to_owned());
    validate(wanted, wrong)
}

/// Parses the form of a custom load.
pub fn load(input: &FormFields) -> (RunRequest, Vec<FieldError>) {
    let mut wrong = Vec::new();
    let mut wanted = numbers(input, &mut wrong);
    wanted.strategies = all_values(input, "strategies");
    wanted.journey = (first_value(input, "journey") == "pay").then_some(Journey::Pay);
    wanted.wait = Some(first_value(input, "wait").to_owned()).filter(|wait| !wait.is_empty());
    wanted.replicas = number(input, "replicas", &mut wrong);
    wanted.seed = number(input, "seed", &mut wrong);
    let kind = first_value(input, "fault");
    match FaultKind::ALL.into_iter().find(|(_, name, _)| *name == kind) {
        Some((kind, ..)) => {
            wanted.fault = Some(Fault {
                kind,
                at_ms: number(input, "fault_at_ms", &mut wrong).unwrap_or(0),
                for_ms: number(input, "fault_for_ms", &mut wrong).unwrap_or(0),
            });
        }
        None if kind.is_empty() => {}
        None => wrong.push(("fault", "choose one of the list".to_owned())),
    }
    validate(wanted, wrong)
}

fn numbers(input: &FormFields, wrong: &mut Vec<FieldError>) -> RunRequest {
    RunRequest {
        stock: number(input, "stock", wrong),
        buyers: number(input, "buyers", wrong),
        orders: number(input, "orders", wrong),
        work_ms: number(input, "work_ms", wrong),
        ttl_ms: number(input, "ttl_ms", wrong),
        ..RunRequest::default()
    }
}

/// Parses a number; `None` if the field is empty or wrong. Commas may separate thousands.
fn number<T: FromStr>(
    input: &FormFields,
    name: &'static str,
    wrong: &mut Vec<FieldError>,
) -> Option<T> {
    let text = first_value(input, name);
    if text.is_empty() {
        return None;
    }
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b',');
    let number = if plain { text.replace(',', "").parse().ok() } else { None };
    if number.is_none() {
        wrong.push((name, in_range(name).unwrap_or_default()));
    }
    number
}

/// Returns the permitted input of a field, if it is a number field.
fn in_range(name: &str) -> Option<String> {
    let number = NUMBERS.iter().find(|(known, ..)| *known == name);
    number.map(|(_, _, range, _)| format!("type a whole number, {range}"))
}

/// Collects all errors, each with its field: what cannot be parsed, then what is out of range.
fn validate(wanted: RunRequest, mut wrong: Vec<FieldError>) -> (RunRequest, Vec<FieldError>) {
    let alone = || RunRequest { strategies: vec!["none".to_owned()], ..RunRequest::default() };
    let one_by_one = [
        RunRequest { stock: wanted.stock, ..alone() },
        RunRequest { buyers: wanted.buyers, ..alone() },
        RunRequest { orders: wanted.orders, ..alone() },
        RunRequest { work_ms: wanted.work_ms, ..alone() },
        RunRequest { ttl_ms: wanted.ttl_ms, ..alone() },
        RunRequest { replicas: wanted.replicas, ..alone() },
        RunRequest { fault: wanted.fault.clone(), ..alone() },
        wanted.clone(),
    ];
    for (field, why) in one_by_one.iter().filter_map(RunRequest::invalid_field) {
        let (field, why) = match (field, &wanted.fault) {
            ("strategies", _) if !why.contains(" is not one of ") => {
                (field, "choose 1 to 6 of them".to_owned())
            }
            // The error is about the whole fault; the value shows which field is out of range.
            ("fault", Some(fault)) if fault.at_ms > 10_000 => ("fault_at_ms", why),
            ("fault", Some(_)) => ("fault_for_ms", why),
            _ => (field, why),
        };
        let why = in_range(field).unwrap_or(why);
        if !wrong.iter().any(|(known, _)| *known == field) {
            wrong.push((field, why));
        }
    }
    (wanted, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::lessons;

    fn input(pairs: &[(&str, &str)]) -> FormFields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lesson_form_has_its_parameters_and_defaults() {
        let of = |name: &str| {
            let lesson = lessons::named(name).expect("there is such a lesson");
            let fields = lesson_fields(lesson, &Vec::new(), &[]);
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
        assert_eq!(lesson(big, &input(&[("stock", "5")])).0.stock, None);
    }

    #[test]
    fn load_form_is_parsed() {
        let (wanted, wrong) = load(&input(&[
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
        let (_, wrong) = load(&input(&[
            ("strategies", "none"),
            ("stock", "many"),
            ("orders", "-1"),
            ("buyers", "65"),
            ("work_ms", "1001"),
        ]));
        let fields: Vec<&str> = wrong.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, ["stock", "orders", "buyers", "work_ms"]);
        let late =
            input(&[("strategies", "none"), ("fault", "flush-redis"), ("fault_at_ms", "1e9")]);
        assert_eq!(load(&late).1[0].0, "fault_at_ms");
        let late = [("strategies", "none"), ("fault", "flush-redis"), ("fault_for_ms", "10001")];
        assert_eq!(load(&input(&late)).1[0].0, "fault_for_ms");
        assert_eq!(load(&input(&[])).1[0].0, "strategies");
        let waiting = lessons::named("waiting").expect("there is such a lesson");
        let (field, why) = &lesson(waiting, &input(&[("ttl_ms", "5")])).1[0];
        assert_eq!((*field, why.as_str()), ("ttl_ms", "type a whole number, 10 to 60,000"));
        let many = input(&[("strategies", "none"), ("replicas", "99999999999")]);
        assert_eq!(load(&many).1, [("replicas", "type a whole number, 1 to 16".to_owned())]);
    }
}
