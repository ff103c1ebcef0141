//! Bounds the lines that requests write to the log: one per kind and [`INTERVAL`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const INTERVAL: Duration = Duration::from_secs(5);

/// The time of each kind's last line, and the number of lines that were left out since.
static LAST_LINES: Mutex<BTreeMap<&str, (Instant, u64)>> = Mutex::new(BTreeMap::new());

/// Returns the number of lines of this kind that were left out before, if a line may be written.
pub fn admit(kind: &'static str) -> Option<u64> {
    admit_at(kind, Instant::now())
}

fn admit_at(kind: &'static str, now: Instant) -> Option<u64> {
    let mut last_lines = LAST_LINES.lock();
    match last_lines.get_mut(kind) {
        Some((at, left_out)) if now - *at < INTERVAL => {
            *left_out += 1;
            None
        }
        _ => Some(last_lines.insert(kind, (now, 0)).map_or(0, |(_, left_out)| left_out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_left_out_are_counted() {
        let now = Instant::now();
        assert_eq!(admit_at("test", now), Some(0));
        assert_eq!(admit_at("test", now), None);
        assert_eq!(admit_at("test", now), None);
        assert_eq!(admit_at("another test", now), Some(0));
        assert_eq!(admit_at("test", now + INTERVAL), Some(2));
        assert_eq!(admit_at("test", now + INTERVAL), None);
    }
}
