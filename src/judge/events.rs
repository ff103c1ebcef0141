//! The events around a violation, for a drawing with a lane per client.

use super::measures::ms;
use super::protocol::{ClientId, ReleaseAnswer, TurnOutcome};
use super::recording::{RecordedTurn, Recording};
use super::report::Event;

/// Events of a violation. Those of the clients in question are kept; of the others, those near its
/// start and its end.
const MAX_EVENTS: usize = 80;

/// Returns the events between two times by time, those of `clients` in any case.
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
    let mut room = MAX_EVENTS;
    let needed = events.iter().filter(|(_, id, _)| clients.contains(id)).count();
    room = room.saturating_sub(needed);
    let others = events.len() - needed;
    let mut number = 0;
    events.retain(|(_, id, _)| {
        if clients.contains(id) {
            return true;
        }
        number += 1;
        number <= room / 2 || number > others - room / 2
    });
    events.into_iter().map(|(_, _, event)| event).collect()
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
