//! Draws a run as text: measurements in columns, requests as swimlanes.

use super::lessons::Lesson;
use super::run::{ArmResult, Evidence, LabRun, Lane, LaneEvent, Sample};
use crate::messages::Language;

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

/// Events with their sign in a lane and their description.
const EVENTS: [(&str, char, &str); 12] = [
    ("wait", 'w', "requests the lock"),
    ("held", 'h', "acquires the lock{fence}"),
    ("read", 'r', "reads{value}{fence}"),
    ("write", 'W', "writes{value}{fence}"),
    ("commit", 'c', "before the commit"),
    ("committed", 'C', "committed"),
    ("release", 'R', "releases the lock"),
    ("expire", 'e', "created the key, before EXPIRE"),
    ("delete", 'd', "checked the owner, before DEL"),
    ("paused", 'P', "process paused"),
    ("resumed", '>', "process resumed"),
    ("killed", 'X', "process killed"),
];

pub(super) fn draw_heading(lesson: &Lesson, language: Language) -> String {
    let (number, title) = (lesson.number(), lesson.title(language));
    let claim = wrapped(&lesson.claim(language), WIDTH - 2, 2);
    format!("{number}. {title} ({})\n  {claim}\n\n", lesson.name)
}

pub(super) fn draw_step(number: usize, step: &str) -> String {
    format!("{number:>3}. {}", wrapped(step, WIDTH - 5, 5))
}

pub(super) fn draw_sample(strategy: &str, sample: &Sample) -> String {
    format!(
        "     {strategy}: sold {}, stock {}, oversold {}, waiting {}",
        sample.sold, sample.stock, sample.oversold, sample.waiting
    )
}

pub(super) fn draw_result(run: &LabRun, lesson: &Lesson, language: Language) -> String {
    let outcome = &run.outcome;
    let mut text = String::from("\n");
    if !outcome.arms.is_empty() {
        text += &draw_arms(&outcome.arms, language);
        text.push('\n');
    }
    if !outcome.evidence.is_empty() {
        let name = |evidence: &Evidence| run.text(&evidence.name, language);
        let names = outcome.evidence.iter().map(|evidence| name(evidence).chars().count());
        let width = names.max().unwrap_or(0);
        for evidence in &outcome.evidence {
            let (name, ok) = (name(evidence), evidence.ok);
            let value = run.text(&evidence.value, language);
            let mark = if ok { "" } else { "  (contradicts the claim)" };
            text += &format!("  {name:width$}  {value}{mark}\n");
        }
        text.push('\n');
    }
    let mut lanes = selected_lanes(run);
    lanes.sort_by_key(|lane| lane.sent_us);
    if !lanes.is_empty() {
        text += &draw_swimlane(&lanes);
        text.push('\n');
    }
    let mark = match outcome.claim_shown {
        Some(true) => "SHOWN",
        Some(false) => "NOT SHOWN",
        None => "FAILED",
    };
    text += &format!("{mark}: {}\n\n", wrapped(&run.text(&outcome.verdict, language), WIDTH, 2));
    for sentence in lesson.takeaways(language) {
        text += &format!("  - {}\n", wrapped(&sentence, WIDTH - 4, 4));
    }
    if let Some(next) = lesson.next() {
        text += &format!("\nNext: holdfast lesson {}\n", next.name);
    }
    text
}

