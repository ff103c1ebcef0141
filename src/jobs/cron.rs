//! Decides when a job is due, and what to do about it now.
//!
//! Pure functions of the time and of the rows, so a test can move the clock: Postgres's, in UTC.
//! `croner` searches backwards, as missed ticks require.
//!
//! If that clock jumps ahead, the latest of the ticks in between runs, once. If it jumps back,
//! ticks that occur a second time have rows and do not run again.

use chrono::{DateTime, Utc};
use croner::Cron;
use time::OffsetDateTime;

use super::history::JobRun;
use super::job::Job;
use super::store::{RETRY_BACKOFF, RunState};

/// When a job is due, by its cron expression.
#[derive(Debug, Clone)]
pub struct Schedule(Cron);

impl Schedule {
    /// Returns the schedule of a job; `None` if it runs only at ticks it is offered.
    pub fn of(job: &Job) -> Option<Self> {
        job.cron.and_then(Self::parse)
    }

    fn parse(expression: &str) -> Option<Self> {
        expression.parse().ok().map(Self)
    }

    /// Returns the latest tick at or before `now`.
    pub fn latest_tick(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        from_chrono(self.0.find_previous_occurrence(&to_chrono(now), true).ok()?)
    }

    pub fn next_tick(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        from_chrono(self.0.find_next_occurrence(&to_chrono(now), false).ok()?)
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

/// Returns what to do about a job with these runs: the newest first, and the open run, if any.
pub fn decide(schedule: Option<&Schedule>, now: OffsetDateTime, runs: &[JobRun]) -> TickDecision {
    if let Some(open) = runs.iter().find(|run| run.state != RunState::Done) {
        return decide_open(schedule, now, open);
    }
    let Some(schedule) = schedule else { return TickDecision::Wait(None) };
    match schedule.latest_tick(now) {
        Some(tick) if !is_covered(tick, now, runs.first()) => TickDecision::Start(tick),
        _ => TickDecision::Wait(schedule.next_tick(now)),
    }
}

fn decide_open(schedule: Option<&Schedule>, now: OffsetDateTime, open: &JobRun) -> TickDecision {
    // A clock that is set back must not prolong a pause.
    let latest = match open.state {
        RunState::Running => return TickDecision::TakeOver(open.due_at),
        RunState::Done => return TickDecision::Wait(None),
        RunState::Failed => Some(now + RETRY_BACKOFF.longest),
        RunState::Parked => schedule.and_then(|schedule| schedule.next_tick(now)),
    };
    match open.next_at {
        Some(at) if at <= now || latest.is_some_and(|latest| at > latest) => {
            TickDecision::Retry(open.due_at)
        }
        at => TickDecision::Wait(at),
    }
}

/// Returns whether a tick was run, or a run started after it: a run does *all outstanding work*,
/// not *the work of one minute*.
fn is_covered(tick: OffsetDateTime, now: OffsetDateTime, newest: Option<&JobRun>) -> bool {
    newest.is_some_and(|run| run.due_at == tick || (tick..=now).contains(&run.started_at))
}

/// Returns the time to the second, for the cron crate.
fn to_chrono(moment: OffsetDateTime) -> DateTime<Utc> {
    DateTime::from_timestamp(moment.unix_timestamp(), 0).unwrap_or_default()
}

fn from_chrono(moment: DateTime<Utc>) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(moment.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::types::Json;
    use time::macros::datetime;

    use super::*;

    fn hourly() -> Schedule {
        Schedule::parse("7 * * * *").expect("a cron expression")
    }

    fn ran(due_at: OffsetDateTime, started_at: OffsetDateTime) -> [JobRun; 1] {
        let run = JobRun {
            id: 1,
            job: "hourly".to_owned(),
            due_at,
            state: RunState::Done,
            attempt: 1,
            attempts_allowed: 5,
            replica: "a".to_owned(),
            fence: 1,
            started_at,
            ended_at: None,
            next_at: None,
            result: None,
            error: None,
            previous_attempts: Json(Vec::new()),
        };
        [run]
    }

    fn open(state: RunState, next_at: Option<OffsetDateTime>) -> [JobRun; 1] {
        let due_at = datetime!(2026-11-22 10:07 UTC);
        ran(due_at, due_at).map(|run| JobRun { state, next_at, ..run })
    }

    #[test]
    fn latest_and_next_tick_are_found() {
        let now = datetime!(2026-11-22 12:07:00.5 UTC);
        assert_eq!(hourly().latest_tick(now), Some(datetime!(2026-11-22 12:07 UTC)));
        assert_eq!(hourly().next_tick(now), Some(datetime!(2026-11-22 13:07 UTC)));
        let before = datetime!(2026-11-22 12:06:59.9 UTC);
        assert_eq!(hourly().latest_tick(before), Some(datetime!(2026-11-22 11:07 UTC)));
        assert_eq!(hourly().next_tick(before), Some(datetime!(2026-11-22 12:07 UTC)));
        let leap = Schedule::parse("0 3 29 2 *").expect("a cron expression");
        assert_eq!(leap.next_tick(now), Some(datetime!(2028-02-29 03:00 UTC)));
        // 0 and 7 are Sunday, as crontab has it (some crates begin with Sunday as 1).
        for sunday in ["0 4 * * 0", "0 4 * * 7", "0 4 * * SUN"] {
            let weekly = Schedule::parse(sunday).expect("a cron expression");
            assert_eq!(weekly.latest_tick(now), Some(datetime!(2026-11-22 04:00 UTC)), "{sunday}");
        }
        assert!(Schedule::parse("every now and then").is_none());
    }

    #[test]
    fn tick_is_due_once() {
        let (tick, now) = (datetime!(2026-11-22 12:07 UTC), datetime!(2026-11-22 12:30 UTC));
        let schedule = hourly();
        let decide = |runs: &[JobRun]| super::decide(Some(&schedule), now, runs);
        assert_eq!(decide(&[]), TickDecision::Start(tick));
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
        // A pause is not prolonged by the hours that the clock was set back.
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
