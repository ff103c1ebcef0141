//! Decides when a job is due, and what to do about it now.
//!
//! Pure functions of the time and of the rows, so a test can move the clock. All times are UTC
//! (cron: minute, hour, day, month, weekday; 0 and 7 are Sunday) and Postgres's; a replica's own
//! clock determines only how long it sleeps. `croner` parses the expressions: it counts weekdays
//! like crontab and searches backwards, as missed ticks require.
//!
//! If that clock jumps:
//! - **ahead**: the ticks in between count as missed; the latest of them runs, once;
//! - **back**: ticks that occur a second time have rows and do not run again. Rows are kept for
//!   [`super::purge::RUNS_KEPT_DAYS`]; older ticks are unknown;
//! - **far ahead by mistake, and back**: only the rows of those very ticks exist, so today's ticks
//!   run today.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use croner::errors::CronError;
use croner::{CivilDateTime, Cron, CronDateTime, Resolution, Weekday};
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use super::store::{Known, Open, State};
use crate::clock::Backoff;

/// Backoff before a failed run is retried.
pub const PAUSES: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };

#[derive(Clone)]
pub struct Timetable(Cron);

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timetable({})", self.0.as_str())
    }
}

impl Timetable {
    pub fn read(expression: &str) -> anyhow::Result<Self> {
        let cron = Cron::from_str(expression);
        Ok(Self(cron.map_err(|error| anyhow::anyhow!("{expression:?} is no timetable: {error}"))?))
    }

    /// Returns the latest tick at or before `now`.
    pub fn latest(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.0.find_previous_occurrence(&Utc::of(now), true).ok().map(|found| found.0)
    }

    pub fn next(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.0.find_next_occurrence(&Utc::of(now), false).ok().map(|found| found.0)
    }

    pub fn words(&self) -> String {
        self.0.describe().trim_end_matches('.').to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The tick is due, and no replica has started it.
    Begin(OffsetDateTime),
    /// The run of the tick failed or was parked, and its pause is over.
    Again(OffsetDateTime),
    /// A replica runs the tick. If its lock is free, that replica is gone and the run can be taken
    /// over.
    Follow(OffsetDateTime),
    /// Nothing to do before this time; `None` if no time is known.
    Wait(Option<OffsetDateTime>),
}

/// Returns what to do about a job with these rows.
pub fn step(timetable: Option<&Timetable>, now: OffsetDateTime, known: &Known) -> Step {
    if let Some(open) = &known.open {
        return of_open(timetable, now, open);
    }
    let Some(timetable) = timetable else { return Step::Wait(None) };
    match timetable.latest(now) {
        Some(tick) if !is_served(tick, now, known) => Step::Begin(tick),
        _ => Step::Wait(timetable.next(now)),
    }
}

fn of_open(timetable: Option<&Timetable>, now: OffsetDateTime, open: &Open) -> Step {
    // A clock that was put back must not prolong a pause.
    let longest = match open.state {
        State::Running => return Step::Follow(open.due_at),
        State::Done => return Step::Wait(None),
        State::Failed => Some(now + PAUSES.longest),
        State::Parked => timetable.and_then(|timetable| timetable.next(now)),
    };
    match open.next_at {
        Some(at) if at <= now || longest.is_some_and(|longest| at > longest) => {
            Step::Again(open.due_at)
        }
        at => Step::Wait(at),
    }
}

/// Returns whether a tick was run, or a run started after it: a run does *all outstanding work*,
/// not *the work of one minute*.
fn is_served(tick: OffsetDateTime, now: OffsetDateTime, known: &Known) -> bool {
    let last = known.last.as_ref();
    last.is_some_and(|last| last.due_at == tick || (tick..=now).contains(&last.started_at))
}

/// A time for the cron crate, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Utc(OffsetDateTime);

impl Utc {
    fn of(moment: OffsetDateTime) -> Self {
        let seconds = moment.unix_timestamp();
        Self(OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH))
    }

    fn from_civil(civil: CivilDateTime) -> Option<Self> {
        let small = |number: u32| u8::try_from(number).ok();
        let month = Month::try_from(small(civil.month())?).ok()?;
        let date = Date::from_calendar_date(civil.year(), month, small(civil.day())?).ok()?;
        let (hour, minute) = (small(civil.hour())?, small(civil.minute())?);
        let time = Time::from_hms(hour, minute, small(civil.second())?).ok()?;
        Some(Self(PrimitiveDateTime::new(date, time).assume_utc()))
    }
}

