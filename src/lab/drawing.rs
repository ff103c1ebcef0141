//! Draws a run as text: measurements in columns, requests as a timeline.

use super::lessons::Lesson;
use super::run::{ArmResult, Evidence, LabRun, Lane, Sample};
use super::timeline::{Activity, EventKind, Timeline, TracedRequest};
use crate::messages::{Language, is_chinese};

/// Line width: a terminal's, less a margin.
const WIDTH: usize = 96;
/// Columns of the time axis.
const AXIS: usize = 60;
/// Upper bound of the columns between two events.
const MAX_STEP: usize = 4;
/// Upper bound of the lanes that are drawn.
const MAX_LANES: usize = 8;
/// Upper bound of the events that are listed.
const MAX_EVENTS: usize = 60;

/// Returns the sign of an event in a lane; `None` for what the line itself shows.
fn sign(kind: &EventKind) -> Option<char> {
    Some(match kind {
        EventKind::Sent | EventKind::Begin | EventKind::End => return None,
        EventKind::Answered | EventKind::Broken => return None,
        EventKind::Wait => 'w',
        EventKind::Held => 'h',
        EventKind::Read => 'r',
        EventKind::Write => 'W',
        EventKind::Autocommit | EventKind::Commit => 'c',
        EventKind::Committed => 'C',
        EventKind::Release => 'R',
        EventKind::Expire => 'e',
        EventKind::Delete => 'd',
        EventKind::Paused => 'P',
        EventKind::Resumed => '>',
        EventKind::Killed => 'X',
        EventKind::Refused | EventKind::Lost | EventKind::Other(_) => '*',
    })
}

pub(super) fn draw_heading(lesson: &Lesson, language: Language) -> String {
    let (number, title) = (lesson.number(), lesson.title(language));
    let claim = wrapped(&lesson.claim(language), WIDTH - 2, 2);
    format!("{number}. {title} ({})\n  {claim}\n\n", lesson.name)
}

pub(super) fn draw_step(number: usize, step: &str) -> String {
    format!("{number:>3}. {}", wrapped(step, WIDTH - 5, 5))
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
    let mut text = String::from("\n");
    if !outcome.arms.is_empty() {
        text += &draw_arms(&outcome.arms, language);
        text.push('\n');
    }
    if !outcome.evidence.is_empty() {
        let name = |evidence: &Evidence| evidence.name.text(language);
        let width = outcome.evidence.iter().map(|evidence| width_of(&name(evidence))).max();
        for evidence in &outcome.evidence {
            let name = pad(&name(evidence), width.unwrap_or(0));
            let value = evidence.value.text(language);
            let mark = match evidence.ok {
                true => String::new(),
                false => format!("  ({})", language.text("terminal-contradicts")),
            };
            text += &format!("  {name}  {value}{mark}\n");
        }
        text.push('\n');
    }
    let timeline = Timeline::of_requests(&selected_requests(run), language);
    if !timeline.lanes.is_empty() {
        text += &draw_timeline(&timeline, language);
        text.push('\n');
    }
    let id = match outcome.claim_shown {
        Some(true) => "terminal-shown",
        Some(false) => "terminal-not-shown",
        None => "terminal-failed",
    };
    let verdict = outcome.verdict.as_ref().map(|verdict| verdict.text(language));
    let verdict = [("verdict", verdict.unwrap_or_default().into())];
    text += &format!("{}\n\n", wrapped(&language.text_with(id, &verdict), WIDTH, 2));
    for sentence in lesson.takeaways(language) {
        text += &format!("  - {}\n", wrapped(&sentence, WIDTH - 4, 4));
    }
    if let Some(next) = lesson.next() {
        let next = language.text_with("terminal-next", &[("name", next.name.into())]);
        text += &format!("\n{next}\n");
    }
    text
}

/// Draws the figures of the strategies as a table.
fn draw_arms(arms: &[ArmResult], language: Language) -> String {
    const FIGURES: [&str; 8] =
        ["sold", "left", "oversold", "undersold", "forks", "rate", "p50", "p99"];
    let heads = FIGURES.map(|name| language.text(&format!("lab-figure-{name}")));
    let heads = [String::new(), language.text("terminal-opening")].into_iter().chain(heads);
    let mut rows = vec![heads.collect::<Vec<String>>()];
    for arm in arms {
        let counts =
            [arm.stock_opening, arm.sold, arm.stock, arm.oversold, arm.undersold, arm.forks];
        let mut row = vec![arm.name(language)];
        row.extend(counts.map(|count| count.to_string()));
        row.push(format!("{:.0}", arm.orders_per_s));
        row.extend([arm.wait_p50_ms, arm.wait_p99_ms].map(|wait| format!("{wait:.0} ms")));
        let id = if arm.ok { "terminal-sound" } else { "terminal-not-sound" };
        row.push(language.text(id));
        rows.push(row);
    }
    let width =
        |place: usize| rows.iter().filter_map(move |row| row.get(place)).map(|cell| width_of(cell));
    let widths: Vec<usize> = (0..11).map(|place| width(place).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let space = " ".repeat(width - width_of(cell));
            // The name and the last column are words.
            let cell = if place % 10 == 0 { format!("{cell}{space}") } else { space + cell };
            line += &format!("  {cell}");
        }
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// Returns the requests that were sent individually, in order; without any, the shortest pair of a
/// fork.
fn selected_requests(run: &LabRun) -> Vec<TracedRequest<'_>> {
    let lanes = run.outcome.lanes.iter();
    let single: Vec<&Lane> = lanes.filter(|lane| lane.arm.is_none()).take(MAX_LANES).collect();
    let mut lanes = match run.shortest_fork() {
        Some(pair) if single.is_empty() => pair.lanes.into(),
        _ => single,
    };
    lanes.sort_by_key(|lane| lane.sent_us);
    let request = |lane| TracedRequest { lane, is_duplicate: false, strategy: None };
    lanes.into_iter().map(request).collect()
}

