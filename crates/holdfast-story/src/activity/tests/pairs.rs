//! What one pass over the events finds, against its definition, which compares all pairs.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::event;
use crate::activity::overlaps::{Work, merge};
use crate::activity::{Overlap, StoredWrite};
use crate::{EventKind, Timeline, TimelineLane};

/// The definition: each pair of works is compared.
fn overlaps_of_pairs(timeline: &Timeline, are_all: bool) -> Vec<Overlap> {
    let works = timeline.works();
    let mut overlaps = Vec::new();
    for (index, second) in works.iter().enumerate() {
        for first in &works[..index] {
            if let Some(overlap) = overlap_of_pair(first, second, are_all) {
                merge(&mut overlaps, overlap);
            }
        }
    }
    overlaps
}

fn overlap_of_pair(first: &Work, second: &Work, are_all: bool) -> Option<Overlap> {
    let is_same = first.value.is_some() && first.value == second.value;
    let is_risk = is_same && first.has_written && second.has_written;
    let counts = are_all || is_risk || first.is_loss || second.is_loss;

    let to_us = first.to_us.min(second.to_us);
    let lanes = BTreeSet::from([first.lane, second.lane]);
    let from_us = second.from_us;
    let overlaps = counts && lanes.len() == 2 && from_us < to_us;
    let value = first.value.filter(|_| is_same);
    overlaps.then_some(Overlap { from_us, to_us, read: first.read, value, lanes })
}

/// Returns up to 40 events of up to 6 lanes that read and write few values.
fn random_events(rng: &mut StdRng) -> Timeline {
    const KINDS: [EventKind; 6] = [
        EventKind::Read,
        EventKind::Read,
        EventKind::Write,
        EventKind::Committed,
        EventKind::Refused,
        EventKind::Answered,
    ];
    let mut at_us = 0;
    let lanes = rng.random_range(2..=6);
    let events = (0..rng.random_range(2..40)).map(|_| {
        at_us += rng.random_range(0..3);
        let kind = KINDS[rng.random_range(0..KINDS.len())].clone();
        let value = rng.random_bool(0.9).then(|| rng.random_range(0..3));
        let mut event = event(at_us, rng.random_range(0..lanes), kind, value);
        event.detail.is_loss = rng.random_bool(0.05);
        event
    });
    let events = events.collect();
    Timeline { lanes: vec![TimelineLane::default(); lanes], events }
}

#[test]
fn one_pass_finds_the_overlaps_of_all_pairs() {
    let mut rng = StdRng::seed_from_u64(54);
    let mut found = 0;
    for _ in 0..10_000 {
        let timeline = random_events(&mut rng);
        for are_all in [false, true] {
            let expected = overlaps_of_pairs(&timeline, are_all);
            assert_eq!(timeline.overlaps(are_all), expected, "{are_all} {:#?}", timeline.events);
            found += expected.len();
        }
    }
    assert!(found > 10_000, "{found} overlaps are too few to compare");
}

/// The definition: each write is compared with all others.
fn stale_of_pairs(timeline: &Timeline) -> Vec<usize> {
    let writes = timeline.stored_writes();
    let detail = |index: usize| &timeline.events[index].detail;
    let is_stale = |own: &&StoredWrite| {
        let reads = (0..own.write).rev().filter(|index| {
            let event = &timeline.events[*index];
            event.kind == EventKind::Read && event.lane == own.lane
        });
        let mut reads = reads.filter(|index| detail(*index).key == detail(own.write).key);
        let Some(read) = reads.next() else { return false };

        let others = writes.iter().filter(|other| {
            let is_between = read < other.done && other.done < own.done;
            let is_same = detail(other.write).key == detail(own.write).key;
            is_between && is_same && other.lane != own.lane
        });
        let last = others.max_by_key(|other| other.done);
        last.is_some_and(|other| detail(other.write).value != detail(read).value)
    };
    let stale = writes.iter().filter(is_stale).map(|write| write.write);
    stale.collect()
}

#[test]
fn one_pass_finds_the_stale_writes_of_all_pairs() {
    let mut rng = StdRng::seed_from_u64(55);
    let mut found = 0;
    for _ in 0..10_000 {
        let mut timeline = random_events(&mut rng);
        for event in &mut timeline.events {
            event.detail.key = rng.random_bool(0.3).then(|| "sku tea".to_owned());
        }
        let pairs = timeline.stale_writes();
        let mut stale: Vec<usize> = pairs.iter().map(|[late, _]| late.write).collect();
        stale.sort_unstable();
        assert_eq!(stale, stale_of_pairs(&timeline), "{:#?}", timeline.events);
        found += stale.len();
    }
    assert!(found > 500, "{found} stale writes are too few to compare");
}
