//! When a job is due, by its cron expression in UTC: pure functions of Postgres's time and of rows.
//!
//! If that clock jumps ahead, the latest of the ticks in between runs, once. If it jumps back,
//! ticks that occur a second time have rows and do not run again.

use chrono::{DateTime, Utc};
use croner::Cron;
use time::OffsetDateTime;

use super::runs::JobRun;

/// Returns the latest tick, unless it was run or a run started after it: a run does *all
/// outstanding work*, not *the work of one minute*.
pub(super) fn due_tick(
    cron: &str,
    now: OffsetDateTime,
    newest: Option<&JobRun>,
) -> Option<OffsetDateTime> {
    let cron: Cron = cron.parse().ok()?;
    let tick = from_chrono(cron.find_previous_occurrence(&to_chrono(now), true).ok()?)?;
    let covers = |run: &JobRun| run.due_at == tick || (tick..=now).contains(&run.started_at);
    (!newest.is_some_and(covers)).then_some(tick)
}

pub(super) fn next_tick(cron: &str, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let cron: Cron = cron.parse().ok()?;
    from_chrono(cron.find_next_occurrence(&to_chrono(now), false).ok()?)
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
    use time::macros::datetime;

    use super::super::{JOBS, runs::RunState};
    use super::*;

    const HOURLY: &str = "7 * * * *";
    const NOW: OffsetDateTime = datetime!(2026-11-22 12:30 UTC);
    const TICK: OffsetDateTime = datetime!(2026-11-22 12:07 UTC);

    fn due_after(due_at: OffsetDateTime, started_at: OffsetDateTime) -> Option<OffsetDateTime> {
        let run = JobRun {
            id: 1,
            job: "hourly".to_owned(),
            due_at,
            state: RunState::Done,
            attempt: 1,
            replica: "a".to_owned(),
            started_at,
            ended_at: None,
            next_at: None,
            result: None,
            error: None,
        };
        due_tick(HOURLY, NOW, Some(&run))
    }

    #[test]
    fn latest_and_next_tick_are_found() {
        assert_eq!(due_tick(HOURLY, TICK, None), Some(TICK));
        assert_eq!(next_tick(HOURLY, TICK), Some(datetime!(2026-11-22 13:07 UTC)));
        let before = datetime!(2026-11-22 12:06:59.9 UTC);
        assert_eq!(due_tick(HOURLY, before, None), Some(datetime!(2026-11-22 11:07 UTC)));
        assert_eq!(next_tick(HOURLY, before), Some(TICK));
        assert_eq!(next_tick("every now and then", NOW), None);
        for job in JOBS {
            assert_eq!(
                job.cron.and_then(|cron| next_tick(cron, NOW)).is_some(),
                job.cron.is_some()
            );
        }
    }

    #[test]
    fn latest_missed_tick_is_due_once() {
        assert_eq!(due_tick(HOURLY, NOW, None), Some(TICK));
        let old = datetime!(2026-11-02 09:07 UTC);
        assert_eq!(due_after(old, old), Some(TICK));
        assert_eq!(due_after(TICK, TICK), None);
        // The last attempt of the run of 11:07 began at 12:10.
        assert_eq!(
            due_after(datetime!(2026-11-22 11:07 UTC), datetime!(2026-11-22 12:10 UTC)),
            None
        );
    }

    #[test]
    fn clock_jump_neither_repeats_nor_skips_ticks() {
        // Back by half an hour: the tick occurs again, and has its row.
        assert_eq!(due_after(TICK, datetime!(2026-11-22 12:59 UTC)), None);
        // In 2031 by mistake for a minute, and back: today's tick runs today.
        let future = datetime!(2031-01-01 00:07 UTC);
        assert_eq!(due_after(future, future), Some(TICK));
    }
}