/// Draws a row per lane and its events in columns, in order of time; gaps are shortened.
fn draw_timeline(timeline: &Timeline, language: Language) -> String {
    let width = timeline.lanes.iter().map(|lane| width_of(&lane.name)).max().unwrap_or(0);
    let mut text = String::new();
    for (lane, row) in timeline.lanes.iter().zip(draw_rows(timeline)) {
        let name = pad(&lane.name, width);
        text += &format!("  {:>5} {name} {}\n", lane.replica, row.trim_end());
    }
    let legend = language.text("terminal-legend");
    text += &legend.lines().map(|line| format!("  {line}\n")).collect::<String>();
    text.push('\n');

    let shown = timeline.events.iter().filter(|event| sign(&event.kind).is_some());
    for event in shown.clone().take(MAX_EVENTS) {
        let at = format!("{} ms", event.at());
        let name = pad(&timeline.lanes[event.lane].name, width);
        text += &format!("  {at:>10}  {name}  {}\n", event.text(language));
    }
    let more = shown.count().saturating_sub(MAX_EVENTS);
    if more > 0 {
        let count = [("count", more.to_string().into())];
        text += &format!("  {}\n", language.text_with("terminal-more-events", &count));
    }
    text
}

fn draw_rows(timeline: &Timeline) -> Vec<String> {
    let mut times: Vec<u64> = timeline.events.iter().map(|event| event.at_us).collect();
    times.dedup();
    let step = (AXIS / times.len().max(2)).clamp(1, MAX_STEP);
    let column = |at_us: u64| times.partition_point(|time| *time < at_us) * step;
    let mut rows = vec![vec![' '; times.len() * step]; timeline.lanes.len()];

    let next = timeline.next_in_lane();
    for (index, activity) in timeline.activities().into_iter().enumerate() {
        let event = &timeline.events[index];
        let from = column(event.at_us);
        let to = next[index].map_or(from, |next| column(timeline.events[next].at_us));
        rows[event.lane][from..=to].fill(match activity {
            Activity::Lock => '=',
            Activity::Working => '-',
            Activity::Idle | Activity::Waiting | Activity::Paused => '·',
        });
    }
    for event in &timeline.events {
        if let Some(sign) = sign(&event.kind) {
            rows[event.lane][column(event.at_us)] = sign;
        }
    }
    rows.into_iter().map(|row| row.into_iter().collect()).collect()
}

/// Returns the columns of a terminal that a text takes: two for a Chinese character.
fn width_of(text: &str) -> usize {
    text.chars().map(|c| if is_chinese(c) { 2 } else { 1 }).sum()
}

/// Fills a text up with spaces to `width` columns.
fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(width_of(text))))
}

/// Punctuation that does not begin a line.
const STOPS: [char; 7] = ['，', '。', '：', '；', '、', '？', '）'];

/// Breaks text into lines of `width`, all but the first indented.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        let space = if line.is_empty() { 0 } else { 1 };
        let pieces: Vec<&str> = word.split_inclusive(is_chinese).collect();
        for (place, piece) in pieces.into_iter().enumerate() {
            let space = if place == 0 { space } else { 0 };
            let is_full = width_of(&line) + space + width_of(piece) > width;
            if !line.is_empty() && is_full && !piece.starts_with(STOPS) {
                lines.push(std::mem::take(&mut line));
            } else {
                line += &" ".repeat(space);
            }
            line += piece;
        }
    }
    lines.push(line);
    lines.join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::timeline::{Detail, Event, TimelineLane, Value};

    #[test]
    fn timeline_shows_interleaved_reads_and_writes() {
        let lane = |name: &str| TimelineLane {
            name: name.to_owned(),
            replica: "8080".to_owned(),
            is_duplicate: false,
        };
        let event = |(at_us, lane, kind, units): (u64, usize, EventKind, Option<i64>)| {
            let detail = Detail { value: units.map(Value::Units), ..Detail::default() };
            Event { lane, at_us, kind, detail }
        };
        let events = [
            (0, 0, EventKind::Sent, None),
            (10, 0, EventKind::Read, Some(57)),
            (20, 1, EventKind::Sent, None),
            (30, 1, EventKind::Read, Some(57)),
            (31, 1, EventKind::Write, Some(56)),
            (40, 1, EventKind::Committed, None),
            (50_000, 0, EventKind::Write, Some(56)),
            (59_000, 0, EventKind::Answered, None),
        ];
        let timeline =
            Timeline { lanes: vec![lane("A"), lane("B")], events: events.map(event).into() };
        let text = draw_timeline(&timeline, Language::English);
        let lines: Vec<&str> = text.lines().collect();
        // Eight times, four columns each: sent, r, (B:) sent, r, W, C, (A:) W, answered.
        assert_eq!(lines[0], "   8080 A ····r-------------------W---·");
        assert_eq!(lines[1], "   8080 B         ····r---W---C");
        assert!(lines.iter().any(|line| line.trim() == "0.0 ms  A  reads 57"), "{text}");
    }

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(wrapped("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrapped("读到 10，写入", 9, 2), "读到 10，\n  写入");
        assert_eq!(wrapped("读到，写入", 4, 2), "读到，\n  写入");
    }
}
