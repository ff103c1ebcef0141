//! The judgement of a service as text for a terminal.

use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use strum::VariantArray as _;

use super::evidence::shortened;
use super::pass::Pass;
use super::report::{Imbalance, PassReport, ServiceEvidence, ServiceJudgement, StatementReport};
use crate::demands::Judged as _;

/// Columns of milliseconds, and their width.
const TIMES: [&str; 2] = ["p99", "gap"];
const TIME_WIDTH: usize = 10;
/// Characters of a statement.
const MAX_CHARS: usize = 120;

/// Formats the judgement: a line per pass, the two requests of each finding, and the verdict.
pub fn format_service(judgement: &ServiceJudgement) -> String {
    let service = &judgement.service;
    let mut text = format!(
        "{}, {} instance{}, seed {}\n\n",
        service.name,
        service.instances,
        if service.instances == 1 { "" } else { "s" },
        judgement.seed
    );
    text += &table(judgement);
    text += &remarks(judgement);
    for pass in &judgement.passes {
        for evidence in &pass.evidence {
            text += &format_evidence(&pass.name, evidence);
        }
    }
    text + "\n" + &verdict(judgement)
}

fn table(judgement: &ServiceJudgement) -> String {
    let width = judgement.passes.iter().map(|pass| pass.name.len()).max().unwrap_or_default();
    let headings = PassReport::default().columns().into_iter();
    let headings = headings.map(|(name, _)| in_column(name, name)).collect::<String>();

    let mut text = format!("{:width$}{headings}\n", "pass");
    for pass in &judgement.passes {
        text += &format!("{:width$}{}\n", pass.name, cells(pass));
    }
    text
}

fn cells(pass: &PassReport) -> String {
    if !pass.ran {
        let why = pass.why_not.as_deref().unwrap_or("it did not run");
        return format!("  not run: {why}");
    }

    let line = pass.columns().into_iter().map(|(name, figure)| match figure {
        None => in_column(name, "-"),
        Some(ms) if TIMES.contains(&name) => {
            in_column(name, &format!("{} ms", grouped(ms.unsigned_abs())))
        }
        Some(units) => in_column(name, &units.to_string()),
    });
    let PassReport { runs, lost_in, .. } = pass;
    let mut notes = Vec::new();
    if pass.replay {
        notes.push(format!("   replay, found in {lost_in} of {runs}"));
    } else if *runs > 1 || pass.has_schedules() {
        // A search ends with the schedule that finds something.
        notes.push(match (pass.has_schedules(), lost_in) {
            (true, 0) => format!("   {runs} schedules"),
            (true, _) => format!("   found by schedule {runs}"),
            (false, _) => format!("   {lost_in} of {runs} runs"),
        });
    }
    if let Some(untried) = pass.untried {
        notes.push(format!(", {untried} of at most two switches not tried"));
    }
    if pass.name.parse().is_ok_and(Pass::strikes) {
        let s = if pass.hits == 1 { "" } else { "s" };
        notes.push(format!("   struck {} time{s}", pass.hits));
    }
    line.chain(notes).collect()
}

fn in_column(name: &str, text: &str) -> String {
    let width = if TIMES.contains(&name) { TIME_WIDTH } else { name.len() + 2 };
    format!("{text:>width$}")
}

/// Returns what the reader of the table has to know.
fn remarks(judgement: &ServiceJudgement) -> String {
    let mut text = String::new();
    let is_repeated =
        |pass: &&PassReport| pass.ran && pass.runs > 1 && pass.lost_in > 0 && !pass.has_schedules();
    let repeated = judgement.passes.iter().find(is_repeated);
    if let Some(PassReport { lost_in, runs, .. }) = repeated {
        text += &format!(
            "\n`{lost_in} of {runs} runs`: so many runs of the pass found something; the line has the \
             figures of the first of them.\n"
        );
    }
    for pass in judgement.passes.iter().filter(|pass| pass.has_strange_answers()) {
        let error = pass.figures.error.as_deref().unwrap_or_default();
        let what = match pass.figures.errors {
            0 => "an order without an answer",
            _ => "an answer that is neither *sold* nor *sold out*",
        };
        text += &format!("\n{}: {what}: {error}\n", pass.name);
    }
    if judgement.counts_doubled() {
        text += "\n*doubled* was looked for only by the number of orders: there is no `[books] \
                 by_key`\n";
    }
    for pass in judgement.not_shown() {
        text += &format!("\n{}: two requests alone did not show what it has found\n", pass.name);
    }
    text
}

