//! Two recorded races, which a page without scripts shows: without a lock, and with one. They are
//! responses of `GET /api/race/{id}`; `script/race-picture` records them.

use std::sync::LazyLock;

use super::model::Race;

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

fn read(json: &str) -> Race {
    serde_json::from_str(json).unwrap_or_default()
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
