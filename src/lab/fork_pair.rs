//! The smallest example of a fork: the two requests that took the least time.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::run::{ArmResult, ForkedVersion, LabRun, Lane};

#[derive(Debug)]
pub struct ForkPair<'a> {
    pub arm: &'a ArmResult,
    pub fork: &'a ForkedVersion,
    pub lanes: [&'a Lane; 2],
    /// Time from the first read to the last event.
    pub span_us: u64,
}

impl LabRun {
    pub fn lanes(&self) -> BTreeMap<Uuid, &Lane> {
        self.outcome.lanes.iter().map(|lane| (lane.request_id, lane)).collect()
    }

    /// Returns, of all forks with two traced requests, the pair that took the least time.
    pub fn shortest_fork(&self) -> Option<ForkPair<'_>> {
        let lanes = self.lanes();
        let forks =
            self.outcome.arms.iter().flat_map(|arm| arm.forked.iter().map(move |f| (arm, f)));
        let pairs = forks.filter_map(|(arm, fork)| {
            let (span_us, lanes) = shortest_pair(&fork.lanes(&lanes))?;
            Some(ForkPair { arm, fork, lanes, span_us })
        });
        pairs.min_by_key(|pair| pair.span_us)
    }
}

impl ForkedVersion {
    pub fn lanes<'a>(&self, lanes: &BTreeMap<Uuid, &'a Lane>) -> Vec<&'a Lane> {
        self.entries.iter().filter_map(|entry| lanes.get(&entry.request_id).copied()).collect()
    }
}

impl Lane {
    pub fn read_us(&self) -> Option<u64> {
        self.events.iter().find(|event| event.event == "read").map(|event| event.t_us)
    }
}

/// Returns, of the requests that read one after the other, the two that took the least time from
/// the first read to the last event, with that time.
fn shortest_pair<'a>(lanes: &[&'a Lane]) -> Option<(u64, [&'a Lane; 2])> {
    let times = lanes.iter().enumerate().filter_map(|(place, lane)| {
        let last_us = lane.events.last()?.t_us;
        Some((lane.read_us()?, last_us, place))
    });
    let mut times: Vec<(u64, u64, usize)> = times.collect();
    times.sort_unstable();

    let pairs = times.windows(2).filter_map(|pair| {
        let [(read_us, last_us, one), (_, other_last_us, other)] = pair else { return None };
        let span_us = last_us.max(other_last_us).saturating_sub(*read_us);
        Some((span_us, *one.min(other), *one.max(other)))
    });
    pairs.min().map(|(span_us, one, other)| (span_us, [lanes[one], lanes[other]]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shortest_pair_took_least_time() {
        let lanes = [(500, 900), (10, 70), (40, 60), (45, 400)].map(|(read, last)| -> Lane {
            let event = |t: u64, name: &str| json!({ "t_us": t, "event": name, "key": "k" });
            let lane = json!({
                "request_id": Uuid::nil(), "label": "", "replica": "", "sent_us": 0,
                "events": [event(read, "read"), event(last, "commit")],
            });
            serde_json::from_value(lane).unwrap_or_else(|error| panic!("{error}"))
        });
        let lanes: Vec<&Lane> = lanes.iter().collect();
        let (span_us, pair) = shortest_pair(&lanes).expect("there is a pair");
        assert_eq!((span_us, pair), (60, [lanes[1], lanes[2]]));
        assert!(shortest_pair(&lanes[..1]).is_none());
    }
}
