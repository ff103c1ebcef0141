//! What if the lease were longer, or the pause shorter? The first scene of a lesson with one of its
//! causes changed, computed from the durations that were recorded. Nothing is sent, so it follows a
//! finger; a run shows whether it is true.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lessons::{self, LEASE_MS};
use super::run::{LabRun, Lane};
use holdfast_base::messages::{Message, message};
use holdfast_story::{EventKind, Handle, TimelineEvent};

/// Upper bounds: a run may come from a file that a person wrote.
const MAX_LANES: usize = 4;
const MAX_STEPS: usize = 32;
const MAX_DURATION_US: u64 = 60_000_000;
/// Time for which a request waits for its lock, and interval of its attempts, unless the run says
/// otherwise.
const MAX_WAIT_US: u64 = 5_000_000;
pub const RETRY_MS: u64 = 50;

/// The steps that a request repeats; all other events follow from the state that it meets.
const STEPS: [EventKind; 11] = [
    EventKind::Wait,
    EventKind::Held,
    EventKind::Read,
    EventKind::Paused,
    EventKind::Resumed,
    EventKind::Works,
    EventKind::Worked,
    EventKind::Write,
    EventKind::Commit,
    EventKind::Committed,
    EventKind::Release,
];

/// Returns the causes that can be changed in the first scene of a run; none for most lessons.
pub fn handles(run: &LabRun) -> Vec<Handle> {
    let Some(lanes) = scene(run) else { return Vec::new() };
    let request = &run.request;
    let Some(pause_us) = pause_us(lanes[0]) else { return Vec::new() };
    // As measured, and rounded as in the drawing's labels.
    let pause_ms = pause_us.saturating_add(500) / 1_000;

    let handle = |field, value: Option<u64>, usual, range, event| {
        Handle::new(field, value.unwrap_or(usual), range, event)
    };
    match request.lesson.as_deref() {
        Some("lost-update") => {
            vec![handle("gap_ms", None, pause_ms, 0..=100, EventKind::Write)]
        }
        Some("outlived") => vec![
            handle("ttl_ms", request.ttl_ms, LEASE_MS, 100..=1_000, EventKind::Expired),
            handle("work_ms", None, pause_ms, 100..=1_000, EventKind::Resumed),
        ],
        Some("waiting") => {
            vec![handle("retry_ms", request.retry_ms, RETRY_MS, 5..=200, EventKind::Tries)]
        }
        _ => Vec::new(),
    }
}

/// Computes the scene with other values of its handles; `wanted` returns that of a field. `None`
/// for a run without handles.
pub fn picture(run: &LabRun, wanted: impl Fn(&str) -> Option<u64>) -> Option<Vec<Lane>> {
    let lanes = scene(run)?;
    let handles = handles(run);
    handles.first()?;
    let value_us = |field: &str| {
        let handle = handles.iter().find(|handle| handle.field == field)?;
        let value = wanted(field).unwrap_or(handle.value);
        Some(value.clamp(*handle.range.start(), *handle.range.end()) * 1_000)
    };

    // Of a request that found its lock free.
    let asks = lanes.iter().filter_map(|lane| {
        let held_us = at(lane, &EventKind::Held)?;
        let ask_us = held_us.saturating_sub(at(lane, &EventKind::Wait)?);
        Some(ask_us.min(MAX_DURATION_US))
    });
    let ask_us = asks.min().unwrap_or(0);
    let pause_us = value_us("work_ms").or(value_us("gap_ms"));

    let clients = lanes
        .iter()
        .enumerate()
        .map(|(number, lane)| SceneClient::again(lane, ask_us, pause_us.filter(|_| number == 0)));
    let stock = lanes[0].events.iter().find(|event| event.kind == EventKind::Read)?.number()?;
    let shop = SceneShop {
        clients: clients.collect(),
        due: BinaryHeap::new(),
        stock,
        holder: None,
        lease_us: value_us("ttl_ms"),
        retry_us: value_us("retry_ms").unwrap_or(RETRY_MS * 1_000),
    };
    Some(shop.run())
}

