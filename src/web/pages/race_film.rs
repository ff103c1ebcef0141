//! A race as its pages play it: the timeline of two orders, or the receipts of a crowd; each step
//! in words, with its place in a playback. The script only lets it play.

use serde::Serialize;
use serde_json::{Value, json};

use super::race_view::{RaceView, lesson_of, outcome, sentences, server, why};
use super::timeline::TimelineView;
use holdfast_base::messages::{FluentValue, Language, Message};
use holdfast_lab::race::model::{NO_ANSWER, RaceLane, SOLD, SOLD_OUT};
use holdfast_shop::Strategy;
use holdfast_shop::strategy::ReadMethod;
use holdfast_story::{Detail, Drawing, EventKind, Timeline, TimelineEvent, TimelineLane};

/// Two races and a tap between them are over within ten seconds.
const PLAY_MS: u64 = 3_800;
/// A race with a pause has twice the steps.
const PAUSED_PLAY_MS: u64 = 7_000;
/// A click shows its result within ten seconds: the rest is for the orders and the page.
const _: () = assert!(PAUSED_PLAY_MS <= 8_000);
/// The part of the playback that a crowd takes.
const CROWD_PART: f64 = 0.8;
/// A wait shorter than this part of the race is not shown.
const MIN_WAIT: f64 = 0.2;

const SCRIPT_TEXTS: [&str; 13] = [
    "race-buy-both",
    "race-buy-all",
    "race-crowd-two",
    "race-crowd",
    "race-question",
    "race-question-crowd",
    "race-intro-off",
    "race-intro-on",
    "race-intro-local",
    "race-starting",
    "race-queued",
    "race-failed",
    "race-error",
];

