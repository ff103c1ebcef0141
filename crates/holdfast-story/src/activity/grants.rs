//! A lock of several nodes: who has it at each of them, and when two act as its holder.

use std::collections::BTreeSet;

use crate::Timeline;
use crate::activity::overlaps::Overlap;
use crate::kind::EventKind;

/// Nodes that a drawing shows: a file may be anybody's.
const NODES: usize = 5;

impl Timeline {
    pub fn has_grants(&self) -> bool {
        self.events.iter().any(|event| event.kind == EventKind::Granted)
    }

    /// Returns which lane has the lock at each node, after the events that changed it. Grants that
    /// follow one another are one change.
    pub fn grants(&self) -> Vec<(usize, [Option<usize>; NODES])> {
        let mut changes: Vec<(usize, [Option<usize>; NODES])> = Vec::new();
        let mut nodes = [None; NODES];
        for (index, event) in self.events.iter().enumerate() {
            let before = nodes;
            match event.kind {
                EventKind::Granted => {
                    let node = event.number().and_then(|node| usize::try_from(node).ok());
                    let owner = node.and_then(|node| nodes.get_mut(node.wrapping_sub(1)));
                    if let Some(owner) = owner {
                        *owner = Some(event.lane);
                    }
                }
                EventKind::Expired | EventKind::Gone | EventKind::Release => {
                    let own = nodes.iter_mut().filter(|owner| **owner == Some(event.lane));
                    own.for_each(|owner| *owner = None);
                }
                _ => {}
            }
            if nodes == before {
                continue;
            }

            let is_grant = |index: usize| self.events[index].kind == EventKind::Granted;
            match changes.last_mut() {
                Some(last) if last.0 + 1 == index && is_grant(last.0) && is_grant(index) => {
                    *last = (index, nodes);
                }
                _ => changes.push((index, nodes)),
            }
        }
        changes
    }

    /// Returns the times in which one lane has the lock, and another one acts as if it had.
    pub fn shared_holds(&self) -> Vec<Overlap> {
        let mut holders = BTreeSet::new();
        let mut overlaps: Vec<Overlap> = Vec::new();
        let mut is_shared = false;
        for ((read, event), state) in self.events.iter().enumerate().zip(self.states()) {
            if state.activity.acts_as_holder() {
                holders.insert(event.lane);
            } else {
                holders.remove(&event.lane);
            }

            let (from_us, to_us) = (event.at_us, event.at_us);
            if let Some(last) = overlaps.last_mut().filter(|_| is_shared) {
                last.to_us = to_us;
                last.lanes.extend(&holders);
            } else if holders.len() > 1 {
                let lanes = holders.clone();
                overlaps.push(Overlap { from_us, to_us, read, value: None, lanes });
            }
            is_shared = holders.len() > 1;
        }
        overlaps
    }
}
