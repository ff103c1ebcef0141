//! A race as its pages show it: the timeline of two orders, or the receipts of a crowd; each step
//! in words, with its place in a playback; and the result. The script only lets it play.

use serde::Serialize;
use serde_json::{Value, json};

use super::timeline::TimelineView;
use holdfast_base::messages::{FluentValue, Language, Message};
use holdfast_base::output::grouped;
use holdfast_lab::race::model::{NO_ANSWER, Race, RaceLane, RaceResult, SOLD, SOLD_OUT};
use holdfast_shop::Strategy;
use holdfast_shop::strategy::ReadMethod;
use holdfast_story::{Detail, Drawing, Event, EventKind, Timeline, TimelineLane};

const PLAY_MS: u64 = 5_200;
/// A click shows its result within ten seconds: the rest is for the orders and the page.
const _: () = assert!(PLAY_MS <= 8_000);
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
    left: Option<i64>,
    verdict: String,
    /// Whether more is sold than existed by now.
    is_oversold: bool,
}

/// A race that is done, in one language.
#[derive(Debug, Clone, Copy)]
pub(super) struct RaceView<'a> {
    pub race: &'a Race,
    pub result: &'a RaceResult,
    language: Language,
    /// How long the playback takes.
    play_ms: u64,
}

impl<'a> RaceView<'a> {
    pub fn of(race: &'a Race, language: Language) -> Option<Self> {
        race.result.as_ref().map(|result| Self { race, result, language, play_ms: PLAY_MS })
    }

    /// Plays the race at another pace.
    #[must_use]
    pub fn played_in(self, play_ms: u64) -> Self {
        Self { play_ms, ..self }
    }

    fn is_duel(&self) -> bool {
        self.result.lanes.len() == 2
    }

    /// Returns the duration of the race, in microseconds.
    fn span_us(&self) -> u64 {
        let last = self.result.lanes.iter().filter_map(|lane| lane.events.last());
        last.map(|event| event.at_us).max().unwrap_or(0)
    }

    /// Returns the drawing of two orders.
    pub fn drawing(&self) -> Option<TimelineView> {
        self.is_duel().then(|| TimelineView::from(Drawing::lanes_only(self.timeline(), self.language)))
    }