/// Returns the script's texts, by message id without its prefix. The script fills in `%name%`.
pub(super) fn script_texts(language: Language) -> Value {
    let variables: [(&'static str, FluentValue<'_>); 3] = [
        ("buyers", "%buyers%".into()),
        ("stock", "%stock%".into()),
        ("position", "%position%".into()),
    ];
    let text = |id: &&str| (id.replacen("race-", "", 1), language.text_with(id, &variables).into());
    Value::Object(SCRIPT_TEXTS.iter().map(text).collect())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RaceCell {
    pub kind: &'static str,
    pub at: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// True if more is sold than existed by now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_oversold: bool,
}

impl RaceView<'_> {
    /// Returns how long the playback takes.
    fn play_ms(&self) -> u64 {
        if self.race.pause { PAUSED_PLAY_MS } else { PLAY_MS }
    }

    /// Returns the drawing of two orders.
    pub fn drawing(&self) -> Option<TimelineView> {
        self.is_duel().then(|| TimelineView::from(Drawing::lanes(self.timeline(), self.language)))
    }

    /// Returns what the script needs to play the race.
    pub fn film(&self) -> Value {
        let Self { race, result, language } = *self;
        let duel =
            self.is_duel().then(|| TimelineView::from(Drawing::small(self.timeline(), language)));
        let servers: Vec<String> =
            result.lanes.iter().take(2).map(|lane| server(lane, language)).collect();
        let verdict = self.verdict();
        let caption = self.explain();
        let said = [("verdict", verdict.as_str().into()), ("caption", caption.as_str().into())];
        let entries = match (self.is_duel(), result.sold) {
            (false, _) => "race-entries-crowd",
            (true, 1) => "race-entries-one",
            (true, _) => "race-entries",
        };
        let lesson = lesson_of(&race.lock, race.pause);
        let mut film = json!({
            "id": race.id, "lock": race.lock, "buyers": race.buyers, "stock": race.stock,
            "pause": race.pause, "left": result.left, "playMs": self.play_ms(),
            "isLost": result.doubled() > 0, "isOversold": self.is_oversold(),
            "next": self.next_switch(),
            "proof": self.proof(duel.as_ref()),
            "servers": servers, "announced": language.text_with("race-announced", &said),
            "verdict": verdict, "caption": caption, "entries": language.text(entries),
            "lesson": lesson, "why": why(lesson, language),
        });

        if let Some(view) = duel {
            let events = view.timeline.events.iter().enumerate();
            let steps = events.map(|(index, event)| self.step(event, view.place(index)));
            film["steps"] = steps.collect();
            film["drawing"] = view.to_string().into();
        } else {
            film["cells"] = json!(self.cells());
        }
        film
    }

    /// Returns an event of one of two orders: what the buyer's phone shows, and a sentence; without
    /// what does not change there.
    fn step(&self, event: &TimelineEvent, at: f64) -> Value {
        let lane = &self.result.lanes[event.lane];
        let value = event.detail.value.map(|value| value.to_string()).unwrap_or_default();
        let variables = [("buyer", lane.buyer.as_str().into()), ("value", value.as_str().into())];
        let text = |id: &str| self.language.text_with(id, &variables);
        let outcome = outcome(lane, self.language);
        let is_sold = lane.result == SOLD;
        let (status, caption) = match event.kind {
            EventKind::Sent => (text("race-status-order"), text("race-step-sent")),
            EventKind::Wait => (text("race-status-wait"), text("race-step-wait")),
            EventKind::Held => (String::new(), text("race-step-held")),
            EventKind::Read => (text("race-status-read"), text("race-step-read")),
            EventKind::Write => (text("race-status-write"), text("race-step-write")),
            EventKind::Release => (String::new(), text("race-step-release")),
            EventKind::Paused => (text("race-status-paused"), text("race-step-paused")),
            EventKind::Expired => (text("race-status-expired"), text("race-step-expired")),
            EventKind::Resumed => (String::new(), text("race-step-resumed")),
            EventKind::Refused => (text("race-status-late"), text("race-step-late")),
            EventKind::Answered if is_sold => (outcome, text("race-step-sold")),
            EventKind::Answered if lane.result == SOLD_OUT => (outcome, text("race-step-refused")),
            EventKind::Answered => (outcome, text("race-step-no-receipt")),
            EventKind::Broken => (outcome, String::new()),
            _ => (String::new(), String::new()),
        };

        let mut step = json!({
            "kind": event.kind.name(), "lane": event.lane, "at": rounded(at), "value": value,
            "isSold": is_sold && event.kind == EventKind::Answered, "status": status,
            "caption": caption,
        });
        if let Value::Object(fields) = &mut step {
            fields.retain(|_, value| *value != "" && *value != false);
        }
        step
    }

    fn is_doubled(&self, lane: &RaceLane) -> bool {
        self.result.doubled_lanes().any(|doubled| doubled.buyer == lane.buyer)
    }

    pub fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::default();
        for (place, lane) in self.result.lanes.iter().enumerate() {
            let is_duplicate = self.is_doubled(lane);
            timeline.events.extend(self.events(lane).into_iter().map(|mut event| {
                event.detail.is_loss = is_duplicate && event.kind == EventKind::Write;
                event.on(place)
            }));
            let (server, outcome) = (server(lane, self.language), outcome(lane, self.language));
            timeline.lanes.push(TimelineLane {
                name: lane.buyer.clone(),
                replica: format!("{server} · {outcome}"),
                is_duplicate,
            });
        }
        timeline.events.sort_by_key(|event| event.at_us);
        timeline.blame();
        timeline
    }

    /// Returns the events of a lane that are shown.
    fn events(&self, lane: &RaceLane) -> Vec<TimelineEvent<()>> {
        let has_lock = self.race.lock != "none";
        let has_lost = lane.event(&EventKind::Lost).is_some();
        // Then the read acquires it.
        let locks_row = Strategy::named(&self.race.lock).is_some_and(|strategy| {
            matches!(strategy.read, ReadMethod::RowLock | ReadMethod::Advisory)
        });

        let asked_us = lane.at(&EventKind::Wait).or(lane.at(&EventKind::Sent)).unwrap_or(0);
        let acquired_us = [EventKind::Held, EventKind::Read, EventKind::Answered];
        let acquired_us = acquired_us.iter().find_map(|kind| lane.at(kind));
        let waited_us = acquired_us.unwrap_or(asked_us).saturating_sub(asked_us);
        let is_wait_shown = has_lock && waited_us as f64 > MIN_WAIT * self.span_us() as f64;
        let mut shown = Vec::new();
        for event in &lane.events {
            let is_shown = match event.kind {
                EventKind::Sent
                | EventKind::Held
                | EventKind::Expired
                | EventKind::Read
                | EventKind::Refused
                | EventKind::Answered => true,
                // Without a pause of the race, they only make the two meet.
                EventKind::Paused | EventKind::Resumed => self.race.pause,
                EventKind::Wait => is_wait_shown,
                EventKind::Write => lane.result == SOLD,
                EventKind::Release => has_lock && !has_lost,
                _ => false,
            };
            if !is_shown {
                continue;
            }

            let is_lock = event.kind == EventKind::Read && locks_row;
            if is_lock && lane.event(&EventKind::Held).is_none() {
                shown.push(TimelineEvent::new((), event.at_us, EventKind::Held));
            }
            // The fences of two servers are not compared here.
            let detail = Detail { value: event.detail.value, ..Detail::default() };
            shown.push(TimelineEvent { detail, ..event.clone() });
        }
        if lane.result == NO_ANSWER {
            shown.push(TimelineEvent::new((), self.span_us(), EventKind::Broken));
        }
        shown
    }

    /// Returns the receipts of a crowd, in order of time; none of two orders.
    pub fn cells(&self) -> Vec<RaceCell> {
        if self.is_duel() {
            return Vec::new();
        }
        let time = |lane: &RaceLane| {
            let last = lane.events.last().map_or(0, |event| event.at_us);
            lane.at(&EventKind::Write).unwrap_or(last)
        };
        let mut lanes: Vec<&RaceLane> = self.result.lanes.iter().collect();
        lanes.sort_by_key(|lane| time(lane));
        let first_us = lanes.first().map_or(0, |lane| time(lane));
        let last_us = lanes.last().map_or(0, |lane| time(lane));
        let span_us = last_us.saturating_sub(first_us).max(1) as f64;

        let mut sold = 0;
        let cell = |lane: &RaceLane| {
            let is_sold = lane.result == SOLD;
            sold += i64::from(is_sold);
            RaceCell {
                kind: match is_sold {
                    true if self.is_doubled(lane) => "doubled",
                    true => "sold",
                    false => "refused",
                },
                at: rounded(time(lane).saturating_sub(first_us) as f64 / span_us * CROWD_PART),
                left: is_sold.then(|| lane.value_at(&EventKind::Write).unwrap_or(0)),
                verdict: if is_sold { self.figures(sold) } else { String::new() },
                is_oversold: sold > self.race.stock,
            }
        };

        lanes.into_iter().map(cell).collect()
    }

    /// Returns the sentence on the servers and, of two orders, on the speed of the playback.
    fn proof(&self, duel: Option<&TimelineView>) -> String {
        let language = self.language;
        let proof = match self.result.replicas() {
            1 => language.text("race-proof-one"),
            2 => language.text("race-proof-two"),
            servers => language.text_with("race-proof-many", &[("servers", servers.into())]),
        };
        let proof = match self.race.lock.as_str() {
            "none" => proof,
            lock => {
                let name = Message::new(&format!("race-lock-{lock}")).format(language);
                let lock = name.unwrap_or_else(|| lock.to_owned());
                let lock = language.text_with("race-proof-lock", &[("lock", lock.into())]);
                sentences(language, proof, &lock)
            }
        };

        let Some(duel) = duel else { return proof };
        let ms = (self.span_us() / 1_000).max(1);
        // The last label needs room behind its event, at which the playback ends.
        let end = duel.place(duel.timeline.events.len().saturating_sub(1));
        let factor = (self.play_ms() as f64 * end / ms as f64).round().max(1.0);
        let scale = [("ms", ms.to_string().into()), ("factor", factor.to_string().into())];
        let scale = language.text_with("race-scale", &scale);

        sentences(language, proof, &scale)
    }
}

/// Rounds a place in the playback to what can be seen.
fn rounded(at: f64) -> f64 {
    (at * 10_000.0).round() / 10_000.0
}
