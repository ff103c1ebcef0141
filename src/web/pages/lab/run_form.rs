//! The form of a run: its input, its fields, and the request that it becomes.

use crate::web::middleware::FormFields;
use crate::web::pages::rejection::FormErrors;
use holdfast_base::messages::{Language, Message, message};
use holdfast_lab::lessons::Lesson;
use holdfast_lab::run::{FaultKind, Journey, RunFault, RunRequest};
use holdfast_lab::validate::{invalid_number, range_of};

pub const LOAD_NUMBERS: [(&str, &str); 6] = [
    ("stock", "100"),
    ("buyers", "16"),
    ("orders", "200"),
    ("work_ms", "0"),
    ("ttl_ms", SERVER_LEASE),
    ("seed", "1"),
];
pub const FAULT_NUMBERS: [(&str, &str); 2] = [("fault_at_ms", "0"), ("fault_for_ms", "0")];
const SERVER_LEASE: &str = "lab-default-lease";

#[derive(Default)]
pub struct RunForm {
    pub input: FormFields,
    pub wrong: Vec<(&'static str, Message)>,
}

impl RunForm {
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    pub fn value(&self, field: &str) -> &str {
        self.input.trimmed(field)
    }

    pub fn errors(&self, language: Language) -> FormErrors {
        let wrong = self.wrong.iter().map(|(field, why)| ((*field).into(), why.clone()));
        FormErrors::of_fields(wrong, language)
    }

    /// Reads a number; `None` if the field is empty or wrong. Commas may separate thousands.
    fn number<T: TryFrom<u64>>(&mut self, field: &'static str) -> Option<T> {
        let text = self.value(field).replace(',', "");
        if text.is_empty() {
            return None;
        }
        let number = text.parse().ok().filter(|number| range_of(field).contains(number));
        if number.is_none() {
            self.wrong.push((field, invalid_number(field)));
        }
        T::try_from(number?).ok()
    }

    fn numbers(&mut self) -> RunRequest {
        RunRequest {
            stock: self.number("stock"),
            buyers: self.number("buyers"),
            orders: self.number("orders"),
            work_ms: self.number("work_ms"),
            ttl_ms: self.number("ttl_ms"),
            retry_ms: self.number("retry_ms"),
            gap_ms: self.number("gap_ms"),
            ..RunRequest::default()
        }
    }

    /// Adds the error of a field that is not a number.
    fn validate(mut self, run: RunRequest) -> (RunRequest, Self) {
        self.wrong.extend(run.invalid_field());
        (run, self)
    }
}

pub fn lesson(lesson: &Lesson, input: FormFields) -> (RunRequest, RunForm) {
    let mut form = RunForm { input, ..RunForm::default() };
    let run = RunRequest { lesson: Some(lesson.name.to_owned()), ..form.numbers() };
    form.validate(run)
}

pub fn load(input: FormFields) -> (RunRequest, RunForm) {
    let mut form = RunForm { input, ..RunForm::default() };
    let mut run = form.numbers();
    run.strategies = form.input.all("strategies").map(str::to_owned).collect();
    run.journey = (form.value("journey") == "pay").then_some(Journey::Pay);
    run.wait = Some(form.value("wait").to_owned()).filter(|wait| !wait.is_empty());
    run.seed = form.number("seed");

    if let Ok(kind) = form.value("fault").parse::<FaultKind>() {
        run.fault = Some(RunFault {
            kind,
            at_ms: form.number("fault_at_ms").unwrap_or(0),
            for_ms: form.number("fault_for_ms").unwrap_or(0),
        });
    } else if !form.value("fault").is_empty() {
        form.wrong.push(("fault", message!("lab-wrong-choice")));
    }

    form.validate(run)
}

/// Returns the number fields of a lesson, each with its default.
pub fn lesson_numbers(lesson: &Lesson) -> Vec<(&'static str, String)> {
    let Some(load) = lesson.load else { return Vec::new() };
    let mut numbers = vec![
        ("stock", load.stock.to_string()),
        ("buyers", load.buyers.to_string()),
        ("orders", load.orders.to_string()),
        ("work_ms", load.work_ms.to_string()),
    ];
    if load.lease {
        numbers.push(("ttl_ms", SERVER_LEASE.to_owned()));
    }
    numbers
}

pub fn label(field: &str, language: Language) -> String {
    let name = field.replace('_', "-");
    language.text(&format!("lab-field-{name}"))
}

/// Returns a default, which may be a message.
pub fn default_text(default: &str, language: Language) -> String {
    if default.starts_with("lab-") { language.text(default) } else { default.to_owned() }
}

pub fn fault_name(name: &str, language: Language) -> String {
    language.text(&format!("lab-fault-{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_lab::lessons;

    fn input(pairs: &[(&str, &str)]) -> FormFields {
        let field = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        FormFields(pairs.iter().map(field).collect())
    }

    /// Returns the first error of a custom load.
    fn error(pairs: &[(&str, &str)]) -> (&'static str, String) {
        let (field, why) = load(input(pairs)).1.wrong.remove(0);
        (field, why.english())
    }

    #[test]
    fn lesson_form_has_its_parameters_and_defaults() {
        let of = |name: &str| lesson_numbers(lessons::named(name).expect("there is such a lesson"));
        let own = [("stock", "100"), ("buyers", "16"), ("orders", "400"), ("work_ms", "2")];
        assert_eq!(of("lost-update"), own.map(|(name, default)| (name, default.to_owned())));
        assert_eq!(of("waiting").last().expect("it has some").0, "ttl_ms");
        assert_eq!(of("big-key"), []);
    }

    #[test]
    fn load_form_is_parsed() {
        let (wanted, form) = load(input(&[
            ("strategies", "none"),
            ("strategies", "batched"),
            ("stock", " 1,000 "),
            ("buyers", ""),
            ("journey", "pay"),
            ("fault", "pause-replica"),
            ("fault_for_ms", "300"),
        ]));
        assert_eq!(form.wrong, []);
        assert_eq!((wanted.strategies.len(), wanted.stock, wanted.buyers), (2, Some(1_000), None));
        assert_eq!(wanted.journey, Some(Journey::Pay));
        assert_eq!(wanted.fault.map(|fault| (fault.at_ms, fault.for_ms)), Some((0, 300)));
    }

    #[test]
    fn invalid_values_are_reported_per_field() {
        let (_, form) = load(input(&[
            ("strategies", "none"),
            ("stock", "many"),
            ("orders", "-1"),
            ("buyers", "65"),
            ("work_ms", "1001"),
        ]));
        let fields: Vec<&str> = form.wrong.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, ["stock", "buyers", "orders", "work_ms"]);
        let flush = |time: (&'static str, &'static str)| {
            error(&[("strategies", "none"), ("fault", "flush-redis"), time]).0
        };
        assert_eq!(flush(("fault_at_ms", "1e9")), "fault_at_ms");
        assert_eq!(flush(("fault_for_ms", "10001")), "fault_for_ms");
        assert_eq!(error(&[]).0, "strategies");
        let many = error(&[("strategies", "none"), ("buyers", "99999999999")]);
        assert_eq!(many, ("buyers", "Type a whole number, 1 to 64.".to_owned()));
    }
}
