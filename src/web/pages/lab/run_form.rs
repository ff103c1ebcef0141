//! The form fields of a run: their values and errors.

use std::str::FromStr;

use crate::lab::crowd::Crowd;
use crate::lab::lessons::Lesson;
use crate::lab::run::{Fault, FaultKind, Journey, Wanted};
use crate::web::pages::format::sentence;

/// The fields of a form, in the order received.
pub type Sent = Vec<(String, String)>;

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub range: &'static str,
    /// The default.
    pub usual: String,
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
pub type Wrong = (&'static str, String);

/// Returns the first value of that name, trimmed.
pub fn first<'a>(sent: &'a Sent, name: &str) -> &'a str {
    sent.iter().find(|(sent, _)| sent == name).map_or("", |(_, value)| value.trim())
}

pub fn all(sent: &Sent, name: &str) -> Vec<String> {
    sent.iter().filter(|(sent, _)| sent == name).map(|(_, value)| value.clone()).collect()
}

/// Returns the fields of a custom load: those of the load, and those of the fault.
pub fn fields(sent: &Sent, wrong: &[Wrong]) -> (Vec<Field>, Vec<Field>) {
    let mut load: Vec<Field> =
        NUMBERS.iter().map(|number| field(number, number.3.to_owned(), sent, wrong)).collect();
    let fault = load.split_off(NUMBERS.len() - 2);
    (load, fault)
}

pub fn label(field: &str) -> &str {
    let number = NUMBERS.iter().find(|(name, ..)| *name == field).map(|number| number.1);
    let other = || OTHERS.iter().find(|(name, _)| *name == field).map(|(_, label)| *label);
    number.or_else(other).unwrap_or(field)
}

/// Returns the fields that a lesson accepts, with the lesson's defaults.
pub fn fields_of_a_lesson(lesson: &Lesson, sent: &Sent, wrong: &[Wrong]) -> Vec<Field> {
    let run_form = knobs_of(lesson);
    let number = |name: &str| NUMBERS.iter().find(|number| number.0 == name);
    let fields = run_form
        .into_iter()
        .filter_map(|(name, usual)| number(name).map(|number| field(number, usual, sent, wrong)));
    fields.collect()
}

fn knobs_of(lesson: &Lesson) -> Vec<(&'static str, String)> {
    let Some(Crowd { stock, buyers, orders, work_ms, lease }) = lesson.crowd else {
        return Vec::new();
    };
    let mut run_form = vec![
        ("stock", stock.to_string()),
        ("buyers", buyers.to_string()),
        ("orders", orders.to_string()),
        ("work_ms", work_ms.to_string()),
    ];
    if lease {
        run_form.push(("ttl_ms", "the shop’s".to_owned()));
    }
    run_form
}

fn field(
    (name, label, range, _): &(&'static str, &'static str, &'static str, &'static str),
    usual: String,
    sent: &Sent,
    wrong: &[Wrong],
) -> Field {
    Field {
        name,
        label,
        range,
        usual,
        value: first(sent, name).to_owned(),
        wrong: wrong.iter().find(|(field, _)| field == name).map(|(_, why)| sentence(why)),
    }
}

/// Parses a lesson's form; fields that the lesson does not accept are ignored.
pub fn lesson(lesson: &Lesson, sent: &Sent) -> (Wanted, Vec<Wrong>) {
    let run_form = knobs_of(lesson);
    let offered = |name: &String| run_form.iter().any(|(knob, _)| knob == name);
    let sent: Sent = sent.iter().filter(|(name, _)| offered(name)).cloned().collect();
    let mut wrong = Vec::new();
    let mut wanted = numbers(&sent, &mut wrong);
    wanted.lesson = Some(lesson.name.to_owned());
    judged(wanted, wrong)
}

/// Parses the form of a custom load.
pub fn load(sent: &Sent) -> (Wanted, Vec<Wrong>) {
    let mut wrong = Vec::new();
    let mut wanted = numbers(sent, &mut wrong);
    wanted.strategies = all(sent, "strategies");
    wanted.journey = (first(sent, "journey") == "pay").then_some(Journey::Pay);
    wanted.wait = Some(first(sent, "wait").to_owned()).filter(|wait| !wait.is_empty());
    wanted.replicas = number(sent, "replicas", &mut wrong);
    wanted.seed = number(sent, "seed", &mut wrong);
    let kind = first(sent, "fault");
    match FaultKind::ALL.into_iter().find(|(_, name, _)| *name == kind) {
        Some((kind, ..)) => {
            wanted.fault = Some(Fault {
                kind,
                at_ms: number(sent, "fault_at_ms", &mut wrong).unwrap_or(0),
                for_ms: number(sent, "fault_for_ms", &mut wrong).unwrap_or(0),
            });
        }
        None if kind.is_empty() => {}
        None => wrong.push(("fault", "choose one of the list".to_owned())),
    }
    judged(wanted, wrong)
}