    /// Returns what the script needs to play the race.
    pub fn film(&self) -> Value {
        let Self { race, result, language, play_ms } = *self;
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
        let mut film = json!({
            "id": race.id, "lock": race.lock, "buyers": race.buyers, "stock": race.stock,
            "left": result.left,
            "playMs": play_ms, "isLost": result.doubled() > 0, "isOversold": self.is_oversold(),
            "proof": self.proof(duel.as_ref()),
            "servers": servers, "announced": language.text_with("race-announced", &said),
            "verdict": verdict, "caption": caption, "entries": language.text(entries),
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

    /// Returns an event of one of two orders: what the buyer's phone shows, and a sentence; empty
    /// if nothing changes there.
    fn step(&self, event: &Event, at: f64) -> Value {
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
            EventKind::Answered if is_sold => (outcome, text("race-step-sold")),
            EventKind::Answered => (outcome, text("race-step-refused")),
            EventKind::Broken => (outcome, String::new()),
            _ => (String::new(), String::new()),
        };
        json!({
            "kind": event.kind.name(), "lane": event.lane, "at": rounded(at), "value": value,
            "isSold": is_sold, "status": status, "caption": caption,
        })
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
    fn events(&self, lane: &RaceLane) -> Vec<Event<()>> {
        let has_lock = self.race.lock != "none";
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
                EventKind::Sent | EventKind::Held | EventKind::Read | EventKind::Answered => true,
                EventKind::Wait => is_wait_shown,
                EventKind::Write => lane.result == SOLD,
                EventKind::Release => has_lock,
                _ => false,
            };
            if !is_shown {
                continue;
            }

            let is_lock = event.kind == EventKind::Read && locks_row;
            if is_lock && lane.event(&EventKind::Held).is_none() {
                shown.push(Event::new((), event.at_us, EventKind::Held));
            }
            // The fences of two servers are not compared here.
            let detail = Detail { value: event.detail.value, ..Detail::default() };
            shown.push(Event { detail, ..event.clone() });
        }
        if lane.result == NO_ANSWER {
            shown.push(Event::new((), self.span_us(), EventKind::Broken));
        }
        shown
    }

    /// Returns the figures: `2 sold · 1 existed`.
    pub fn verdict(&self) -> String {
        self.figures(self.result.sold)
    }

    /// Returns whether the figures are of a loss: more was sold than existed.
    pub fn is_oversold(&self) -> bool {
        self.result.sold > self.race.stock
    }

    fn figures(&self, sold: i64) -> String {
        let figures = [("sold", sold.into()), ("existed", self.race.stock.into())];
        self.language.text_with("race-verdict", &figures)
    }

    /// Returns the line below a picture: `2 real orders in 59 ms · Holdfast`.
    pub fn footer(&self) -> String {
        let ms = grouped(self.span_us().div_ceil(1_000));
        let figures = [("orders", self.result.lanes.len().into()), ("ms", ms.into())];
        self.language.text_with("race-picture-footer", &figures)
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
        let factor = (self.play_ms as f64 * end / ms as f64).round().max(1.0);
        let scale = [("ms", ms.to_string().into()), ("factor", factor.to_string().into())];
        let scale = language.text_with("race-scale", &scale);

        sentences(language, proof, &scale)
    }

    /// Returns the question of the race: who gets it?
    pub fn question(&self) -> String {
        let figures = [("buyers", self.race.buyers.into()), ("stock", self.race.stock.into())];
        match (self.is_duel(), self.race.stock) {
            (true, 1) => self.language.text("race-question"),
            _ => self.language.text_with("race-question-crowd", &figures),
        }
    }

    /// Explains the result in one to three sentences.
    pub fn explain(&self) -> String {
        let Self { result, language, .. } = *self;
        let unanswered = result.lanes.iter().filter(|lane| lane.result == NO_ANSWER).count();
        let mut results = result.lanes.iter().map(|lane| lane.result.as_str());
        let other = results.find(|name| ![SOLD, SOLD_OUT, NO_ANSWER].contains(name));

        if unanswered > 0 {
            language.text_with("race-no-answer", &[("count", unanswered.into())])
        } else if result.doubled() > 0 {
            self.explain_loss()
        } else if let Some(other) = other {
            language.text_with("race-other", &[("result", other.into())])
        } else if let Some(winner) = result.lanes.iter().find(|lane| lane.result == SOLD)
            && let Some(loser) = result.lanes.iter().find(|lane| lane.result == SOLD_OUT)
            && self.is_duel()
        {
            let names =
                [("winner", winner.buyer.as_str().into()), ("loser", loser.buyer.as_str().into())];
            language.text_with("race-held", &names)
        } else {
            language.text("race-crowd-held")
        }
    }

    /// Explains lost updates: what the lock did not do, what was lost, and what is left of it.
    fn explain_loss(&self) -> String {
        let Self { race, result, language, .. } = *self;
        let doubled = result.doubled();

        let lost = if self.is_duel() {
            let read = result.lanes.first().and_then(|lane| lane.value_at(&EventKind::Read));
            let value = read.unwrap_or(race.stock);
            let variables = [("value", value.into()), ("after", (value - 1).into())];
            language.text_with("race-lost", &variables)
        } else if doubled == 1 {
            language.text("race-crowd-lost-one")
        } else {
            language.text_with("race-crowd-lost", &[("doubled", doubled.into())])
        };

        let lost = match race.lock.as_str() {
            "local" => sentences(language, language.text("race-lost-local"), &lost),
            _ => lost,
        };
        // What would be left if each sale had taken its unit.
        if result.left <= (race.stock - result.sold).max(0) {
            return lost;
        }
        let figures = [("left", result.left.into()), ("sold", result.sold.into())];
        sentences(language, lost, &language.text_with("race-crowd-left", &figures))
    }
}

/// Rounds a place in the playback to what can be seen.
fn rounded(at: f64) -> f64 {
    (at * 10_000.0).round() / 10_000.0
}

/// Joins two sentences; a Chinese full stop needs no space.
fn sentences(language: Language, first: String, second: &str) -> String {
    match language {
        Language::English => format!("{first} {second}"),
        Language::Chinese => first + second,
    }
}

pub(super) fn server(lane: &RaceLane, language: Language) -> String {
    language.text_with("race-server", &[("name", lane.replica.as_str().into())])
}

/// Returns the result of an order as its buyer's phone shows it.
fn outcome(lane: &RaceLane, language: Language) -> String {
    language.text(match lane.result.as_str() {
        SOLD => "race-status-sold",
        SOLD_OUT => "shop-sold-out",
        NO_ANSWER => "race-status-no-answer",
        _ => "race-status-refused",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_lab::race::model::WITHOUT_LOCK;

    fn explain(race: &Race, language: Language) -> String {
        RaceView::of(race, language).unwrap().explain()
    }

    /// A race of 200 for 100 units, in which each value was read 25 times.
    fn crowd(lock: &str) -> Race {
        let event = |at_us, kind, value| Event::new((), at_us, kind).with_number(Some(value));
        let lane = |number: u64| {
            let value = 100 - i64::try_from(number / 25).unwrap();
            RaceLane {
                buyer: number.to_string(),
                replica: "8080".to_owned(),
                result: SOLD.to_owned(),
                events: vec![
                    event(number, EventKind::Read, value),
                    event(number + 1, EventKind::Write, value - 1),
                ],
            }
        };
        let result = RaceResult {
            sold: 200,
            oversold: 100,
            left: 92,
            lanes: (0..200).map(lane).collect(),
            ..RaceResult::default()
        };
        let (lock, result) = (lock.to_owned(), Some(result));
        Race { lock, buyers: 200, stock: 100, result, ..Race::default() }
    }

    #[test]
    fn mutex_of_one_server_is_explained() {
        let mut race = WITHOUT_LOCK.clone();
        let without = explain(&race, Language::English);
        race.lock = "local".to_owned();
        let with = explain(&race, Language::English);
        assert!(with.starts_with("Each server has its own mutex") && with.ends_with(&without));
        assert!(explain(&race, Language::Chinese).contains("互斥锁，一台的锁挡不住另一台。两个"));
    }

    #[test]
    fn figures_are_of_a_loss_once_more_is_sold_than_existed() {
        let race = crowd("none");
        let view = RaceView::of(&race, Language::English).unwrap();
        let cells = view.cells();
        let first = cells.iter().position(|cell| cell.is_oversold).unwrap();
        assert_eq!(cells[first].verdict, "101 sold · 100 existed");
        assert!(cells[first..].iter().all(|cell| cell.is_oversold));
        assert!(cells[2].kind == "doubled" && view.is_oversold());

        // Units were sold twice, and in all fewer than existed.
        let mut few = race.clone();
        few.result.as_mut().unwrap().sold = 8;
        assert!(!RaceView::of(&few, Language::English).unwrap().is_oversold());
    }

    #[test]
    fn units_left_of_an_oversold_item_are_explained() {
        let left = "92 still on the shelf after 200 sold";
        assert!(explain(&crowd("none"), Language::English).contains(left));
        assert!(explain(&crowd("none"), Language::English).starts_with("192 red receipts"));
        assert!(explain(&crowd("local"), Language::English).starts_with("Each server"));

        // Of 100 units, 8 were sold: 92 are left as they should be.
        let mut sound = crowd("none");
        sound.result.as_mut().unwrap().sold = 8;
        assert!(!explain(&sound, Language::English).contains("still on the shelf"));
        // Two orders of one unit leave none.
        assert!(!explain(&WITHOUT_LOCK, Language::English).contains("still on the shelf"));
    }
}