fn format_evidence(pass: &str, evidence: &ServiceEvidence) -> String {
    let mut text = format!("\n{pass}: {}.\n", evidence.summary);
    if evidence.under != pass {
        let variables = [("pass", evidence.under.clone().into())];
        text += &(Language::English.text_with("service-under", &variables) + "\n");
    }
    if evidence.under == Pass::Gate.name() {
        text += "The judge held the row of the item meanwhile:\n";
    }
    for statement in &evidence.statements {
        let mark = if statement.decisive { '▶' } else { ' ' };
        text += &format!("{mark} {}\n", line(evidence, statement));
    }
    for note in evidence.notes_in(Language::English) {
        text += &format!("  {note}\n");
    }
    text + &format!("Cure: {}\n", evidence.cure_in(Language::English))
}

/// Formats a statement: when it was sent, whose it is, and its result.
fn line(evidence: &ServiceEvidence, statement: &StatementReport) -> String {
    let StatementReport { buyer, instance, sent_ms, sql, result, .. } = statement;
    let waited = evidence.waited_ms(statement).map(|ms| {
        // Without a decimal, a short time would not say which statement came first.
        let decimals = usize::from(ms < 10.0);
        format!(", after {ms:.decimals$} ms")
    });
    let waited = waited.unwrap_or_default();
    let shown = shortened(sql, MAX_CHARS);
    let shown = if sql.is_empty() { shown } else { shown + " -- " };
    format!("{sent_ms:>7.1} ms  buyer {buyer}, instance {instance}: {shown}{result}{waited}")
}