/// Says what became of the orders of a scene: a loss, or, in the lesson about waiting, how late the
/// last of them got the lock.
pub fn outcome(run: &LabRun, lanes: &[Lane]) -> Message {
    let of_kind = |kind: EventKind| {
        let events = lanes.iter().flat_map(|lane| &lane.events);
        events.filter(move |event| event.kind == kind)
    };
    if run.request.lesson.as_deref() == Some("waiting") {
        return message!("lab-outcome-waited", ms = late_ms(lanes));
    }

    let opening = of_kind(EventKind::Read).filter_map(TimelineEvent::number).max().unwrap_or(0);
    let left =
        of_kind(EventKind::Write).max_by_key(|event| event.at_us).and_then(TimelineEvent::number);
    let (sold, left) = (of_kind(EventKind::Committed).count(), left.unwrap_or(opening));
    let is_kept = opening.saturating_sub(left) == i64::try_from(sold).unwrap_or(i64::MAX);
    if is_kept {
        message!("lab-outcome-kept", sold, opening, left)
    } else {
        message!("lab-outcome-lost", sold, opening, left)
    }
}

/// Returns how long after the first release the last of several requests got the lock.
pub fn late_ms(lanes: &[Lane]) -> u64 {
    let released_us =
        lanes.iter().filter_map(|lane| at(lane, &EventKind::Release)).min().unwrap_or(0);
    let held_us = lanes.iter().filter_map(|lane| at(lane, &EventKind::Held)).max().unwrap_or(0);
    held_us.saturating_sub(released_us).saturating_add(500) / 1_000
}

/// Returns the requests of a lesson's first scene as they were recorded.
pub fn recorded(run: &LabRun) -> Vec<Lane> {
    scene(run).unwrap_or_default().into_iter().cloned().collect()
}

/// Returns the requests of a lesson's first scene, in the order in which they were sent; `None` if
/// they are not as a lesson records them.
fn scene(run: &LabRun) -> Option<Vec<&Lane>> {
    let lesson = lessons::named(run.request.lesson.as_deref()?)?;
    let lanes = run.outcome.lanes.iter().filter(|lane| lane.scene == lesson.scene);
    let mut lanes: Vec<&Lane> = lanes.filter(|lane| !lane.is_actor()).collect();
    lanes.sort_by_key(|lane| lane.sent_us);

    let is_known = (2..=MAX_LANES).contains(&lanes.len())
        && lanes.iter().all(|lane| {
            repeated_steps(lane).count() <= MAX_STEPS && at(lane, &EventKind::Read).is_some()
        });
    is_known.then_some(lanes)
}

/// Returns what a request does again.
fn repeated_steps(lane: &Lane) -> impl Iterator<Item = &TimelineEvent<()>> {
    lane.events.iter().filter(|event| STEPS.contains(&event.kind))
}

fn at(lane: &Lane, kind: &EventKind) -> Option<u64> {
    lane.events.iter().find(|event| event.kind == *kind).map(|event| event.at_us)
}

fn pause_us(lane: &Lane) -> Option<u64> {
    let spans = [(EventKind::Paused, EventKind::Resumed), (EventKind::Works, EventKind::Worked)];
    spans.into_iter().find_map(|(from, to)| Some(at(lane, &to)?.saturating_sub(at(lane, &from)?)))
}

/// A request that is executed again, in the picture.
struct SceneClient {
    lane: Lane,
    /// Its steps, each after a time.
    steps: Vec<(u64, TimelineEvent<()>)>,
    /// From its last step to its response.
    answer_us: u64,
    next: usize,
    asked_us: u64,
    /// True if it has found the lock taken.
    has_failed: bool,
    read: i64,
}

