//! Record of a pass, and the events around a violation, for a drawing with a lane per client.

use super::protocol::{ReleaseAnswer, Turn, TurnOutcome};
use super::report::{ClientId, Event};

/// Events of a violation: those near its start and its end, of the clients in question first.
const MAX_EVENTS: usize = 80;
/// Events of the clients in question; a page shows a thousand.
const MAX_NEEDED: usize = 200;

/// The turns of all clients, and what the judge did to them. Times are microseconds of the
/// monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) began_us: u64,
    /// End of the work, before the last turns were finished.
    pub(super) ended_us: u64,
    pub(super) turns: Vec<Turn>,
    pub(super) marks: Vec<Mark>,
    /// Time in which the messages of a worker were late: it was stopped, or cut off.
    pub(super) stall: Option<Stall>,
    /// Time in which no client could reach Redis.
    pub(super) outage: Option<(u64, u64)>,
    /// Time over which a fault struck: again and again, or until the killed processes had ended.
    pub(super) struck: Option<(u64, u64)>,
    pub(super) last_error: Option<String>,
    /// The end of the stderr of an adapter.
    pub(super) last_words: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Mark {
    pub(super) at_us: u64,
    /// The client that held the lock.
    pub(super) id: ClientId,
    /// The server that it happened to; else it happened to the client's worker.
    pub(super) server: Option<&'static str>,
    pub(super) event: &'static str,
}

#[derive(Debug)]
pub(super) struct Stall {
    pub(super) worker: u32,
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}

impl Recording {
    pub(super) fn work_us(&self) -> u64 {
        self.ended_us.saturating_sub(self.began_us)
    }

    fn event(&self, at_us: u64, id: ClientId, event: &str) -> Event {
        Event {
            t_ms: ms(at_us.saturating_sub(self.began_us)),
            id,
            server: None,
            event: event.to_owned(),
            value: None,
            fence: None,
        }
    }
}

pub(super) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

/// Returns the events between two times by time, for `clients` also the others of these turns.
pub(super) fn events_between(
    recording: &Recording,
    from_us: u64,
    until_us: u64,
    clients: &[ClientId],
) -> Vec<Event> {
    if until_us == 0 {
        return Vec::new();
    }

    let span = from_us..=until_us;
    let mut events = Vec::new();
    for turn in &recording.turns {
        let last_us = turn.answered_us.max(turn.release_us).max(turn.released_us);
        if turn.answered_us > until_us || last_us < from_us {
            continue;
        }
        let whole = clients.contains(&turn.id);
        for (at_us, name, value, fence) in points_of(turn) {
            if at_us > 0 && (span.contains(&at_us) || whole) {
                events.push(Event { value, fence, ..recording.event(at_us, turn.id, name) });
            }
        }
    }
    let marks = recording.marks.iter().filter(|mark| span.contains(&mark.at_us));
    events.extend(marks.map(|mark| Event {
        server: mark.server.map(str::to_owned),
        ..recording.event(mark.at_us, mark.id, mark.event)
    }));
    events.sort_by(|one, other| one.t_ms.total_cmp(&other.t_ms));

    // Before some of them go: a page full of the clients in question has no room for others.
    let needed = events.iter().filter(|event| clients.contains(&event.id)).count();
    let room = MAX_EVENTS.saturating_sub(needed);
    keep_ends(&mut events, |event| clients.contains(&event.id), MAX_NEEDED / 2);
    keep_ends(&mut events, |event| !clients.contains(&event.id), room / 2);
    events
}

/// Returns the events of these turns, each given by its client and the time of its grant, with the
/// end of each lease that they outlived, and what happened meanwhile to their workers and to
/// servers.
pub(super) fn story(recording: &Recording, turns: &[(ClientId, u64)], lease_us: u64) -> Vec<Event> {
    let is_told = |turn: &&Turn| turns.contains(&(turn.id, turn.answered_us));
    let told: Vec<&Turn> = recording.turns.iter().filter(is_told).collect();
    let mut events = Vec::new();
    for turn in &told {
        let mut points = points_of(turn);
        let lease_end_us = turn.answered_us + lease_us;
        if turn.release_us > lease_end_us {
            points.push((lease_end_us, "lease-ends", None, None));
        }
        let happened = points.into_iter().filter(|(at_us, ..)| *at_us > 0);
        events.extend(happened.map(|(at_us, name, value, fence)| Event {
            value,
            fence,
            ..recording.event(at_us, turn.id, name)
        }));
    }

    let from_us = told.iter().map(|turn| turn.answered_us).min().unwrap_or(0);
    let until_us = told.iter().map(|turn| turn.release_us.max(turn.released_us)).max();
    let span = from_us..=until_us.unwrap_or(0);
    let meanwhile = recording.marks.iter().filter(|mark| span.contains(&mark.at_us));
    let is_theirs = |id: ClientId| told.iter().any(|turn| turn.id == id);
    let marks = meanwhile.filter(|mark| mark.server.is_some() || is_theirs(mark.id));
    events.extend(marks.map(|mark| Event {
        server: mark.server.map(str::to_owned),
        ..recording.event(mark.at_us, mark.id, mark.event)
    }));
    events.sort_by(|one, other| one.t_ms.total_cmp(&other.t_ms));
    events
}

/// Keeps of the selected events the first and the last `count`.
fn keep_ends(events: &mut Vec<Event>, is_selected: impl Fn(&Event) -> bool, count: usize) {
    let total = events.iter().filter(|event| is_selected(event)).count();
    let mut number = 0;
    events.retain(|event| {
        number += usize::from(is_selected(event));
        !is_selected(event) || number <= count || number + count > total
    });
}

/// Returns time, name, value and fence of each event of a turn.
fn points_of(turn: &Turn) -> Vec<(u64, &'static str, Option<i64>, Option<i64>)> {
    let mut points = vec![(turn.asked_us, "ask", None, None)];
    if turn.outcome != TurnOutcome::Granted {
        return points;
    }

    points.push((turn.answered_us, "granted", None, turn.fence));
    points.push((turn.read_us, "read", Some(turn.value), None));
    points.push((turn.wrote_us, "write", Some(turn.value - 1), None));
    if turn.refused {
        points.push((turn.release_us, "refused", None, turn.fence));
    }
    match turn.release {
        ReleaseAnswer::Ok => points.push((turn.released_us, "released", None, None)),
        ReleaseAnswer::Lost => points.push((turn.released_us, "lost", None, None)),
        ReleaseAnswer::None | ReleaseAnswer::Error | ReleaseAnswer::Cancelled => {}
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_can_show_all_events() {
        let turn = |number: u32| {
            let id = ClientId { worker: 0, client: number % 4 };
            let asked_us = u64::from(number) + 1;
            Turn { id, asked_us, answered_us: asked_us, ..Turn::default() }
        };
        let recording = Recording { turns: (0..4_000).map(turn).collect(), ..Recording::default() };
        let clients = [0, 1].map(|client| ClientId { worker: 0, client });
        let events = events_between(&recording, 1, 4_000, &clients);
        assert_eq!(events.len(), MAX_NEEDED);
        let times = |range: std::ops::Range<usize>| events[range].iter().map(|event| event.t_ms);
        assert!(times(0..100).all(|t_ms| t_ms < 0.3) && times(100..200).all(|t_ms| t_ms > 3.7));
        // Of others, as many as there is room for.
        assert_eq!(events_between(&recording, 1, 100, &clients).len(), MAX_EVENTS);
    }
}
