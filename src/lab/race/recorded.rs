//! Two recorded races, which a page without scripts shows: without a lock, and with one. They are
//! real races; `script/race-picture` records them.

use std::sync::LazyLock;

use serde::Deserialize;
use uuid::Uuid;

use super::model::{Race, RaceResult, RaceState};

static OFF: LazyLock<Race> = LazyLock::new(|| read(include_str!("recorded/off.json")));
static ON: LazyLock<Race> = LazyLock::new(|| read(include_str!("recorded/on.json")));

/// Returns the race without a lock.
pub fn off() -> &'static Race {
    &OFF
}

/// Returns the race under a lock.
pub fn on() -> &'static Race {
    &ON
}

/// A response of `GET /api/race/{id}`.
#[derive(Deserialize)]
struct RecordedRace {
    id: Uuid,
    lock: String,
    buyers: u16,
    stock: i64,
    #[serde(flatten)]
    result: Option<RaceResult>,
}

fn read(json: &str) -> Race {
    let race: Option<RecordedRace> = serde_json::from_str(json).ok();
    let (id, lock, buyers, stock, result) = race.map_or_else(
        || (Uuid::nil(), String::new(), 0, 0, None),
        |race| (race.id, race.lock, race.buyers, race.stock, race.result),
    );
    Race { id, state: RaceState::Done, position: None, lock, buyers, stock, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_races_show_oversell_and_cure() {
        let figures = |race: &Race| race.result.as_ref().map(|it| (it.sold, it.oversold, it.forks));
        assert_eq!(figures(off()), Some((2, 1, 1)));
        assert_eq!(figures(on()), Some((1, 0, 0)));
    }
}
