//! Record of a pass, and the events around a violation, for a drawing with a lane per client.

use holdfast_story::{Detail, EventKind, TimelineEvent, Value};

use super::protocol::{ReleaseAnswer, Turn, TurnOutcome};
use super::report::{Actor, ClientId};

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
    /// Events of a server while this client held the lock; else of the client's worker.
    pub(super) marks: Vec<TimelineEvent<Actor>>,
    /// Time in which the messages of a worker were late: it was stopped, or cut off.
    pub(super) stall: Option<Stall>,
    /// Time in which no client could reach Redis.
    pub(super) outage: Option<(u64, u64)>,
    /// Time over which a fault struck: again and again, or until the killed processes had ended.
    pub(super) struck: Option<(u64, u64)>,
    /// Connections of a worker that a fault of the network struck.
    pub(super) struck_connections: Option<usize>,
    /// No connection went through a proxy before a server of the user's own, although there is one.
    pub(super) bypassed: bool,
    pub(super) last_error: Option<String>,
    /// The end of the stderr of an adapter.
    pub(super) last_words: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Stall {
    pub(super) worker: u32,
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}

impl Recording {
    pub(super) fn has_grant(&self) -> bool {
        self.turns.iter().any(|turn| turn.outcome == TurnOutcome::Granted)
    }

    pub(super) fn work_us(&self) -> u64 {
        self.ended_us.saturating_sub(self.began_us)
    }

    /// Returns an event with its time since the work began.
    fn since_began(&self, event: TimelineEvent<Actor>) -> TimelineEvent<Actor> {
        TimelineEvent { at_us: event.at_us.saturating_sub(self.began_us), ..event }
    }

    /// Returns what the judge did between two times.
    fn marks(&self, from_us: u64, until_us: u64) -> impl Iterator<Item = TimelineEvent<Actor>> {
        let marks = self.marks.iter();
        let marks = marks.filter(move |mark| (from_us..=until_us).contains(&mark.at_us));
        marks.map(|mark| self.since_began(mark.clone()))
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
) -> Vec<TimelineEvent<Actor>> {
    if until_us == 0 {
        return Vec::new();
    }

    let span = from_us..=until_us;
    // To one of the clients, or to a server while one held the lock.
    let is_theirs = |event: &TimelineEvent<Actor>| clients.contains(&event.lane.id);
    let mut events = Vec::new();
    for turn in &recording.turns {
        let last_us = turn.answered_us.max(turn.release_us).max(turn.released_us);
        if turn.answered_us > until_us || last_us < from_us {
            continue;
        }
        let whole = clients.contains(&turn.id);
        let shown =
            events_of(turn).into_iter().filter(|event| whole || span.contains(&event.at_us));
        events.extend(shown.map(|event| recording.since_began(event)));
    }
    events.extend(recording.marks(from_us, until_us));
    events.sort_by_key(|event| event.at_us);

    // Before some of them go: a page full of the clients in question has no room for others.
    let needed = events.iter().filter(|event| is_theirs(event)).count();
    let room = MAX_EVENTS.saturating_sub(needed);
    keep_ends(&mut events, is_theirs, MAX_NEEDED / 2);
    keep_ends(&mut events, |event| !is_theirs(event), room / 2);
    events
}

/// Returns the events of these turns, each given by its client and the time of its grant, with the
/// end of each lease that they outlived, and the events of their workers and of servers during
/// that time.
pub(super) fn story(
    recording: &Recording,
    turns: &[(ClientId, u64)],
    lease_us: u64,
) -> Vec<TimelineEvent<Actor>> {
    let is_told = |turn: &&Turn| turns.contains(&(turn.id, turn.answered_us));
    let told: Vec<&Turn> = recording.turns.iter().filter(is_told).collect();
    let mut events = Vec::new();
    for turn in &told {
        events.extend(events_of(turn));
        let lease_end_us = turn.answered_us + lease_us;
        if turn.release_us > lease_end_us {
            events.push(TimelineEvent::new(actor(turn), lease_end_us, EventKind::LeaseEnds));
        }
    }
    let mut events: Vec<_> = events.into_iter().map(|event| recording.since_began(event)).collect();

    let from_us = told.iter().map(|turn| turn.answered_us).min().unwrap_or(0);
    let until_us = told.iter().map(|turn| turn.release_us.max(turn.released_us)).max();
    let meanwhile = recording.marks(from_us, until_us.unwrap_or(0));
    let is_theirs = |id: ClientId| told.iter().any(|turn| turn.id == id);
    events.extend(meanwhile.filter(|it| it.lane.server.is_some() || is_theirs(it.lane.id)));
    events.sort_by_key(|event| event.at_us);
    events
}

/// Keeps of the selected events the first and the last `count`.
fn keep_ends(
    events: &mut Vec<TimelineEvent<Actor>>,
    is_selected: impl Fn(&TimelineEvent<Actor>) -> bool,
    count: usize,
) {
    let total = events.iter().filter(|event| is_selected(event)).count();
    let mut number = 0;
    events.retain(|event| {
        number += usize::from(is_selected(event));
        !is_selected(event) || number <= count || number + count > total
    });
}

/// Returns the events of a turn.
fn events_of(turn: &Turn) -> Vec<TimelineEvent<Actor>> {
    let event = |at_us, kind| TimelineEvent::new(actor(turn), at_us, kind);
    let with_value = |at_us, kind, value| {
        let detail = Detail { value: Some(Value::Units(value)), ..Detail::default() };
        TimelineEvent { detail, ..event(at_us, kind) }
    };
    let with_fence = |at_us, kind| {
        let detail = Detail { fence: turn.fence, ..Detail::default() };
        TimelineEvent { detail, ..event(at_us, kind) }
    };

    let mut events = vec![event(turn.asked_us, EventKind::Wait)];
    if turn.outcome == TurnOutcome::Granted {
        events.push(with_fence(turn.answered_us, EventKind::Held));
        events.push(with_value(turn.read_us, EventKind::Read, turn.value));
        events.push(with_value(turn.wrote_us, EventKind::Write, turn.value - 1));
        if turn.refused {
            events.push(with_fence(turn.release_us, EventKind::Refused));
        }
        match turn.release {
            ReleaseAnswer::Ok => events.push(event(turn.released_us, EventKind::Release)),
            ReleaseAnswer::Lost => events.push(event(turn.released_us, EventKind::Lost)),
            ReleaseAnswer::None | ReleaseAnswer::Error | ReleaseAnswer::Cancelled => {}
        }
    }
    // What did not happen has no time.
    events.retain(|event| event.at_us > 0);
    events
}

fn actor(turn: &Turn) -> Actor {
    Actor { server: None, id: turn.id }
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
        let times = |range: std::ops::Range<usize>| events[range].iter().map(|event| event.at_us);
        assert!(
            times(0..100).all(|at_us| at_us < 300) && times(100..200).all(|at_us| at_us > 3_700)
        );
        // Of others, as many as there is room for.
        assert_eq!(events_between(&recording, 1, 100, &clients).len(), MAX_EVENTS);
    }
}
