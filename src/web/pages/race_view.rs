//! A race in words: its figures, its question, and what explains its result. Tests:
//! `tests/pages/race.rs`.

use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_lab::race::model::{NO_ANSWER, Race, RaceLane, RaceResult, SOLD, SOLD_OUT};
use holdfast_story::EventKind;

/// A race that is done, in one language.
#[derive(Debug, Clone, Copy)]
pub(super) struct RaceView<'a> {
    pub race: &'a Race,
    pub result: &'a RaceResult,
    pub language: Language,
}

impl<'a> RaceView<'a> {
    pub fn of(race: &'a Race, language: Language) -> Option<Self> {
        race.result.as_ref().map(|result| Self { race, result, language })
    }

    pub fn is_duel(&self) -> bool {
        self.result.lanes.len() == 2
    }

    /// Returns the duration of the race, in microseconds.
    pub fn span_us(&self) -> u64 {
        let last = self.result.lanes.iter().filter_map(|lane| lane.events.last());
        last.map(|event| event.at_us).max().unwrap_or(0)
    }

    /// Returns the figures: `2 sold · 1 existed`.
    pub fn verdict(&self) -> String {
        self.figures(self.result.sold)
    }

    /// Returns whether the figures are of a loss: more was sold than existed.
    pub fn is_oversold(&self) -> bool {
        self.result.sold > self.race.stock
    }

    pub fn figures(&self, sold: i64) -> String {
        let figures = [("sold", sold.into()), ("existed", self.race.stock.into())];
        self.language.text_with("race-verdict", &figures)
    }

    /// Returns the line below a picture: `2 real orders in 59 ms · Holdfast`.
    pub fn footer(&self) -> String {
        let ms = grouped(self.span_us().div_ceil(1_000));
        let figures = [("orders", self.result.lanes.len().into()), ("ms", ms.into())];
        self.language.text_with("race-picture-footer", &figures)
    }

    /// Returns the question of the race: who gets it?
    pub fn question(&self) -> String {
        let figures = [("buyers", self.race.buyers.into()), ("stock", self.race.stock.into())];
        match (self.is_duel(), self.race.stock) {
            (true, 1) => self.language.text("race-question"),
            _ => self.language.text_with("race-question-crowd", &figures),
        }
    }

    /// Returns the name of the switch with which the story goes on after this race, if it does.
    pub fn next_switch(&self) -> Option<&'static str> {
        let is_lost = self.result.doubled() > 0;
        match (self.race.lock.as_str(), self.race.pause) {
            ("none", _) if is_lost => Some("on"),
            ("owner", false) if !is_lost && self.is_duel() => Some("pause"),
            ("owner", true) if is_lost => Some("fence"),
            _ => None,
        }
    }

    /// Explains the result in one to three sentences.
    pub fn explain(&self) -> String {
        let result = self.explain_result();
        if !self.race.pause || self.race.has_lease() {
            return result;
        }
        sentences(self.language, self.language.text("race-no-lease"), &result)
    }

    fn explain_result(&self) -> String {
        let Self { race, result, language } = *self;
        let is_lease_paused = race.pause && race.has_lease();
        let unanswered = result.lanes.iter().filter(|lane| lane.result == NO_ANSWER).count();
        let mut results = result.lanes.iter().map(|lane| lane.result.as_str());
        let other = results.find(|name| ![SOLD, SOLD_OUT, NO_ANSWER].contains(name));

        if unanswered > 0 {
            language.text_with("race-no-answer", &[("count", unanswered.into())])
        } else if is_lease_paused
            && let Some(late) = result.late_lane()
            && late.event(&EventKind::Paused).is_some()
        {
            self.explain_late_write(late)
        } else if result.doubled() > 0 {
            self.explain_loss()
        } else if let Some(other) = other {
            language.text_with("race-other", &[("result", other.into())])
        } else if is_lease_paused {
            language.text("race-pause-missed")
        } else if let Some(winner) = result.lanes.iter().find(|lane| lane.result == SOLD)
            && let Some(loser) = result.lanes.iter().find(|lane| lane.result == SOLD_OUT)
            && self.is_duel()
        {
            // On a busy machine, an order may arrive only after the other one's write.
            let times = loser.at(&EventKind::Wait).zip(winner.at(&EventKind::Write));
            let came_later = times.is_some_and(|(asked_us, written_us)| asked_us > written_us);
            let id = if came_later { "race-came-later" } else { "race-held" };
            let names =
                [("winner", winner.buyer.as_str().into()), ("loser", loser.buyer.as_str().into())];
            language.text_with(id, &names)
        } else {
            language.text("race-crowd-held")
        }
    }

    /// Explains what became of the write of a paused holder whose lease was over.
    fn explain_late_write(&self, late: &RaceLane) -> String {
        let Self { result, language, .. } = *self;
        let next = result.lanes.iter().find(|lane| lane.buyer != late.buyer);
        let next = next.map_or("", |lane| lane.buyer.as_str());
        let names = [("late", late.buyer.as_str().into()), ("next", next.into())];
        let id = if result.doubled() > 0 { "race-outlived" } else { "race-fenced" };
        language.text_with(id, &names)
    }

    /// Explains lost updates: what the lock did not do, what was lost, and what is left of it.
    fn explain_loss(&self) -> String {
        let Self { race, result, language } = *self;
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

/// Joins two sentences; a Chinese full stop needs no space.
pub(super) fn sentences(language: Language, first: String, second: &str) -> String {
    match language {
        Language::English => format!("{first} {second}"),
        Language::Chinese => first + second,
    }
}

/// Returns the name of the lesson that explains a race under this lock.
pub(super) fn lesson_of(lock: &str, is_paused: bool) -> &'static str {
    match lock {
        "local" => "one-replica",
        "owner" if is_paused => "outlived",
        "fenced" => "fence",
        "row-lock" => "database",
        _ => "lost-update",
    }
}