impl SceneClient {
    fn again(recorded: &Lane, ask_us: u64, pause_us: Option<u64>) -> Self {
        let mut from_us = recorded.sent_us;
        let mut steps = Vec::new();
        for event in repeated_steps(recorded) {
            let took_us = event.at_us.saturating_sub(from_us).min(MAX_DURATION_US);
            from_us = from_us.max(event.at_us);
            let after_us = match event.kind {
                EventKind::Held => ask_us,
                EventKind::Resumed => pause_us.unwrap_or(took_us),
                _ => took_us,
            };
            steps.push((after_us, event.clone()));
        }

        let answered_us = recorded.answered_us.unwrap_or(from_us);
        let answer_us = answered_us.saturating_sub(from_us).min(MAX_DURATION_US);
        let lane = Lane { events: Vec::new(), answered_us: None, ..recorded.clone() };
        Self { lane, steps, answer_us, next: 0, asked_us: 0, has_failed: false, read: 0 }
    }

    /// Returns how long after its last step the next one follows.
    fn pause_before_next_us(&self) -> u64 {
        self.steps.get(self.next).map_or(self.answer_us, |(after_us, _)| *after_us)
    }

    fn happens(&mut self, at_us: u64, kind: EventKind, number: Option<i64>) {
        let like = self.steps.iter().find(|(_, step)| !step.key.is_empty());
        let key = like.map(|(_, step)| step.key.clone()).unwrap_or_default();
        let event = TimelineEvent { key, ..TimelineEvent::new((), at_us, kind) };
        self.lane.events.push(event.with_number(number));
    }
}

struct SceneHolder {
    client: usize,
    until_us: Option<u64>,
}

/// One item, and a lock that is asked for again and again.
struct SceneShop {
    clients: Vec<SceneClient>,
    /// When each client goes on, and which.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    stock: i64,
    holder: Option<SceneHolder>,
    lease_us: Option<u64>,
    retry_us: u64,
}

impl SceneShop {
    fn run(mut self) -> Vec<Lane> {
        for (number, client) in self.clients.iter().enumerate() {
            let sent_us = client.lane.sent_us.min(MAX_DURATION_US * 60);
            self.due.push(Reverse((sent_us + client.pause_before_next_us(), number)));
        }

        while let Some(Reverse((now_us, number))) = self.due.pop() {
            self.end_lease(now_us);
            if let Some(next_us) = self.step(now_us, number) {
                self.due.push(Reverse((next_us, number)));
            }
        }
        self.clients.into_iter().map(|client| client.lane).collect()
    }

    fn end_lease(&mut self, now_us: u64) {
        let Some(SceneHolder { client, until_us: Some(until_us) }) = self.holder else { return };
        if until_us <= now_us {
            let lease_ms = self.lease_us.and_then(|us| i64::try_from(us / 1_000).ok());
            self.clients[client].happens(until_us, EventKind::Expired, lease_ms);
            self.holder = None;
        }
    }

    /// Takes a client's next step. Returns when it goes on; `None` if it has its response.
    fn step(&mut self, now_us: u64, number: usize) -> Option<u64> {
        let client = &mut self.clients[number];
        let Some((_, step)) = client.steps.get(client.next) else {
            client.lane.answered_us = Some(now_us);
            return None;
        };

        let mut event = TimelineEvent { at_us: now_us, ..step.clone() };
        match event.kind {
            EventKind::Wait => client.asked_us = now_us,
            EventKind::Held if self.holder.is_some() => return self.wait(now_us, number),
            EventKind::Held => {
                let until_us = self.lease_us.map(|lease_us| now_us + lease_us);
                self.holder = Some(SceneHolder { client: number, until_us });
            }
            EventKind::Read => {
                client.read = self.stock;
                event = event.with_number(Some(client.read));
            }
            EventKind::Write => event = event.with_number(Some(client.read - 1)),
            EventKind::Committed => self.stock = client.read - 1,
            EventKind::Release if at(&client.lane, &EventKind::Held).is_some() => {
                let is_held = self.holder.as_ref().is_some_and(|holder| holder.client == number);
                if is_held {
                    self.holder = None;
                } else {
                    client.happens(now_us, EventKind::Lost, None);
                }
            }
            _ => {}
        }

        client.lane.events.push(event);
        client.next += 1;
        Some(now_us + client.pause_before_next_us())
    }

