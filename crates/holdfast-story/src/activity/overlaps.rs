//! The times in which several lanes worked on one value, found in one pass over their works: a file
//! of a visitor may have thousands.

use std::collections::{BTreeMap, BTreeSet};

use crate::Timeline;
use crate::event::Value;
use crate::kind::EventKind;

/// A time in which several lanes worked on one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub from_us: u64,
    pub to_us: u64,
    /// Index of the first read, or of what made a lane the second holder.
    pub read: usize,
    /// The value that all of them read, if it is one.
    pub value: Option<Value>,
    pub lanes: BTreeSet<usize>,
}

/// The time between a lane's read and the end of its write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub read: usize,
    pub lane: usize,
    pub value: Option<Value>,
    pub from_us: u64,
    pub to_us: u64,
    pub has_written: bool,
    pub is_loss: bool,
}

impl Work {
    /// Returns the value that it read, if it wrote then.
    fn value_of_write(&self) -> Option<Value> {
        self.value.filter(|_| self.has_written)
    }
}

/// Works that began before the next one, in the order of their reads.
#[derive(Debug, Default)]
struct EarlierWorks {
    works: Vec<Work>,
    /// Those before it have ended.
    first: usize,
    /// The overlap whose lanes have those of all works before `added`, by its index.
    overlap: usize,
    added: usize,
    ends: LatestEnds,
}

impl EarlierWorks {
    fn push(&mut self, work: Work) {
        self.ends.add(work.value, work.to_us);
        self.works.push(work);
    }

    /// Adds the time in which `work` overlaps any of these works. A lane has one work at a time, so
    /// those that go on are of other lanes.
    fn overlap(&mut self, work: &Work, overlaps: &mut Vec<Overlap>) {
        let now_us = work.from_us;
        let to_us = self.ends.latest_us().min(work.to_us);
        if to_us <= now_us {
            return;
        }

        let last = overlaps.len().checked_sub(1);
        let touched = last.filter(|last| now_us <= overlaps[*last].to_us);
        let lanes = self.lanes_to_add(touched.unwrap_or(overlaps.len()), work);

        let is_ended = |earlier: &&Work| earlier.to_us <= now_us;
        self.first += self.works[self.first..].iter().take_while(is_ended).count();
        let read = self.works[self.first].read;

        let is_same = self.ends.latest_of_others_us(work.value) <= now_us;
        let value = work.value.filter(|_| is_same);
        merge(overlaps, Overlap { from_us: now_us, to_us, read, value, lanes });
    }

    /// Returns the lanes that the overlap with `work` has, besides those that this has added to it.
    fn lanes_to_add(&mut self, overlap: usize, work: &Work) -> BTreeSet<usize> {
        let goes_on = |earlier: &Work| earlier.to_us > work.from_us;
        if overlap != self.overlap {
            self.works.retain(goes_on);
            (self.overlap, self.first, self.added) = (overlap, 0, 0);
        }

        let new = self.works[self.added..].iter().filter(|earlier| goes_on(earlier));
        let lanes = new.map(|earlier| earlier.lane).chain([work.lane]).collect();
        self.added = self.works.len();
        lanes
    }
}

/// The latest end of works, and that of those that read another value than its one did.
#[derive(Debug, Default)]
struct LatestEnds {
    value: Option<Value>,
    us: u64,
    others_us: u64,
}

impl LatestEnds {
    fn add(&mut self, value: Option<Value>, us: u64) {
        if value == self.value {
            self.us = self.us.max(us);
        } else if us > self.us {
            *self = Self { value, us, others_us: self.us };
        } else {
            self.others_us = self.others_us.max(us);
        }
    }

    fn latest_us(&self) -> u64 {
        self.us.max(self.others_us)
    }

    /// Returns the latest end of works that read another value.
    fn latest_of_others_us(&self, value: Option<Value>) -> u64 {
        if value == self.value { self.others_us } else { self.us }
    }
}

/// Adds the next overlap by time, or extends the last one if they touch.
pub(super) fn merge(overlaps: &mut Vec<Overlap>, next: Overlap) {
    match overlaps.last_mut().filter(|last| next.from_us <= last.to_us) {
        Some(last) => {
            last.to_us = last.to_us.max(next.to_us);
            last.read = last.read.min(next.read);
            last.value = last.value.filter(|value| Some(*value) == next.value);
            last.lanes.extend(next.lanes);
        }
        None => overlaps.push(next),
    }
}

impl Timeline {
    /// Returns the times in which two lanes worked on one value. Without `are_all`, only those that
    /// endanger an update, where both read one value and wrote, or one of them lost its update:
    /// responses arrive late, so other lanes may seem to overlap.
    pub fn overlaps(&self, are_all: bool) -> Vec<Overlap> {
        let (mut all, mut losses) = (EarlierWorks::default(), EarlierWorks::default());
        let mut writes = BTreeMap::<Value, EarlierWorks>::new();

        // In order of the second read, at which an overlap begins.
        let mut overlaps = Vec::new();
        for work in self.works() {
            let value = work.value_of_write();
            if are_all || work.is_loss {
                all.overlap(&work, &mut overlaps);
            } else {
                losses.overlap(&work, &mut overlaps);
                if let Some(of_value) = value.and_then(|value| writes.get_mut(&value)) {
                    of_value.overlap(&work, &mut overlaps);
                }
            }

            all.push(work);
            if work.is_loss {
                losses.push(work);
            }
            if let Some(value) = value {
                writes.entry(value).or_default().push(work);
            }
        }
        overlaps
    }

    /// Returns the works in the order of their reads.
    pub(super) fn works(&self) -> Vec<Work> {
        let committed = self.events.iter().filter(|event| event.kind == EventKind::Committed);
        let commits: BTreeSet<usize> = committed.map(|event| event.lane).collect();

        // A lane whose write is not among the events works until the last of them.
        let to_us = self.events.last().map_or(0, |last| last.at_us);
        let mut open: BTreeMap<usize, Work> = BTreeMap::new();
        let mut works = Vec::new();

        for (read, event) in self.events.iter().enumerate() {
            if event.kind == EventKind::Read {
                open.entry(event.lane).or_insert(Work {
                    read,
                    lane: event.lane,
                    value: event.detail.value,
                    from_us: event.at_us,
                    to_us,
                    has_written: false,
                    is_loss: false,
                });
            }

            let Some(work) = open.get_mut(&event.lane) else { continue };
            work.has_written |= event.kind == EventKind::Write;
            work.is_loss |= event.detail.is_loss;

            // A write is over with its commit, if the lane shows one.
            let is_over = match event.kind {
                EventKind::Write => !commits.contains(&event.lane),
                EventKind::Committed | EventKind::Refused => true,
                // It may release its lock before it commits.
                EventKind::Release if commits.contains(&event.lane) => false,
                _ => event.kind.ends_lane(),
            };
            if is_over {
                work.to_us = event.at_us;
                works.extend(open.remove(&event.lane));
            }
        }

        works.extend(open.into_values());
        works.sort_by_key(|work| work.read);
        works
    }
}
