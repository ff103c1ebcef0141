//! A judgement of a service as a page: its verdict, the figures of each pass, and the two requests
//! of each finding side by side, in the order of time.
//!
//! Their statements are what there is to read, so they stand as text in a column for each request,
//! and not as marks in a swimlane.

use askama::Template;
use strum::VariantArray as _;

use super::{STYLES, time_of};
use crate::web::pages::respond::{hash_source, without_fonts};
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_judge::Judged as _;
use holdfast_judge::service::report::{
    Evidence, Figures, Imbalance, PassReport, ServiceJudgement, StatementReport,
};
use holdfast_judge::service::{Pass, Pattern};
use holdfast_lab::lessons;
use holdfast_story::{Value, format_ms};

const OWN_STYLE: &str = include_str!("../../../../static/service.css");

/// The columns of the table after those of the balances.
const COLUMNS: [&str; 7] = ["orders", "sold", "unknown", "errors", "p99", "gap", "runs"];

/// Messages about a lesson.
const MISTAKE: &str = "service-lesson-mistake";
const CURE: &str = "service-lesson-cure";

#[derive(Debug, Template)]
#[template(path = "saved_service.html")]
struct SavedService<'a> {
    judgement: &'a ServiceJudgement,
    language: Language,
    style: String,
    policy: String,
}

/// A row of the drawing: a statement is sent, or is answered after it has waited.
#[derive(Debug)]
struct Step {
    at: String,
    /// One of each request.
    cells: Vec<Cell>,
}

#[derive(Debug, Default)]
struct Cell {
    /// A statement is sent and not answered yet, or was until now.
    waits: bool,
    /// Name of the request, if it is its step.
    request: Option<String>,
    sql: Option<String>,
    /// How long it took, or that it waits.
    note: String,
    result: Option<String>,
}

/// Renders the judgement of a service as one HTML file, in the language of the terminal.
///
/// # Errors
/// Fails if the template does.
pub fn saved_service_page(judgement: &ServiceJudgement) -> askama::Result<String> {
    save(judgement, Language::of_environment())
}

fn save(judgement: &ServiceJudgement, language: Language) -> askama::Result<String> {
    let style = without_fonts(&(STYLES.concat() + OWN_STYLE));
    let policy = format!("default-src 'none'; style-src {}", hash_source(&style));
    SavedService { judgement, language, style, policy }.render()
}