fn draw_arms(arms: &[ArmResult], language: Language) -> String {
    let width = arms.iter().map(|arm| arm.name(language).chars().count()).max().unwrap_or(0).max(8);
    let mut text = format!(
        "  {:width$} {:>7} {:>6} {:>6} {:>9} {:>10} {:>6} {:>9} {:>8} {:>8}\n",
        "", "opening", "sold", "left", "oversold", "undersold", "forks", "orders/s", "p50", "p99"
    );
    for arm in arms {
        text += &format!(
            "  {:width$} {:>7} {:>6} {:>6} {:>9} {:>10} {:>6} {:>9.0} {:>5.0} ms {:>5.0} ms  {}\n",
            arm.name(language),
            arm.stock_opening,
            arm.sold,
            arm.stock,
            arm.oversold,
            arm.undersold,
            arm.forks,
            arm.orders_per_s,
            arm.wait_p50_ms,
            arm.wait_p99_ms,
            if arm.ok { "sound" } else { "NOT SOUND" }
        );
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
fn draw_swimlane(lanes: &[&Lane]) -> String {
    let begin = lanes.iter().map(|lane| lane.sent_us).min().unwrap_or(0);
    let mut event_times: Vec<u64> = lanes.iter().flat_map(|lane| event_times(lane)).collect();
    event_times.sort_unstable();
    event_times.dedup();
    let columns = event_times.len().max(2);
    let step = (AXIS / columns).clamp(1, MAX_STEP);
    let column = |t_us: u64| event_times.partition_point(|time| *time < t_us) * step;
    let axis = (event_times.len().saturating_sub(1)) * step + 1;
    let width = lanes.iter().map(|lane| lane.label.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for lane in lanes {
        let line: String = draw_lane(lane, axis, column).into_iter().collect();
        text += &format!("  {:>5} {:width$} {}\n", lane.replica, lane.label, line.trim_end());
    }
    text += "  in order of time, gaps shortened:  · in flight  = holds the lock  - between read and write\n  \
             w requests the lock, h acquires it, r reads, W writes, c before the commit, C committed,\n  \
             R releases the lock, e before EXPIRE, d before DEL, P paused, > resumed, X killed\n\n";
    let mut events: Vec<(&Lane, &LaneEvent)> =
        lanes.iter().flat_map(|lane| shown_events(lane).map(move |event| (*lane, event))).collect();
    events.sort_by_key(|(_, event)| event.t_us);
    let more = events.len().saturating_sub(MAX_EVENTS);
    for (lane, event) in events.into_iter().take(MAX_EVENTS) {
        let at = ms(event.t_us.saturating_sub(begin));
        text += &format!("  {at:>10}  {:width$}  {}\n", lane.label, describe(event));
    }
    if more > 0 {
        text += &format!("  … and {more} more events, on the page of the run\n");
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
        line[column(event.t_us)] = find_event(&event.event).map_or('*', |(_, sign, _)| *sign);
    }
    line
}

fn describe(event: &LaneEvent) -> String {
    let value = event.value.map(|value| format!(" {value}")).unwrap_or_default();
    let fence = event.fence.map(|fence| format!(" (fence {fence})")).unwrap_or_default();
    describe_event(&event.event, &value, &fence)
}

/// Describes an event. `value` and `fence` are formatted; only acquiring the lock (the fence),
/// reading and writing mention them.
fn describe_event(event: &str, value: &str, fence: &str) -> String {
    let text = find_event(event).map_or("{event}{value}{fence}", |(.., text)| *text);
    text.replace("{event}", event).replace("{value}", value).replace("{fence}", fence)
}

fn find_event(event: &str) -> Option<&'static (&'static str, char, &'static str)> {
    EVENTS.iter().find(|(name, ..)| *name == event)
}

/// Formats microseconds as milliseconds.
pub(crate) fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1_000.0)
}

/// Breaks text into lines of `width`, all but the first indented.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
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
            label: label.to_owned(),
            replica: "8080".to_owned(),
            arm: None,
            sent_us,
            answered_us: Some(answered_us),
            status: Some(201),
            events,
        };
        let a = vec![event(10, "read", Some(57)), event(50_000, "write", Some(56))];
        let b = vec![event(30, "read", Some(57)), event(31, "write", Some(56))];
        let (a, b) = (lane("A", 0, 59_000, a), lane("B", 20, 40, b));
        let text = draw_swimlane(&[&a, &b]);
        let lines: Vec<&str> = text.lines().collect();
        // Nine times, four columns each: sent, r, (B:) sent, r, W, answered, (A:) W, answered.
        assert_eq!(lines[0], "   8080 A ····r-------------------W····");
        assert_eq!(lines[1], "   8080 B         ····r---W····");
        assert!(lines.iter().any(|line| line.trim() == "0.0 ms  A  reads 57"), "{text}");
    }

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(wrapped("one two three", 7, 2), "one two\n  three");
    }
}