/// Returns the text of the link to a lesson.
pub(super) fn why(lesson: &str, language: Language) -> String {
    let title = language.text(&format!("lesson-{lesson}-title"));
    language.text_with("race-why", &[("lesson", title.into())])
}

pub(super) fn server(lane: &RaceLane, language: Language) -> String {
    language.text_with("race-server", &[("name", lane.replica.as_str().into())])
}

/// Returns the result of an order as its buyer's phone shows it.
pub(super) fn outcome(lane: &RaceLane, language: Language) -> String {
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
    use holdfast_lab::lessons;
    use holdfast_lab::race::model::{RACE_LOCKS, WITH_LOCK, WITHOUT_LOCK};
    use holdfast_story::TimelineEvent;

    fn explain(race: &Race, language: Language) -> String {
        RaceView::of(race, language).unwrap().explain()
    }

    /// A race of 200 for 100 units, in which each value was read 25 times.
    fn crowd(lock: &str) -> Race {
        let event =
            |at_us, kind, value| TimelineEvent::new((), at_us, kind).with_number(Some(value));
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
    fn every_race_has_its_lesson() {
        for lock in RACE_LOCKS {
            for is_paused in [false, true] {
                assert!(lessons::named(lesson_of(lock, is_paused)).is_some(), "{lock}");
            }
        }
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
    fn lock_is_said_to_make_an_order_wait_only_if_it_waited() {
        let mut race = WITH_LOCK.clone();
        assert!(explain(&race, Language::English).starts_with("The lock made B wait until A had"));

        let lanes = &mut race.result.as_mut().unwrap().lanes;
        let end_us = lanes[0].events.last().unwrap().at_us;
        for event in &mut lanes[1].events {
            event.at_us += end_us;
        }
        let later = explain(&race, Language::English);
        assert!(later.starts_with("B came after A had written"), "{later}");
    }

    #[test]
    fn pause_is_explained_by_what_happened() {
        let mut race = WITHOUT_LOCK.clone();
        race.pause = true;
        let no_lease = "Only a lock in Redis has a lease that can run out. Both orders read 1";
        assert!(explain(&race, Language::English).starts_with(no_lease));

        // Another buyer than the paused one wrote later.
        race.lock = "owner".to_owned();
        assert!(explain(&race, Language::English).starts_with("Both orders read 1"));

        let paused = || TimelineEvent::new((), 8_000, EventKind::Paused);
        let late = race.result.as_ref().unwrap().late_lane().unwrap().buyer.clone();
        for lane in &mut race.result.as_mut().unwrap().lanes {
            lane.events.extend((lane.buyer == late).then(paused));
        }
        let outlived = explain(&race, Language::English);
        assert!(outlived.starts_with(&late) && outlived.contains("lost update"), "{outlived}");

        // It was not paused long enough: nothing is claimed that the picture does not show.
        let mut early = WITH_LOCK.clone();
        early.pause = true;
        let missed = explain(&early, Language::English);
        assert!(missed.starts_with("This time the effect does not show"), "{missed}");

        // Its write was rejected, and its response says so.
        let result = early.result.as_mut().unwrap();
        result.lanes[0].result = "lock-lost".to_owned();
        let refused = TimelineEvent::new((), 9_000, EventKind::Refused);
        result.lanes[0].events.extend([paused(), refused]);
        let fenced = explain(&early, Language::English);
        assert!(fenced.starts_with('A') && fenced.contains("refused"), "{fenced}");
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