impl SavedService<'_> {
    fn time(&self) -> String {
        time_of(&self.judgement.started_at)
    }

    fn facts(&self) -> String {
        let instances = self.judgement.service.instances.into();
        let seed = self.judgement.seed.to_string().into();
        self.language.text_with("service-facts", &[("instances", instances), ("seed", seed)])
    }

    fn verdict(&self) -> String {
        let found = self.found();
        if !found.is_empty() {
            let names = found.iter().map(|(imbalance, _)| self.column(imbalance.name()));
            let names = self.language.list(&names.collect::<Vec<_>>());
            return self.language.text_with("service-verdict-found", &[("found", names.into())]);
        }
        if self.judgement.undecided().is_some() {
            return self.language.text("service-verdict-undecided");
        }

        let ran = self.judgement.passes.iter().filter(|pass| pass.ran);
        let orders: u64 =
            ran.clone().map(|pass| pass.figures.attempts * u64::from(pass.runs)).sum();
        let names = self.language.list(&ran.map(|pass| self.title(pass)).collect::<Vec<_>>());
        let variables = [("orders", grouped(orders).into()), ("passes", names.into())];
        self.language.text_with("service-verdict-sound", &variables)
    }

    /// Returns what was found, each with the names of its passes.
    fn found(&self) -> Vec<(Imbalance, String)> {
        let mut found = Vec::new();
        for imbalance in Imbalance::VARIANTS {
            let passes = self.judgement.passes.iter();
            let passes = passes.filter(|pass| pass.figures.of(*imbalance) != 0);
            let names: Vec<String> = passes.map(|pass| self.title(pass)).collect();
            if !names.is_empty() {
                found.push((*imbalance, self.language.list(&names)));
            }
        }
        found
    }

    fn notes(&self) -> Vec<String> {
        if self.judgement.sound {
            return vec![self.language.text("service-no-proof")];
        }
        let note = |(imbalance, passes): (Imbalance, String)| {
            let balance = self.column(imbalance.name());
            let variables = [("balance", balance.into()), ("passes", passes.into())];
            self.language.text_with("service-found-under", &variables)
        };
        self.found().into_iter().map(note).collect()
    }

    fn column(&self, name: &str) -> String {
        self.language.text(&format!("service-column-{name}"))
    }

    fn title(&self, pass: &PassReport) -> String {
        self.title_of(&pass.name)
    }

    /// Returns the name of a pass, which may be one of a later version.
    fn title_of(&self, name: &str) -> String {
        let pass = name.parse::<Pass>();
        pass.map_or_else(|_| name.to_owned(), |pass| pass.title(self.language))
    }

    /// Returns whether a pass has another name than that of the command line.
    fn is_translated(&self, pass: &PassReport) -> bool {
        self.title(pass) != pass.name
    }

    fn about(&self, pass: &PassReport) -> Option<String> {
        Some(pass.name.parse::<Pass>().ok()?.about(self.language))
    }

    fn why_not(&self, pass: &PassReport) -> Option<String> {
        pass.why_not_message.as_ref()?.format(self.language)
    }

    /// Returns the passes with answers that are neither *sold* nor *sold out*, and one of these.
    fn neither(&self) -> Vec<(String, &str)> {
        let passes = self.judgement.passes.iter();
        passes.filter_map(|pass| Some((self.title(pass), pass.figures.error.as_deref()?))).collect()
    }

    fn has_evidence(&self) -> bool {
        self.judgement.passes.iter().any(|pass| !pass.evidence.is_empty())
    }

    /// Returns the sentence of what happened, without the name of the mistake, which stands before
    /// it, and the language's tag.
    fn sentence(&self, evidence: &Evidence) -> (String, &'static str) {
        let own = evidence.message.as_ref().and_then(|message| message.format(self.language));
        let (sentence, language) = match own {
            Some(sentence) => (sentence, self.language),
            None => (evidence.summary.clone(), Language::English),
        };
        let begin = format!("{}{}", evidence.pattern.title(language), language.colon());
        let rest = sentence.strip_prefix(&begin).unwrap_or(&sentence);
        (rest.to_owned(), language.tag())
    }

    /// Returns what has to be known of the two requests.
    fn how(&self, pass: &PassReport, evidence: &Evidence) -> Vec<String> {
        let under = self.title_of(&evidence.under);
        let under = (evidence.under != pass.name)
            .then(|| self.language.text_with("service-under", &[("pass", under.into())]));
        let is_held = evidence.under == Pass::Gate.name();
        let held = is_held.then(|| self.language.text("service-held"));
        under.into_iter().chain(held).collect()
    }

    fn request_names(&self, evidence: &Evidence) -> Vec<String> {
        requests(evidence).into_iter().map(|request| self.request_name(request)).collect()
    }

    fn request_name(&self, (buyer, instance): (u64, usize)) -> String {
        let variables = [("buyer", buyer.into()), ("instance", instance.into())];
        self.language.text_with("service-request", &variables)
    }

    /// Returns the rows of the drawing. An answer that came at once stands with its statement.
    fn steps(&self, evidence: &Evidence) -> Vec<Step> {
        let sent = evidence.statements.iter().map(|it| (it.sent_ms, it, false));
        let waited = evidence.statements.iter().filter(|it| it.waited_ms().is_some());
        let mut moments: Vec<_> = sent.chain(waited.map(|it| (it.answered_ms, it, true))).collect();
        moments.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));

        let columns = requests(evidence);
        let mut steps = Vec::new();
        for (at, statement, is_answer) in moments {
            let cells = columns.iter().map(|column| match *column == request_of(statement) {
                true => self.cell(statement, is_answer),
                false => Cell { waits: is_waiting(evidence, *column, at), ..Cell::default() },
            });
            steps.push(Step { at: in_ms(at), cells: cells.collect() });
        }
        steps
    }

    fn cell(&self, statement: &StatementReport, is_answer: bool) -> Cell {
        let waited = statement.waited_ms();
        let note = match (waited, is_answer) {
            (None, _) => in_ms(statement.answered_ms - statement.sent_ms) + " ms",
            (Some(_), false) => self.language.text("service-waits"),
            (Some(ms), true) => {
                let ms = grouped(ms.round() as u64);
                self.language.text_with("service-answered-after", &[("ms", ms.into())])
            }
        };
        let request = Some(self.request_name(request_of(statement)));
        let result = statement.result_in(self.language);
        if statement.sql.is_empty() {
            return Cell { request, note: result, ..Cell::default() };
        }
        Cell {
            waits: waited.is_some(),
            request,
            sql: (!is_answer).then(|| statement.sql.clone()),
            note,
            result: (is_answer || waited.is_none()).then_some(result),
        }
    }

    /// Returns where the mistake and its cure are shown.
    fn further(&self, evidence: &Evidence) -> Vec<String> {
        let language = self.language;
        let of_lesson = |(message, name): &(&str, &str)| {
            let title = lessons::named(name)?.title(language);
            let variables = [("title", title.into()), ("name", (*name).into())];
            Some(language.text_with(message, &variables))
        };
        let of_file = |file: &str| language.text_with("service-recipe", &[("file", file.into())]);

        let lessons = lessons_of(evidence.pattern).iter().filter_map(of_lesson);
        lessons.chain(recipe_of(evidence.pattern).map(of_file)).collect()
    }
}

