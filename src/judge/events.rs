//! The events around a violation, for a drawing with a lane per client.

use super::measures::ms;
use super::protocol::{ReleaseAnswer, TurnOutcome};
use super::recording::{RecordedTurn, Recording};
use super::report::{ClientId, Event};

/// Events of a violation: those near its start and its end, of the clients in question first.
const MAX_EVENTS: usize = 80;
/// Events of the clients in question; a page shows a thousand.
const MAX_NEEDED: usize = 200;

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
    let began_us = recording.began_us;
    let inside = |at_us: u64| (from_us..=until_us).contains(&at_us);
    let mut events: Vec<(u64, ClientId, Event)> = Vec::new();
    for recorded in &recording.turns {
        let turn = &recorded.turn;
        let overlaps = turn.answered_us <= until_us && last_us(recorded) >= from_us;
        if !overlaps {
            continue;
        }
        let whole = clients.contains(&recorded.id);
        let of_turn = events_of(recorded, began_us).into_iter();
        let kept = of_turn.filter(|(at_us, _)| inside(*at_us) || whole);
        events.extend(kept.map(|(at_us, event)| (at_us, recorded.id, event)));
    }
    for mark in recording.marks.iter().filter(|mark| inside(mark.at_us)) {
        events.push((mark.at_us, mark.id, event(mark.id, mark.event, mark.at_us, began_us)));
    }
    events.sort_by_key(|(at_us, ..)| *at_us);
    let is_needed = |id: &ClientId| clients.contains(id);
    let needed = events.iter().filter(|(_, id, _)| is_needed(id)).count();
    let room = MAX_EVENTS.saturating_sub(needed);
    keep_ends(&mut events, |(_, id, _)| is_needed(id), MAX_NEEDED / 2);
    keep_ends(&mut events, |(_, id, _)| !is_needed(id), room / 2);
    events.into_iter().map(|(_, _, event)| event).collect()
}

/// Keeps of the selected events the first and the last `count`.
fn keep_ends<T>(events: &mut Vec<T>, is_selected: impl Fn(&T) -> bool, count: usize) {
    let total = events.iter().filter(|event| is_selected(event)).count();
    let mut number = 0;
    events.retain(|event| {
        number += usize::from(is_selected(event));
        !is_selected(event) || number <= count || number + count > total
    });
}

fn last_us(recorded: &RecordedTurn) -> u64 {
    let turn = &recorded.turn;
    turn.answered_us.max(turn.release_us).max(turn.released_us)
}

/// Returns the events of a turn with their times.
fn events_of(recorded: &RecordedTurn, began_us: u64) -> Vec<(u64, Event)> {
    let turn = &recorded.turn;
    let mut events = Vec::new();
    let mut add = |at_us: u64, name: &str, value: Option<i64>, fence: Option<i64>| {
        if at_us > 0 {
            let event = event(recorded.id, name, at_us, began_us);
            events.push((at_us, Event { value, fence, ..event }));
        }
    };
    add(turn.asked_us, "ask", None, None);
    if turn.outcome != TurnOutcome::Granted {
        return events;
    }
    add(turn.answered_us, "granted", None, turn.fence);
    add(turn.read_us, "read", Some(turn.value), None);
    add(turn.wrote_us, "write", Some(turn.value - 1), None);
    if turn.refused {
        add(turn.release_us, "refused", None, turn.fence);
    }
    match turn.release {
        ReleaseAnswer::Ok => add(turn.released_us, "released", None, None),
        ReleaseAnswer::Lost => add(turn.released_us, "lost", None, None),
        ReleaseAnswer::None | ReleaseAnswer::Error => {}
    }
    events
}

fn event(id: ClientId, name: &str, at_us: u64, began_us: u64) -> Event {
    Event {
        t_ms: ms(at_us.saturating_sub(began_us)),
        worker: id.worker,
        client: id.client,
        event: name.to_owned(),
        value: None,
        fence: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::protocol::Turn;

    #[test]
    fn page_can_show_all_events() {
        let turn = |number: u32| {
            let id = ClientId { worker: 0, client: number % 4 };
            let asked_us = u64::from(number) + 1;
            let times = Turn { asked_us, answered_us: asked_us, ..Turn::default() };
            RecordedTurn { id, turn: Turn { number, client: id.client, ..times } }
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
