//! Draws a run as text: measurements in columns, requests as swimlanes.

use super::lessons::Lesson;
use super::run::{ArmResult, Evidence, LabRun, Lane, LaneEvent, Sample};
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

/// The signs of events in a lane; `swimlane-event-NAME` describes them.
const SIGNS: [(&str, char); 12] = [
    ("wait", 'w'),
    ("held", 'h'),
    ("read", 'r'),
    ("write", 'W'),
    ("commit", 'c'),
    ("committed", 'C'),
    ("release", 'R'),
    ("expire", 'e'),
    ("delete", 'd'),
    ("paused", 'P'),
    ("resumed", '>'),
    ("killed", 'X'),
];

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
    let mut lanes = selected_lanes(run);
    lanes.sort_by_key(|lane| lane.sent_us);
    if !lanes.is_empty() {
        text += &draw_swimlane(&lanes, language);
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

/// Returns the requests that were sent individually; without any, the shortest pair of a fork.
fn selected_lanes(run: &LabRun) -> Vec<&Lane> {
    let lanes = run.outcome.lanes.iter();
    let single: Vec<&Lane> = lanes.filter(|lane| lane.arm.is_none()).take(MAX_LANES).collect();
    match run.shortest_fork() {
        Some(pair) if single.is_empty() => pair.lanes.into(),
        _ => single,
    }
}

/// Draws a row per request and its events in columns, in order of time; gaps are shortened.
fn draw_swimlane(lanes: &[&Lane], language: Language) -> String {
    let begin = lanes.iter().map(|lane| lane.sent_us).min().unwrap_or(0);
    let mut event_times: Vec<u64> = lanes.iter().flat_map(|lane| event_times(lane)).collect();
    event_times.sort_unstable();
    event_times.dedup();
    let columns = event_times.len().max(2);
    let step = (AXIS / columns).clamp(1, MAX_STEP);
    let column = |t_us: u64| event_times.partition_point(|time| *time < t_us) * step;
    let axis = (event_times.len().saturating_sub(1)) * step + 1;
    let width = lanes.iter().map(|lane| width_of(&lane.label.text(language))).max().unwrap_or(0);
    let mut text = String::new();
    for lane in lanes {
        let line: String = draw_lane(lane, axis, column).into_iter().collect();
        let label = pad(&lane.label.text(language), width);
        text += &format!("  {:>5} {label} {}\n", lane.replica, line.trim_end());
    }
    let legend = language.text("terminal-legend");
    text += &legend.lines().map(|line| format!("  {line}\n")).collect::<String>();
    text.push('\n');
    let mut events: Vec<(&Lane, &LaneEvent)> =
        lanes.iter().flat_map(|lane| shown_events(lane).map(move |event| (*lane, event))).collect();
    events.sort_by_key(|(_, event)| event.t_us);
    let more = events.len().saturating_sub(MAX_EVENTS);
    for (lane, event) in events.into_iter().take(MAX_EVENTS) {
        let at = ms(event.t_us.saturating_sub(begin));
        let label = pad(&lane.label.text(language), width);
        text += &format!("  {at:>10}  {label}  {}\n", describe(event, language));
    }
    if more > 0 {
        let count = [("count", more.to_string().into())];
        text += &format!("  {}\n", language.text_with("terminal-more-events", &count));
    }
    text
}

/// Returns the times of a request's events, of its sending and of its response.
fn event_times(lane: &Lane) -> impl Iterator<Item = u64> {
    let events = shown_events(lane).map(|event| event.t_us);
    events.chain([lane.sent_us]).chain(lane.answered_us)
}

/// Returns a request's events, without `wait` and `release` if it succeeded without a lock.
fn shown_events(lane: &Lane) -> impl Iterator<Item = &LaneEvent> {
    let done = lane.status.is_some_and(|status| status < 300);
    let unlocked = done && !lane.events.iter().any(|event| event.event == "held");
    let shown =
        move |event: &&LaneEvent| !(unlocked && matches!(event.event.as_str(), "wait" | "release"));
    lane.events.iter().filter(shown)
}

fn draw_lane(lane: &Lane, axis: usize, column: impl Fn(u64) -> usize) -> Vec<char> {
    let mut line = vec![' '; axis];
    let last = event_times(lane).max().unwrap_or(lane.sent_us);
    let mut fill = |from: u64, to: u64, with: char| {
        for cell in &mut line[column(from)..=column(to)] {
            *cell = with;
        }
    };
    let at = |name: &str| lane.events.iter().find(|e| e.event == name).map(|e| e.t_us);
    fill(lane.sent_us, last, '·');
    if let Some(held) = at("held") {
        fill(held, at("release").unwrap_or(last), '=');
    }
    if let Some(read) = at("read") {
        fill(read, at("write").unwrap_or(last), '-');
    }
    for event in shown_events(lane) {
        line[column(event.t_us)] = find_sign(&event.event).unwrap_or('*');
    }
    line
}

/// Describes an event in words; one without a message by its name.
fn describe(event: &LaneEvent, language: Language) -> String {
    if find_sign(&event.event).is_none() {
        return event.event.clone();
    }
    let value = event.value.map(|value| value.to_string()).unwrap_or_default();
    let id = format!("swimlane-event-{}", event.event);
    let text = language.text_with(&id, &[("value", value.into())]);
    match event.fence {
        Some(fence) => {
            let fence = [("text", text.into()), ("fence", fence.to_string().into())];
            language.text_with("swimlane-with-fence", &fence)
        }
        None => text,
    }
}

fn find_sign(event: &str) -> Option<char> {
    SIGNS.iter().find(|(name, _)| *name == event).map(|(_, sign)| *sign)
}

/// Formats microseconds as milliseconds.
pub(crate) fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1_000.0)
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
    use uuid::Uuid;

    use super::*;

    fn event(t_us: u64, name: &str, value: Option<i64>) -> LaneEvent {
        let (event, key) = (name.to_owned(), "{sku:tea}".to_owned());
        LaneEvent { t_us, event, key, value, fence: None }
    }

    #[test]
    fn swimlane_shows_interleaved_reads_and_writes() {
        let lane = |label: &str, sent_us, answered_us, events| Lane {
            request_id: Uuid::nil(),
            label: label.into(),
            replica: "8080".to_owned(),
            arm: None,
            sent_us,
            answered_us: Some(answered_us),
            status: Some(201),
            problem: None,
            events,
        };
        let a = vec![event(10, "read", Some(57)), event(50_000, "write", Some(56))];
        let b = vec![event(30, "read", Some(57)), event(31, "write", Some(56))];
        let (a, b) = (lane("A", 0, 59_000, a), lane("B", 20, 40, b));
        let text = draw_swimlane(&[&a, &b], Language::English);
        let lines: Vec<&str> = text.lines().collect();
        // Nine times, four columns each: sent, r, (B:) sent, r, W, answered, (A:) W, answered.
        assert_eq!(lines[0], "   8080 A ····r-------------------W····");
        assert_eq!(lines[1], "   8080 B         ····r---W····");
        assert!(lines.iter().any(|line| line.trim() == "0.0 ms  A  reads 57"), "{text}");
    }

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(wrapped("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrapped("读到 10，写入", 9, 2), "读到 10，\n  写入");
        assert_eq!(wrapped("读到，写入", 4, 2), "读到，\n  写入");
    }
}