/// Returns the names of the columns.
fn columns() -> Vec<&'static str> {
    Imbalance::VARIANTS.iter().map(|imbalance| imbalance.name()).chain(COLUMNS).collect()
}

/// Returns the balances of a pass, and whether each is one that must not be.
fn balances(pass: &PassReport) -> Vec<(String, bool)> {
    let balances = Imbalance::VARIANTS.iter().map(|imbalance| pass.figures.of(*imbalance));
    balances.map(|units| (Value::Units(units).to_string(), units != 0)).collect()
}

fn figures(pass: &PassReport) -> Vec<String> {
    let Figures { attempts, sold, unknown, errors, p99_ms, gap_ms, .. } = pass.figures;
    let figures = [attempts, sold, unknown, errors, p99_ms, gap_ms].map(grouped);
    figures.into_iter().chain([format!("{}/{}", pass.lost_in, pass.runs)]).collect()
}

/// Returns the requests, which are the columns of the drawing: each has its buyer and instance.
fn requests(evidence: &Evidence) -> Vec<(u64, usize)> {
    let mut requests: Vec<_> = evidence.statements.iter().map(request_of).collect();
    requests.sort_unstable();
    requests.dedup();
    requests
}

fn request_of(statement: &StatementReport) -> (u64, usize) {
    (statement.buyer, statement.instance)
}

fn in_ms(ms: f64) -> String {
    format_ms((ms * 1_000.0).round() as u64)
}

/// Returns whether a statement of a request waits at a time.
fn is_waiting(evidence: &Evidence, request: (u64, usize), at: f64) -> bool {
    let mut statements = evidence.statements.iter().filter(|it| request_of(it) == request);
    statements.any(|it| it.waited_ms().is_some() && it.sent_ms < at && at < it.answered_ms)
}

