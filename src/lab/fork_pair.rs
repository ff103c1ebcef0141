//! The smallest example of a fork: of all forks of a run, the two requests that took the least
//! time.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::run::{ArmResult, ForkedVersion, LabRun, Lane};

/// Two requests that computed entries of one fork, in the order of the ledger.
#[derive(Debug)]
pub struct ForkPair<'a> {
    pub arm: &'a ArmResult,
    pub fork: &'a ForkedVersion,
    pub lanes: [&'a Lane; 2],
    /// Time from the first read to the last event.
    pub span_us: u64,
}

impl LabRun {
    /// Returns the traces by the ids of their requests.
    pub fn lanes(&self) -> BTreeMap<Uuid, &Lane> {
        self.outcome.lanes.iter().map(|lane| (lane.request_id, lane)).collect()
    }

    /// Returns, of all forks, the pair that took the least time from the first read to the last
    /// event; `None` if no fork has two traced requests.
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
    /// Returns the traces of its entries' requests, as far as they were traced.
    pub fn lanes<'a>(&self, lanes: &BTreeMap<Uuid, &'a Lane>) -> Vec<&'a Lane> {
        self.entries.iter().filter_map(|entry| lanes.get(&entry.request_id).copied()).collect()
    }
}

impl Lane {
    /// Returns the time of the read.
    pub fn read_us(&self) -> Option<u64> {
        self.events.iter().find(|event| event.event == "read").map(|event| event.t_us)
    }
}

/// Returns the two requests that took the least time from the first read to the last event, with
/// that time. Costs a sort and a pass, not a look at all pairs.
fn shortest_pair<'a>(lanes: &[&'a Lane]) -> Option<(u64, [&'a Lane; 2])> {
    let times = lanes.iter().enumerate().filter_map(|(place, lane)| {
        let last = lane.events.last().map(|event| event.t_us)?;
        Some((lane.read_us()?, last, place))
    });
    let mut times: Vec<(u64, u64, usize)> = times.collect();
    times.sort_unstable();
    let mut best: Option<(u64, usize, usize)> = None;
    // Of the requests that read later, the one that ended first.
    let mut earliest: Option<(u64, usize)> = None;
    for &(read, last, place) in times.iter().rev() {
        if let Some((other_last, other)) = earliest {
            let span = last.max(other_last).saturating_sub(read);
            let pair = (span, place.min(other), place.max(other));
            best = Some(best.map_or(pair, |best| best.min(pair)));
        }
        earliest = Some(earliest.map_or((last, place), |first| first.min((last, place))));
    }
    best.map(|(span, one, other)| (span, [lanes[one], lanes[other]]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares it with a search of all pairs, for 200 forks of pseudorandom times.
    #[test]
    fn shortest_pair_is_least_of_all() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for fork in 0..200 {
            let lane = |read: u64, last: u64| -> Lane {
                let event = |t: u64, name: &str| json!({ "t_us": t, "event": name, "key": "k" });
                let lane = json!({
                    "request_id": Uuid::nil(), "label": "", "replica": "", "sent_us": 0,
                    "events": [event(read, "read"), event(last, "commit")],
                });
                serde_json::from_value(lane).unwrap_or_else(|error| panic!("{error}"))
            };
            let lanes: Vec<Lane> = (0..2 + fork % 9)
                .map(|_| {
                    let read = random(50);
                    lane(read, read + random(50))
                })
                .collect();
            let span = |one: &Lane, other: &Lane| {
                let ends = |lane: &Lane| (lane.events[0].t_us, lane.events[1].t_us);
                let (one, other) = (ends(one), ends(other));
                one.1.max(other.1) - one.0.min(other.0)
            };
            let all = lanes.iter().enumerate().flat_map(|(place, one)| {
                lanes[place + 1..].iter().map(move |other| span(one, other))
            });
            let found = shortest_pair(&lanes.iter().collect::<Vec<_>>());
            assert_eq!(found.map(|(least, _)| least), all.min(), "{lanes:?}");
            if let Some((least, [one, other])) = found {
                assert_eq!(span(one, other), least);
            }
        }
    }

    #[test]
    fn fork_of_one_request_has_no_pair() {
        assert!(shortest_pair(&[]).is_none());
    }
}