fn numbers(sent: &Sent, wrong: &mut Vec<Wrong>) -> Wanted {
    Wanted {
        stock: number(sent, "stock", wrong),
        buyers: number(sent, "buyers", wrong),
        orders: number(sent, "orders", wrong),
        work_ms: number(sent, "work_ms", wrong),
        ttl_ms: number(sent, "ttl_ms", wrong),
        ..Wanted::default()
    }
}

/// Parses a number; `None` if the field is empty or wrong. Commas may separate thousands.
fn number<T: FromStr>(sent: &Sent, name: &'static str, wrong: &mut Vec<Wrong>) -> Option<T> {
    let typed = first(sent, name);
    if typed.is_empty() {
        return None;
    }
    let plain = typed.bytes().all(|b| b.is_ascii_digit() || b == b',');
    let number = if plain { typed.replace(',', "").parse().ok() } else { None };
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
fn judged(wanted: Wanted, mut wrong: Vec<Wrong>) -> (Wanted, Vec<Wrong>) {
    let alone = || Wanted { strategies: vec!["none".to_owned()], ..Wanted::default() };
    let one_by_one = [
        Wanted { stock: wanted.stock, ..alone() },
        Wanted { buyers: wanted.buyers, ..alone() },
        Wanted { orders: wanted.orders, ..alone() },
        Wanted { work_ms: wanted.work_ms, ..alone() },
        Wanted { ttl_ms: wanted.ttl_ms, ..alone() },
        Wanted { replicas: wanted.replicas, ..alone() },
        Wanted { fault: wanted.fault.clone(), ..alone() },
        wanted.clone(),
    ];
    for (field, why) in one_by_one.iter().filter_map(Wanted::wrong) {
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

    fn sent(pairs: &[(&str, &str)]) -> Sent {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_lesson_has_the_knobs_that_change_it_and_shows_its_own_numbers() {
        let of = |name: &str| {
            let lesson = lessons::named(name).expect("there is such a lesson");
            let fields = fields_of_a_lesson(lesson, &Vec::new(), &[]);
            fields.into_iter().map(|field| (field.name, field.usual)).collect::<Vec<_>>()
        };
        let own = [("stock", "100"), ("buyers", "16"), ("orders", "400"), ("work_ms", "2")];
        assert_eq!(of("lost-update"), own.map(|(name, usual)| (name, usual.to_owned())));
        assert_eq!(of("waiting").last().expect("it has some").0, "ttl_ms");
        assert_eq!(of("big-key"), []);
        let big = lessons::named("big-key").expect("there is such a lesson");
        assert_eq!(lesson(big, &sent(&[("stock", "5")])).0.stock, None);
    }

    #[test]
    fn a_load_is_read_as_it_was_typed() {
        let (wanted, wrong) = load(&sent(&[
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
    fn what_is_wrong_is_told_beside_its_field() {
        let (_, wrong) = load(&sent(&[
            ("strategies", "none"),
            ("stock", "many"),
            ("orders", "-1"),
            ("buyers", "65"),
            ("work_ms", "1001"),
        ]));
        let fields: Vec<&str> = wrong.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, ["stock", "orders", "buyers", "work_ms"]);
        let late =
            sent(&[("strategies", "none"), ("fault", "flush-redis"), ("fault_at_ms", "1e9")]);
        assert_eq!(load(&late).1[0].0, "fault_at_ms");
        let late = [("strategies", "none"), ("fault", "flush-redis"), ("fault_for_ms", "10001")];
        assert_eq!(load(&sent(&late)).1[0].0, "fault_for_ms");
        assert_eq!(load(&sent(&[])).1[0].0, "strategies");
        let waiting = lessons::named("waiting").expect("there is such a lesson");
        let (field, why) = &lesson(waiting, &sent(&[("ttl_ms", "5")])).1[0];
        assert_eq!((*field, why.as_str()), ("ttl_ms", "type a whole number, 10 to 60,000"));
        let many = sent(&[("strategies", "none"), ("replicas", "99999999999")]);
        assert_eq!(load(&many).1, [("replicas", "type a whole number, 1 to 16".to_owned())]);
    }
}