/// Returns the lessons that show a mistake and its cure, each with the message that says which.
fn lessons_of(pattern: Pattern) -> &'static [(&'static str, &'static str)] {
    match pattern {
        Pattern::NoCheck | Pattern::OrderWithoutUnit => &[(CURE, "database")],
        Pattern::ReadThenWrite | Pattern::CheckThenDecrement | Pattern::CheckElsewhere => {
            &[(MISTAKE, "lost-update"), (CURE, "database")]
        }
        Pattern::TwoTransactions => &[(MISTAKE, "pre-deduct"), (CURE, "double-submit")],
        Pattern::ReleasedBeforeCommit => &[(MISTAKE, "early-release"), (CURE, "database")],
        Pattern::LeaseOutlived => &[(MISTAKE, "outlived"), (CURE, "fence")],
        Pattern::KeyNotUnique => &[(CURE, "double-submit")],
        Pattern::Unknown => &[],
    }
}

/// Returns the file with the statements that cure a mistake, if they need more than one.
fn recipe_of(pattern: Pattern) -> Option<&'static str> {
    match pattern {
        Pattern::ReadThenWrite | Pattern::LeaseOutlived => Some("docs/FENCES.md"),
        Pattern::NoCheck
        | Pattern::OrderWithoutUnit
        | Pattern::CheckThenDecrement
        | Pattern::CheckElsewhere
        | Pattern::TwoTransactions
        | Pattern::ReleasedBeforeCommit
        | Pattern::KeyNotUnique
        | Pattern::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../../tests/pages/service.json");

    fn judgement() -> ServiceJudgement {
        serde_json::from_str(FIXTURE).unwrap()
    }

    fn render(judgement: &ServiceJudgement, language: Language) -> String {
        save(judgement, language).unwrap()
    }

    /// Returns the cells of a pass, without their marks.
    fn row(page: &str, pass: &str) -> String {
        let row = page.split("<tr>").find(|row| row.contains(&format!(">{pass}<"))).unwrap();
        row.split("</tr>").next().unwrap().replace("<span aria-hidden=\"true\">▲</span> ", "")
    }

    #[test]
    fn verdict_names_what_was_found() {
        let mut judgement = judgement();
        let page = render(&judgement, Language::English);
        for text in [
            "Not sound: oversold, doubled",
            "oversold under gate, retry",
            "2 instances · seed 7",
            "did not run: <span>the buyer is a program",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let gate = row(&page, "gate");
        for cell in ["off\">11<", ">16<", ">1,566<", ">1,516<", ">3/10<"] {
            assert!(gate.contains(cell), "{cell}: {gate}");
        }
        assert!(!row(&page, "control").contains("off"));

        judgement.passes.retain(|pass| pass.lost_in == 0);
        judgement.sound = true;
        let page = render(&judgement, Language::English);
        let verdict = "Sound: nothing oversold, lost or doubled, and no drift, in 88 orders under \
                       control, none";
        assert!(page.contains(verdict) && page.contains("None was found."), "{page}");
        assert!(!page.contains(" loss\""), "{page}");

        judgement.passes.retain(|pass| pass.name == "control" || !pass.ran);
        assert!(render(&judgement, Language::English).contains("Not decided"));
    }

    #[test]
    fn statement_that_waits_is_answered_later() {
        let judgement = judgement();
        let page = SavedService {
            judgement: &judgement,
            language: Language::English,
            style: String::new(),
            policy: String::new(),
        };
        let evidence = &judgement.passes[2].evidence[0];
        assert_eq!(page.request_names(evidence), ["buyer 1, instance 2", "buyer 2, instance 1"]);
        let steps = page.steps(evidence);
        let times: Vec<&str> = steps.iter().map(|step| step.at.as_str()).collect();
        assert_eq!(times, ["5.9", "6.8", "6.9", "7.9", "1,519.2", "1,524.7", "1,525.2", "1,528.6"]);

        // The second request reads while the update of the first one waits.
        let [second, first] = &steps[2].cells[..] else { panic!("{:?}", steps[2]) };
        assert!(first.waits && first.request.is_none(), "{first:?}");
        assert_eq!((second.note.as_str(), second.result.as_deref()), ("0.6 ms", Some("stock = 1")));
        let [_, sent] = &steps[1].cells[..] else { panic!("{:?}", steps[1]) };
        assert!(sent.waits && sent.sql.is_some() && sent.result.is_none(), "{sent:?}");
        let [_, answered] = &steps[4].cells[..] else { panic!("{:?}", steps[4]) };
        assert_eq!(answered.note, "answered after 1,512 ms");
        assert_eq!((&answered.sql, answered.result.as_deref()), (&None, Some("UPDATE 1")));
        assert!(!steps[5].cells[1].waits && steps[5].cells[0].waits);
    }

    #[test]
    fn page_is_in_each_language() {
        let mut judgement = judgement();
        let english = render(&judgement, Language::English);
        let chinese = render(&judgement, Language::Chinese);
        for (page, texts) in [
            (
                &english,
                [
                    "Check, then relative decrement</b> <span lang=\"en\">both requests found",
                    "The judge held the item’s row until both had read it.",
                    "The mistake as a lesson: The lost update",
                    "no answer</code>",
                ],
            ),
            (
                &chinese,
                [
                    "先检查，再做相对扣减</b><span lang=\"zh\">两个请求",
                    "判定程序锁住商品所在的行",
                    "演示这个错误的课程：丢失更新",
                    "没有应答</code>",
                ],
            ),
        ] {
            for text in texts {
                assert!(page.contains(text), "{text}: {page}");
            }
            assert!(page.contains("email = &#39;…&#39;"), "a masked value: {page}");
            assert!(!page.contains("Unknown localization key") && !page.contains("<script"));
        }
        assert!(row(&chinese, "应答丢失").contains("买家是一个程序"), "{chinese}");
        assert!(!chinese.contains("both requests"), "{chinese}");

        // Of an earlier or a later version.
        let evidence = &mut judgement.passes[2].evidence[0];
        evidence.message = None;
        evidence.under = "later".to_owned();
        let page = render(&judgement, Language::Chinese);
        assert!(page.contains("</b><span lang=\"en\">both requests found"), "{page}");
        assert!(page.contains("在“later”下发送"), "{page}");
    }

    #[test]
    fn texts_of_file_are_escaped() {
        let mut judgement = judgement();
        assert!(render(&judgement, Language::English).contains("id = &#39;&#60;b&#62;tea&#39;"));
        let attack = "</style><script>alert(1)</script>\"'";
        judgement.service.name = attack.to_owned();
        judgement.started_at = attack.to_owned();
        for pass in &mut judgement.passes {
            pass.name = attack.to_owned();
            pass.why_not = pass.why_not_message.take().map(|_| attack.to_owned());
            pass.figures.error = Some(attack.to_owned());
            for evidence in &mut pass.evidence {
                evidence.message = None;
                evidence.pattern = Pattern::LeaseOutlived;
                attack.clone_into(&mut evidence.summary);
                attack.clone_into(&mut evidence.under);
                for statement in &mut evidence.statements {
                    attack.clone_into(&mut statement.sql);
                    attack.clone_into(&mut statement.result);
                }
            }
        }
        let page = render(&judgement, Language::English);
        assert!(!page.contains("<script") && !page.contains("alert(1)</"), "{page}");
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(page.contains("<code>docs/FENCES.md</code> in the repository"), "{page}");
    }

    /// A sentence begins with the name that stands before it, and a lesson that is named exists.
    #[test]
    fn mistakes_have_their_texts_and_lessons() {
        for language in Language::ALL {
            for pattern in Pattern::VARIANTS {
                let title = pattern.title(language);
                let sentence = format!("service-found-{}", pattern.name());
                let variables = [("sold", 2_i64.into()), ("opening", 1_i64.into())];
                let sentence = language.text_with(&sentence, &variables);
                let begins = sentence.starts_with(&format!("{title}{}", language.colon()));
                assert!(begins || *pattern == Pattern::Unknown, "{title}: {sentence}");
                for text in [title, pattern.cure(language)] {
                    assert!(!text.starts_with("Unknown localization key"), "{text}");
                }
            }
        }
        for (_, name) in Pattern::VARIANTS.iter().flat_map(|pattern| lessons_of(*pattern)) {
            assert!(lessons::named(name).is_some(), "{name}");
        }
    }
}