    /// Lets a client ask for the lock again later, or give up.
    fn wait(&mut self, now_us: u64, number: usize) -> Option<u64> {
        let client = &mut self.clients[number];
        if now_us.saturating_sub(client.asked_us) > MAX_WAIT_US {
            client.lane.status = Some(503);
            client.lane.problem = Some("lock-timeout".to_owned());
            client.lane.answered_us = Some(now_us);
            return None;
        }
        // The first attempt is not again.
        if client.has_failed {
            client.happens(now_us, EventKind::Tries, None);
        }
        client.has_failed = true;
        Some(now_us + self.retry_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::messages::Language;
    use serde_json::json;
    use uuid::Uuid;

    /// A lane that is sent at `sent_us`; each event follows the previous one after its time.
    fn lane(label: &str, sent_us: u64, steps: &[(&str, u64)]) -> Lane {
        let mut now_us = sent_us;
        let mut lane = Lane { status: Some(201), ..Lane::new(Uuid::now_v7(), label, "1", sent_us) };
        for (event, after_us) in steps {
            now_us += after_us;
            let value = (*event == "read").then_some(10);
            let event = TimelineEvent::new((), now_us, EventKind::named(event));
            lane.events.push(event.with_number(value));
        }
        lane.answered_us = Some(now_us + 500);
        lane
    }

    fn run_of(lesson: &str, mut lanes: Vec<Lane>) -> LabRun {
        let scene = lessons::named(lesson).expect("there is such a lesson").scene;
        for lane in &mut lanes {
            scene.clone_into(&mut lane.scene);
        }
        let run = json!({
            "id": Uuid::nil(), "state": "done", "wanted": { "lesson": lesson }, "progress": {},
            "created_at": "2026-01-01T00:00:00Z", "lanes": lanes,
        });
        serde_json::from_value(run).expect("a run")
    }

    const LOCKED: [(&str, u64); 9] = [
        ("wait", 1_000),
        ("held", 2_000),
        ("read", 3_000),
        ("paused", 0),
        ("resumed", 350_000),
        ("write", 1_000),
        ("commit", 0),
        ("committed", 2_000),
        ("release", 1_000),
    ];

    /// A's lease of 300 ms ends during its pause of 350 ms, and B has read when A writes.
    fn outlived() -> LabRun {
        let mut of_b = LOCKED;
        of_b[4].1 = 50_000;
        run_of("outlived", vec![lane("A", 0, &LOCKED), lane("B", 310_000, &of_b)])
    }

    fn values(lanes: &[Lane], name: &str) -> Vec<i64> {
        let events = lanes.iter().flat_map(|lane| &lane.events);
        events
            .filter(|event| event.kind.as_str() == name)
            .filter_map(TimelineEvent::number)
            .collect()
    }

    fn names(lane: &Lane) -> Vec<&str> {
        lane.events.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn unchanged_values_give_what_was_recorded() {
        let lanes = picture(&outlived(), |_| None).expect("it has handles");
        assert_eq!((values(&lanes, "read"), values(&lanes, "write")), (vec![10, 10], vec![9, 9]));
        assert_eq!(values(&lanes, "expired"), [300]);
        let of_a = ["wait", "held", "read", "paused", "expired", "resumed", "write", "commit"];
        assert_eq!(names(&lanes[0])[..8], of_a);
        assert_eq!(names(&lanes[0])[8..], ["committed", "lost", "release"]);
        assert_eq!(names(&lanes[1]), LOCKED.map(|(name, _)| name));
        assert!(at(&lanes[0], &EventKind::Write) < at(&lanes[1], &EventKind::Write));
        assert!(lanes.iter().all(|lane| lane.events.is_sorted_by_key(|event| event.at_us)));
    }

    #[test]
    fn lease_that_outlasts_the_pause_loses_nothing() {
        let lanes = picture(&outlived(), |field| (field == "ttl_ms").then_some(900));
        let lanes = lanes.expect("it has handles");
        assert_eq!((values(&lanes, "read"), values(&lanes, "write")), (vec![10, 9], vec![9, 8]));
        assert!(!names(&lanes[0]).contains(&"lost"));
        assert!(at(&lanes[0], &EventKind::Release) < at(&lanes[1], &EventKind::Held));
        let pause = picture(&outlived(), |field| (field == "work_ms").then_some(1));
        assert_eq!(values(&pause.expect("it has handles"), "write"), [9, 8]);
    }

    /// As the drawing and its list of steps do it.
    #[test]
    fn recorded_causes_are_rounded() {
        let mut of_a = LOCKED;
        of_a[4].1 = 316_700;
        let run = run_of("outlived", vec![lane("A", 0, &of_a), lane("B", 310_000, &LOCKED)]);
        assert_eq!(handles(&run)[1].value, 317);
    }

    #[test]
    fn gap_of_nothing_loses_nothing() {
        let steps = [("wait", 500), ("read", 2_000), ("paused", 0), ("resumed", 30_000)];
        let ends = [("commit", 100), ("write", 900), ("committed", 10), ("release", 10)];
        let a = lane("A", 0, &[&steps[..], &ends].concat());
        let b = lane("B", 9_000, &[&steps[..2], &ends].concat());
        let run = run_of("lost-update", vec![a, b]);
        assert_eq!(handles(&run)[0].value, 30);
        let mut asked = run.clone();
        asked.request.gap_ms = Some(28);
        let events = &mut asked.outcome.lanes[0].events;
        events.iter_mut().skip(3).for_each(|event| event.at_us += 600);
        assert_eq!(handles(&asked)[0].value, 31, "as measured, and as its label says");

        let written = |gap_ms| {
            let lanes = picture(&run, |_| Some(gap_ms)).expect("it has handles");
            let is_lost = outcome(&run, &lanes).id() == "lab-outcome-lost";
            assert_eq!(is_lost, values(&lanes, "write") == [9, 9]);
            values(&lanes, "write")
        };
        assert_eq!((written(0), written(30), written(7_000)), (vec![9, 8], vec![9, 9], vec![9, 9]));
    }

    #[test]
    fn longer_retry_waits_longer() {
        let mut of_a = LOCKED;
        of_a[4].1 = 121_000;
        let others = [&LOCKED[..3], &LOCKED[5..]].concat();
        let lanes = [lane("A", 0, &of_a), lane("B", 8_000, &others), lane("C", 9_000, &others)];
        let run = run_of("waiting", lanes.to_vec());

        let last_us = |retry_ms| {
            let lanes = picture(&run, |_| Some(retry_ms)).expect("it has handles");
            assert_eq!(values(&lanes, "write"), [9, 8, 7]);
            let said = outcome(&run, &lanes).format(Language::English);
            assert!(said.is_some_and(|text| text.contains(" ms after")), "{retry_ms}");
            lanes[2].answered_us
        };
        assert!(last_us(5) < last_us(50) && last_us(50) < last_us(200));
    }

    /// A file may say anything.
    #[test]
    fn strange_runs_have_no_picture_or_a_short_one() {
        let nothing = |_: &str| None;
        assert_eq!(picture(&run_of("outlived", Vec::new()), nothing), None);
        let same = |sent_us| lane("A", sent_us, &LOCKED);
        assert_eq!(picture(&run_of("outlived", (0..5).map(same).collect()), nothing), None);
        assert_eq!(picture(&run_of("fence", (0..2).map(same).collect()), nothing), None);

        let late =
            [("wait", u64::MAX / 8), ("held", 1), ("read", 1), ("paused", 1), ("resumed", 1)];
        let run = run_of("outlived", vec![lane("A", u64::MAX / 4, &late), lane("B", 0, &LOCKED)]);
        let lanes = picture(&run, |_| Some(u64::MAX)).expect("it has handles");
        assert!(lanes.iter().all(|lane| lane.events.len() < 100));
    }
}