impl CronDateTime for Utc {
    fn to_civil(&self) -> CivilDateTime {
        let (year, month, day) = self.0.to_calendar_date();
        let (hour, minute, second) = self.0.to_hms();
        let (month, day) = (u32::from(u8::from(month)), u32::from(day));
        CivilDateTime::new(
            croner::CivilDate::from_parts_unchecked(year, month, day),
            croner::CivilTime::from_parts_unchecked(hour.into(), minute.into(), second.into()),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(self.0.weekday().number_days_from_sunday().into())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        Self::from_civil(civil).map(Resolution::Single).ok_or(CronError::InvalidDate)
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(time::Duration::seconds(seconds)).map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::jobs::store::Last;

    fn hourly() -> Timetable {
        Timetable::read("7 * * * *").expect("a timetable")
    }

    fn ran(due_at: OffsetDateTime, started_at: OffsetDateTime) -> Known {
        Known { last: Some(Last { due_at, started_at }), open: None }
    }

    fn open(state: State, next_at: Option<OffsetDateTime>) -> Known {
        let due_at = datetime!(2026-11-22 10:07 UTC);
        let last = Some(Last { due_at, started_at: due_at });
        Known { last, open: Some(Open { due_at, state, next_at }) }
    }

    #[test]
    fn latest_and_next_tick_are_found() {
        let now = datetime!(2026-11-22 12:07:00.5 UTC);
        assert_eq!(hourly().latest(now), Some(datetime!(2026-11-22 12:07 UTC)));
        assert_eq!(hourly().next(now), Some(datetime!(2026-11-22 13:07 UTC)));
        let before = datetime!(2026-11-22 12:06:59.9 UTC);
        assert_eq!(hourly().latest(before), Some(datetime!(2026-11-22 11:07 UTC)));
        assert_eq!(hourly().next(before), Some(datetime!(2026-11-22 12:07 UTC)));
        let leap = Timetable::read("0 3 29 2 *").expect("a timetable");
        assert_eq!(leap.next(now), Some(datetime!(2028-02-29 03:00 UTC)));
        // 0 and 7 are Sunday, as crontab has it (some crates begin with Sunday as 1).
        for sunday in ["0 4 * * 0", "0 4 * * 7", "0 4 * * SUN"] {
            let weekly = Timetable::read(sunday).expect("a timetable");
            assert_eq!(weekly.latest(now), Some(datetime!(2026-11-22 04:00 UTC)), "{sunday}");
        }
        assert!(Timetable::read("every now and then").is_err());
    }

    #[test]
    fn tick_is_due_once() {
        let (tick, now) = (datetime!(2026-11-22 12:07 UTC), datetime!(2026-11-22 12:30 UTC));
        let timetable = hourly();
        let step = |known: &Known| super::step(Some(&timetable), now, known);
        assert_eq!(step(&Known::default()), Step::Begin(tick));
        let before = datetime!(2026-11-22 11:07 UTC);
        assert_eq!(step(&ran(before, before)), Step::Begin(tick));
        assert_eq!(step(&ran(tick, tick)), Step::Wait(timetable.next(now)));
    }

    #[test]
    fn only_latest_missed_tick_runs() {
        let old = datetime!(2026-11-02 09:07 UTC);
        let now = datetime!(2026-11-22 12:30 UTC);
        let tick = datetime!(2026-11-22 12:07 UTC);
        assert_eq!(step(Some(&hourly()), now, &ran(old, old)), Step::Begin(tick));
        assert_eq!(step(Some(&hourly()), now, &ran(tick, now)), Step::Wait(hourly().next(now)));
    }

    #[test]
    fn late_run_covers_ticks_before_its_start() {
        // The run of 11:07 failed, and its last attempt began at 12:10.
        let late = ran(datetime!(2026-11-22 11:07 UTC), datetime!(2026-11-22 12:10 UTC));
        let now = datetime!(2026-11-22 12:30 UTC);
        assert_eq!(step(Some(&hourly()), now, &late), Step::Wait(hourly().next(now)));
    }

    #[test]
    fn clock_jump_neither_repeats_nor_skips_ticks() {
        let timetable = hourly();
        // Back by half an hour: the tick of 12:07 occurs again, and has its row.
        let ran_it = ran(datetime!(2026-11-22 12:07 UTC), datetime!(2026-11-22 12:07:01 UTC));
        let again = datetime!(2026-11-22 12:07:30 UTC);
        assert!(matches!(step(Some(&timetable), again, &ran_it), Step::Wait(_)));
        // In 2031 by mistake for a minute, and back: today's tick runs today.
        let future = ran(datetime!(2031-01-01 00:07 UTC), datetime!(2031-01-01 00:07 UTC));
        let now = datetime!(2026-11-22 12:30 UTC);
        assert_eq!(
            step(Some(&timetable), now, &future),
            Step::Begin(datetime!(2026-11-22 12:07 UTC))
        );
        // A pause is not prolonged by the hours that the clock was put back.
        let failed = open(State::Failed, Some(now + Duration::from_hours(5)));
        assert!(matches!(step(Some(&timetable), now, &failed), Step::Again(_)));
        let parked = open(State::Parked, Some(now + Duration::from_hours(5)));
        assert!(matches!(step(Some(&timetable), now, &parked), Step::Again(_)));
    }

    #[test]
    fn open_run_blocks_the_next_tick() {
        let now = datetime!(2026-11-22 12:30 UTC);
        let due = datetime!(2026-11-22 10:07 UTC);
        let (soon, ago) = (now + Duration::from_secs(9), now - Duration::from_secs(1));
        let step = |state, next_at| super::step(Some(&hourly()), now, &open(state, next_at));
        assert_eq!(step(State::Running, None), Step::Follow(due));
        assert_eq!(step(State::Failed, Some(soon)), Step::Wait(Some(soon)));
        assert_eq!(step(State::Failed, Some(ago)), Step::Again(due));
        assert_eq!(step(State::Parked, Some(soon)), Step::Wait(Some(soon)));
        assert_eq!(step(State::Parked, Some(ago)), Step::Again(due));
        // Without a timetable it waits for an admin.
        assert_eq!(super::step(None, now, &open(State::Parked, None)), Step::Wait(None));
    }
}