fn verdict(judgement: &ServiceJudgement) -> String {
    let ran = judgement.passes.iter().filter(|pass| pass.ran);
    let names = ran.map(|pass| pass.name.as_str()).collect::<Vec<_>>().join(", ");
    if judgement.sound {
        return format!(
            "Sound: nothing oversold, lost or doubled, and no drift, in {} orders under {names}.\n",
            grouped(judgement.orders())
        );
    }

    if judgement.found().is_empty() {
        return format!("NOT judged: {}.\n", judgement.undecided().unwrap_or_default());
    }

    let mut found = String::new();
    for imbalance in Imbalance::VARIANTS {
        let found_in = judgement.passes.iter().filter(|pass| pass.figures.of(*imbalance) != 0);
        let found_in = found_in.map(|pass| pass.name.as_str()).collect::<Vec<_>>().join(", ");
        if !found_in.is_empty() {
            found += &format!("\n  {:9} under {found_in}", imbalance.name());
        }
    }
    format!("NOT sound: {}\n{}\n", judgement.name(), found.trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    const FIXTURE: &str = include_str!("../../../../tests/pages/service.json");

    #[test]
    fn pass_that_shows_the_finding_of_another_is_named() {
        const HELD: &str = "The judge held the row of the item meanwhile:\n";
        let mut judgement: ServiceJudgement = serde_json::from_str(FIXTURE).expect("a judgement");
        assert!(format_service(&judgement).contains(&format!(" of 1.\n{HELD}")));
        judgement.passes[2].name = "none".to_owned();
        let text = format_service(&judgement);
        let under = "These two requests were sent under gate, which shows the same mistake";
        assert!(text.contains(&format!("\n{under} more clearly.\n{HELD}")), "{text}");
    }

    #[test]
    fn cure_names_the_lock_in_redis_that_both_have_set() {
        let mut judgement: ServiceJudgement = serde_json::from_str(FIXTURE).expect("a judgement");
        let evidence = &mut judgement.passes[2].evidence[0];
        for request in [(1, 2), (2, 1)] {
            assert!(!evidence.cure_in(Language::English).contains("a lock in Redis"));
            let (buyer, instance) = request;
            let lock = StatementReport {
                buyer,
                instance,
                sent_ms: 0.5,
                answered_ms: 0.6,
                sql: "redis SET lock:tea … NX PX …".to_owned(),
                result: "OK".to_owned(),
                decisive: false,
            };
            evidence.statements.insert(0, lock);
        }
        assert!(evidence.cure_in(Language::English).contains(". The two held a lock in Redis, or"));
        // The judge has taken it from them.
        evidence.under = "redis-flush".to_owned();
        assert!(!evidence.cure_in(Language::English).contains("a lock in Redis"));
    }

    #[test]
    fn table_is_followed_by_what_it_does_not_say() {
        let mut judgement: ServiceJudgement = serde_json::from_str(FIXTURE).expect("a judgement");
        let has = |judgement: &ServiceJudgement, words: &str| {
            let text = format_service(judgement);
            assert!(text.contains(words), "{words}: {text}");
        };
        let headings = "orders  sold  books  unknown  errors";
        has(&judgement, headings);
        has(&judgement, "\nretry: an answer that is neither *sold* nor *sold out*: 500 Internal");
        has(&judgement, "\nCure: Give the key a unique index");
        has(&judgement, "where id = '<b>tea' -- UPDATE 1, after 1512 ms\n");
        // Another one was sent before its answer, or none.
        has(&judgement, "-- SELECT 0, after 0.3 ms\n");
        has(&judgement, "-- SELECT 0\n");
        has(&judgement, "\n▶     6.8 ms  buyer 2, instance 1: update products");
        has(&judgement, "\n   1524.7 ms  buyer 2, instance 1: COMMIT");
        let names = ["BEGIN", "SELECT goods", "BEGIN"];
        judgement.passes[3].evidence[0].left_out_names = names.map(str::to_owned).to_vec();
        has(
            &judgement,
            "\n  ▶ decides: what an order read last before it wrote, and what it wrote.\n  \
             (left out: BEGIN ×2, SELECT goods)\nCure: Give",
        );

        // What its fault struck nothing for is found without it.
        let repeated = "so many runs of the pass found something";
        has(&judgement, repeated);
        let mut unstruck = judgement.clone();
        (unstruck.passes[2].ran, unstruck.passes[2].why_not) = (false, Some("no wait".to_owned()));
        has(&unstruck, "  not run: no wait\n");
        has(&unstruck, "\nNOT sound: ");
        assert!(!format_service(&unstruck).contains(repeated));

        // Another mistake is shown, but no key that has two orders.
        let retry = &mut judgement.passes[3];
        retry.evidence.clear();
        (retry.figures.errors, retry.figures.unknown) = (0, 1);
        has(&judgement, "\nretry: an order without an answer: 500 Internal");
        has(&judgement, "\nretry: two requests alone did not show");
        let text = format_service(&judgement);
        assert!(!text.contains("gate: two requests alone") && !text.contains("by_key"), "{text}");

        // It was struck, so that it failed.
        judgement.passes[3].name = "kill".to_owned();
        judgement.passes[3].figures.errors = 1;
        let text = format_service(&judgement);
        assert!(!text.contains("kill: an answer") && !text.contains("kill: an order"), "{text}");
        judgement.passes[3].name = "retry".to_owned();

        // Of schedules, what depends on chance is not shown.
        let report = &mut judgement.passes[3];
        (report.name, report.runs) = ("interleavings".to_owned(), 3);
        let line = "\ninterleavings         1      0     0        1      80    20     21        \
                    -       -         -         -   ";
        has(&judgement, &format!("{line}found by schedule 3\n"));
        let report = &mut judgement.passes[3];
        (report.lost_in, report.untried) = (0, NonZeroUsize::new(8));
        has(&judgement, "   3 schedules, 8 of at most two switches not tried\n");
        let report = &mut judgement.passes[3];
        (report.lost_in, report.untried) = (1, None);
        judgement.passes[3].replay = true;
        has(&judgement, &format!("{line}replay, found in 1 of 3\n"));
        (judgement.passes[3].name, judgement.passes[3].replay) = ("retry".to_owned(), false);

        let figures = &mut judgement.passes[3].figures;
        (figures.doubled, figures.by_count) = (0, true);
        has(&judgement, "\n*doubled* was looked for only by the number of orders: there is no `[");
    }
}
