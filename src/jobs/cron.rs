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

use super::store::{JobRuns, OpenRun, RunState};
use crate::backoff::Backoff;

/// Backoff before a failed run is retried.
pub const RETRY_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };

#[derive(Clone)]
pub struct CronSchedule(Cron);

impl fmt::Debug for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronSchedule({})", self.0.as_str())
    }
}

impl CronSchedule {
    pub fn parse(expression: &str) -> anyhow::Result<Self> {
        let cron = Cron::from_str(expression);
        Ok(Self(cron.map_err(|error| anyhow::anyhow!("{expression:?} is no timetable: {error}"))?))
    }

    /// Returns the latest tick at or before `now`.
    pub fn latest_tick(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.0.find_previous_occurrence(&Utc::of(now), true).ok().map(|found| found.0)
    }

    pub fn next_tick(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.0.find_next_occurrence(&Utc::of(now), false).ok().map(|found| found.0)
    }

    pub fn describe(&self) -> String {
        self.0.describe().trim_end_matches('.').to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TickDecision {
    /// The tick is due, and no replica has started it.
    Start(OffsetDateTime),
    /// The run of the tick failed or was parked, and its pause is over.
    Retry(OffsetDateTime),
    /// A replica runs the tick. If its lock is free, that replica is gone and the run can be taken
    /// over.
    TakeOver(OffsetDateTime),
    /// Nothing to do before this time; `None` if no time is known.
    Wait(Option<OffsetDateTime>),
}

/// Returns what to do about a job with these rows.
pub fn decide(
    schedule: Option<&CronSchedule>,
    now: OffsetDateTime,
    known: &JobRuns,
) -> TickDecision {
    if let Some(open) = &known.open {
        return decide_open(schedule, now, open);
    }
    let Some(schedule) = schedule else { return TickDecision::Wait(None) };
    match schedule.latest_tick(now) {
        Some(tick) if !is_covered(tick, now, known) => TickDecision::Start(tick),
        _ => TickDecision::Wait(schedule.next_tick(now)),
    }
}

fn decide_open(
    schedule: Option<&CronSchedule>,
    now: OffsetDateTime,
    open: &OpenRun,
) -> TickDecision {
    // A clock that was put back must not prolong a pause.
    let longest = match open.state {
        RunState::Running => return TickDecision::TakeOver(open.due_at),
        RunState::Done => return TickDecision::Wait(None),
        RunState::Failed => Some(now + RETRY_BACKOFF.longest),
        RunState::Parked => schedule.and_then(|schedule| schedule.next_tick(now)),
    };
    match open.next_at {
        Some(at) if at <= now || longest.is_some_and(|longest| at > longest) => {
            TickDecision::Retry(open.due_at)
        }
        at => TickDecision::Wait(at),
    }
}

/// Returns whether a tick was run, or a run started after it: a run does *all outstanding work*,
/// not *the work of one minute*.
fn is_covered(tick: OffsetDateTime, now: OffsetDateTime, known: &JobRuns) -> bool {
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
    use crate::jobs::store::NewestRun;

    fn hourly() -> CronSchedule {
        CronSchedule::parse("7 * * * *").expect("a timetable")
    }

    fn ran(due_at: OffsetDateTime, started_at: OffsetDateTime) -> JobRuns {
        JobRuns { last: Some(NewestRun { due_at, started_at }), open: None }
    }

    fn open(state: RunState, next_at: Option<OffsetDateTime>) -> JobRuns {
        let due_at = datetime!(2026-11-22 10:07 UTC);
        let last = Some(NewestRun { due_at, started_at: due_at });
        JobRuns { last, open: Some(OpenRun { due_at, state, next_at }) }
    }

    #[test]
    fn latest_and_next_tick_are_found() {
        let now = datetime!(2026-11-22 12:07:00.5 UTC);
        assert_eq!(hourly().latest_tick(now), Some(datetime!(2026-11-22 12:07 UTC)));
        assert_eq!(hourly().next_tick(now), Some(datetime!(2026-11-22 13:07 UTC)));
        let before = datetime!(2026-11-22 12:06:59.9 UTC);
        assert_eq!(hourly().latest_tick(before), Some(datetime!(2026-11-22 11:07 UTC)));
        assert_eq!(hourly().next_tick(before), Some(datetime!(2026-11-22 12:07 UTC)));
        let leap = CronSchedule::parse("0 3 29 2 *").expect("a timetable");
        assert_eq!(leap.next_tick(now), Some(datetime!(2028-02-29 03:00 UTC)));
        // 0 and 7 are Sunday, as crontab has it (some crates begin with Sunday as 1).
        for sunday in ["0 4 * * 0", "0 4 * * 7", "0 4 * * SUN"] {
            let weekly = CronSchedule::parse(sunday).expect("a timetable");
            assert_eq!(weekly.latest_tick(now), Some(datetime!(2026-11-22 04:00 UTC)), "{sunday}");
        }
        assert!(CronSchedule::parse("every now and then").is_err());
    }

    #[test]
    fn tick_is_due_once() {
        let (tick, now) = (datetime!(2026-11-22 12:07 UTC), datetime!(2026-11-22 12:30 UTC));
        let schedule = hourly();
        let decide = |known: &JobRuns| super::decide(Some(&schedule), now, known);
        assert_eq!(decide(&JobRuns::default()), TickDecision::Start(tick));
        let before = datetime!(2026-11-22 11:07 UTC);
        assert_eq!(decide(&ran(before, before)), TickDecision::Start(tick));
        assert_eq!(decide(&ran(tick, tick)), TickDecision::Wait(schedule.next_tick(now)));
    }

    #[test]
    fn only_latest_missed_tick_runs() {
        let old = datetime!(2026-11-02 09:07 UTC);
        let now = datetime!(2026-11-22 12:30 UTC);
        let tick = datetime!(2026-11-22 12:07 UTC);
        assert_eq!(decide(Some(&hourly()), now, &ran(old, old)), TickDecision::Start(tick));
        assert_eq!(
            decide(Some(&hourly()), now, &ran(tick, now)),
            TickDecision::Wait(hourly().next_tick(now))
        );
    }

    #[test]
    fn late_run_covers_ticks_before_its_start() {
        // The run of 11:07 failed, and its last attempt began at 12:10.
        let late = ran(datetime!(2026-11-22 11:07 UTC), datetime!(2026-11-22 12:10 UTC));
        let now = datetime!(2026-11-22 12:30 UTC);
        assert_eq!(
            decide(Some(&hourly()), now, &late),
            TickDecision::Wait(hourly().next_tick(now))
        );
    }

    #[test]
    fn clock_jump_neither_repeats_nor_skips_ticks() {
        let schedule = hourly();
        // Back by half an hour: the tick of 12:07 occurs again, and has its row.
        let ran_it = ran(datetime!(2026-11-22 12:07 UTC), datetime!(2026-11-22 12:07:01 UTC));
        let again = datetime!(2026-11-22 12:07:30 UTC);
        assert!(matches!(decide(Some(&schedule), again, &ran_it), TickDecision::Wait(_)));
        // In 2031 by mistake for a minute, and back: today's tick runs today.
        let future = ran(datetime!(2031-01-01 00:07 UTC), datetime!(2031-01-01 00:07 UTC));
        let now = datetime!(2026-11-22 12:30 UTC);
        assert_eq!(
            decide(Some(&schedule), now, &future),
            TickDecision::Start(datetime!(2026-11-22 12:07 UTC))
        );
        // A pause is not prolonged by the hours that the clock was put back.
        let failed = open(RunState::Failed, Some(now + Duration::from_hours(5)));
        assert!(matches!(decide(Some(&schedule), now, &failed), TickDecision::Retry(_)));
        let parked = open(RunState::Parked, Some(now + Duration::from_hours(5)));
        assert!(matches!(decide(Some(&schedule), now, &parked), TickDecision::Retry(_)));
    }

    #[test]
    fn open_run_blocks_the_next_tick() {
        let now = datetime!(2026-11-22 12:30 UTC);
        let due = datetime!(2026-11-22 10:07 UTC);
        let (soon, ago) = (now + Duration::from_secs(9), now - Duration::from_secs(1));
        let decide = |state, next_at| super::decide(Some(&hourly()), now, &open(state, next_at));
        assert_eq!(decide(RunState::Running, None), TickDecision::TakeOver(due));
        assert_eq!(decide(RunState::Failed, Some(soon)), TickDecision::Wait(Some(soon)));
        assert_eq!(decide(RunState::Failed, Some(ago)), TickDecision::Retry(due));
        assert_eq!(decide(RunState::Parked, Some(soon)), TickDecision::Wait(Some(soon)));
        assert_eq!(decide(RunState::Parked, Some(ago)), TickDecision::Retry(due));
        // Without a schedule it waits for an admin.
        assert_eq!(
            super::decide(None, now, &open(RunState::Parked, None)),
            TickDecision::Wait(None)
        );
    }
}
