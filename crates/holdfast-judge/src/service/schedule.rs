//! Schedules: which of two requests goes on when.

use std::collections::HashSet;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

/// Switches of a random schedule: all with fewer are tried before.
const RANDOM_SWITCHES: std::ops::RangeInclusive<usize> = 3..=5;
/// Number of reads, the last ones, that are tried with patience, which may take a second each time.
/// What an order reads last before it writes, it reads under its lock, if it takes one.
const PATIENT_READS: usize = 2;

/// The order in which the statements of two requests pass. A request that waits for the other does
/// not hold it up for long: then the other one goes on, whosever turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Schedule {
    /// The request that begins: 0 or 1.
    pub(super) first: usize,
    /// Number of statements after which the turn goes to the other request; after the last switch,
    /// to the end.
    pub(super) switches: Vec<usize>,
    /// A request that waits may give that up, and do something else, before the other one goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) patient: bool,
}

impl Schedule {
    /// Returns the schedules with at most two switches, of requests with `statements` statements.
    /// Those come first that find the most: one request after the other, each statement by turns,
    /// and a switch after one of the `reads`, which are numbers of statements; after the last of
    /// these also with patience. Those with two switches have no order, so that none is left out
    /// for want of time only because of its place.
    pub(super) fn systematic(statements: usize, reads: &[usize], random: &mut StdRng) -> Vec<Self> {
        let both = |switches: Vec<usize>| {
            [0, 1].map(|first| Self { first, switches: switches.clone(), patient: false })
        };
        let places = 1..statements.max(1);
        let after_reads = reads.iter().filter(|read| places.contains(read));
        let last_reads = after_reads.clone().rev().take(PATIENT_READS);
        let patient = last_reads
            .flat_map(|read| both(vec![*read]))
            .map(|schedule| Self { patient: true, ..schedule });
        let pairs = places.clone().flat_map(|one| places.clone().map(move |other| [one, other]));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.shuffle(random);

        let all = both(Vec::new())
            .into_iter()
            .chain(both(vec![1; 2 * statements]))
            .chain(after_reads.flat_map(|read| both(vec![*read])))
            .chain(patient)
            .chain(places.clone().flat_map(|place| both(vec![place])))
            .chain(pairs.into_iter().flat_map(|pair| both(pair.to_vec())));
        let mut known = HashSet::new();
        all.filter(|schedule| known.insert(schedule.clone())).collect()
    }

    /// Returns a schedule with more switches, each after at most `statements` statements.
    pub(super) fn random(statements: usize, random: &mut StdRng) -> Self {
        let switches = random.random_range(RANDOM_SWITCHES);
        Self {
            first: random.random_range(0..2),
            switches: (0..switches).map(|_| random.random_range(1..=statements.max(1))).collect(),
            patient: false,
        }
    }

    /// Returns whether it is of two requests, which both go on.
    pub(super) fn is_possible(&self) -> bool {
        self.first < 2 && !self.switches.contains(&0)
    }

    /// Returns the schedules with fewer switches that are next to it.
    pub(super) fn shorter(&self) -> Vec<Self> {
        let Some((last, others)) = self.switches.split_last() else { return Vec::new() };
        let with = |switches: Vec<usize>| Self { switches, ..self.clone() };
        let mut shorter = vec![with(others.to_vec())];
        // By turns, much of it is not needed at once.
        let half = &self.switches[..self.switches.len() / 2];
        if half.len() > 1 {
            shorter.insert(0, with(half.to_vec()));
        }
        if !others.is_empty() {
            let switches = [&others[1..], &[*last]].concat();
            shorter.push(Self { first: 1 - self.first, ..with(switches) });
        }
        // Without a turn of the other in between, two turns of one request are one.
        for place in 2..self.switches.len() {
            let mut switches = self.switches.clone();
            switches[place - 2] += switches[place];
            switches.drain(place - 1..=place);
            shorter.push(with(switches));
        }
        shorter
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn systematic_schedules_are_all_with_two_switches() {
        let mut random = StdRng::seed_from_u64(7);
        for statements in [2, 6, 10] {
            let schedules = Schedule::systematic(statements, &[], &mut random);
            let few = schedules.iter().filter(|schedule| schedule.switches.len() < 3);
            let places = statements - 1;
            assert_eq!(few.count(), 2 + 2 * places + 2 * places * places, "{statements}");
        }
        let schedules = Schedule::systematic(6, &[3], &mut random);
        let after_read = Schedule { first: 0, switches: vec![3], patient: false };
        assert_eq!(schedules[4], after_read);
        assert_eq!(schedules[6], Schedule { patient: true, ..after_read });
        let schedules = Schedule::systematic(6, &[1, 2, 3, 4], &mut random);
        let patient = schedules.iter().filter(|schedule| schedule.patient);
        let places: Vec<_> = patient.map(|schedule| schedule.switches[0]).collect();
        assert_eq!(places, [4, 4, 3, 3]);
    }

    #[test]
    fn shorter_schedules_have_fewer_switches() {
        let mut random = StdRng::seed_from_u64(7);
        let mut schedules = vec![Schedule { first: 0, switches: vec![1; 12], patient: false }];
        schedules.extend((0..20).map(|_| Schedule::random(6, &mut random)));
        for schedule in schedules {
            let shorter = schedule.shorter();
            assert!(shorter.iter().all(|it| it.switches.len() < schedule.switches.len()));
        }
        let serial = Schedule { first: 1, switches: Vec::new(), patient: true };
        let one = Schedule { first: 1, switches: vec![2], patient: true };
        assert_eq!((serial.shorter(), one.shorter()), (Vec::new(), vec![serial]));
    }

    #[test]
    fn schedule_of_an_earlier_version_is_not_patient() {
        let earlier = r#"{"first":1,"switches":[2]}"#;
        let schedule: Schedule = serde_json::from_str(earlier).expect("a schedule");
        assert_eq!(schedule, Schedule { first: 1, switches: vec![2], patient: false });
        assert_eq!(serde_json::to_string(&schedule).expect("its JSON"), earlier);
    }
}
