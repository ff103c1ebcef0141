//! A run as text for a terminal: its figures, evidence and events as tables.

use super::lessons::Lesson;
use super::run::{ArmResult, LabRun, Sample};
use super::timeline::{TracedRequest, timeline_of};
use holdfast_base::messages::{Language, is_chinese};
use holdfast_base::output::rate;
use holdfast_story::{EventKind, Value};

/// Upper bound of the requests whose events are listed.
const MAX_LANES: usize = 8;

pub(super) fn draw_heading(lesson: &Lesson, language: Language) -> String {
    let title = lesson.title(language);
    let claim = lesson.claim(language);
    format!("{}. {title} ({})\n  {claim}\n\n", lesson.number(), lesson.name)
}

pub(super) fn draw_sample(strategy: &str, sample: &Sample, language: Language) -> String {
    let variables = [
        ("strategy", strategy.into()),
        ("sold", sample.sold.into()),
        ("stock", sample.stock.into()),
        ("oversold", sample.oversold.into()),
        ("waiting", sample.waiting.into()),
    ];
    format!("     {}", language.text_with("terminal-sample", &variables))
}

pub(super) fn draw_result(run: &LabRun, lesson: &Lesson, language: Language) -> String {
    let outcome = &run.outcome;
    let evidence = outcome.evidence.iter().map(|evidence| {
        let mark = if evidence.ok { String::new() } else { language.text("terminal-contradicts") };
        vec![evidence.name.text(language), evidence.value.text(language), mark]
    });
    let tables =
        [arms(&outcome.arms, language), evidence.collect(), events(run, lesson.scene, language)];
    let mut text = String::from("\n");
    for table in tables.iter().filter(|table| !table.is_empty()) {
        text += &format!("{}\n", draw_table(table));
    }

    let id = match outcome.claim_shown {
        Some(true) => "terminal-shown",
        Some(false) => "terminal-not-shown",
        None => "terminal-failed",
    };
    let verdict = outcome.verdict.as_ref().map(|verdict| verdict.text(language));
    let verdict = [("verdict", verdict.unwrap_or_default().into())];
    text += &format!("{}\n\n", language.text_with(id, &verdict));

    for sentence in lesson.takeaways(language) {
        text += &format!("  - {sentence}\n");
    }
    if let Some(next) = lesson.next() {
        let next = language.text_with("terminal-next", &[("name", next.name.into())]);
        text += &format!("\n{next}\n");
    }
    text
}

/// Returns a row of figures per arm, under their names.
fn arms(arms: &[ArmResult], language: Language) -> Vec<Vec<String>> {
    const FIGURES: [&str; 8] =
        ["sold", "left", "oversold", "undersold", "forks", "rate", "p50", "p99"];
    if arms.is_empty() {
        return Vec::new();
    }
    let mut heads = vec![String::new(), language.text("terminal-opening")];
    heads.extend(FIGURES.map(|name| language.text(&format!("lab-figure-{name}"))));
    heads.push(String::new());

    std::iter::once(heads).chain(arms.iter().map(|arm| row(arm, language))).collect()
}

fn row(arm: &ArmResult, language: Language) -> Vec<String> {
    let counts = [arm.stock_opening, arm.sold, arm.stock, arm.oversold, arm.undersold, arm.forks];
    let mut row = vec![arm.name(language)];
    row.extend(counts.map(|count| Value::Units(count).to_string()));
    row.push(rate(arm.orders_per_s));
    let waits = [arm.wait_p50_ms, arm.wait_p99_ms];
    row.extend(waits.map(|wait| Value::Ms(wait.round() as u64).to_string()));
    row.push(language.text(if arm.ok { "terminal-sound" } else { "terminal-not-sound" }));
    row
}

/// Returns the events of the scene that the lesson asks about, or of all requests that were sent
/// individually.
fn events(run: &LabRun, scene: &str, language: Language) -> Vec<Vec<String>> {
    let single = || run.outcome.lanes.iter().filter(|lane| lane.arm.is_none());
    let has_scene = !scene.is_empty() && single().any(|lane| lane.scene == scene);
    let asked = single().filter(|lane| !has_scene || lane.scene == scene).take(MAX_LANES);
    let requests: Vec<TracedRequest<'_>> =
        asked.map(|lane| TracedRequest { lane, is_duplicate: false, strategy: None }).collect();
    let timeline = timeline_of(&requests, language);

    let ends = [EventKind::Sent, EventKind::Begin, EventKind::End, EventKind::Answered];
    let between = timeline.events.iter().filter(|event| !ends.contains(&event.kind));
    let rows = between.map(|event| {
        let at = format!("{} ms", event.at());
        vec![at, timeline.lanes[event.lane].full_name(), event.text(language)]
    });
    rows.collect()
}

/// Draws columns as wide as their widest cell.
fn draw_table(rows: &[Vec<String>]) -> String {
    let mut widths = vec![0; rows[0].len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = width_of(cell).max(*width);
        }
    }

    let mut table = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let space = " ".repeat(width - width_of(cell));
            format!("  {cell}{space}")
        });
        table += &format!("{}\n", cells.collect::<String>().trim_end());
    }
    table
}

/// Returns the columns of a terminal that a text takes: two for a Chinese character.
fn width_of(text: &str) -> usize {
    text.chars().map(|c| if is_chinese(c) { 2 } else { 1 }).sum()
}
