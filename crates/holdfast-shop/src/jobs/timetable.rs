//! When a job is due: pure functions of Postgres's time and of rows.
//!
//! If that clock jumps ahead, the latest of the ticks in between runs, once. If it jumps back,
//! ticks that occur a second time have rows and do not run again.

use time::{Duration, OffsetDateTime};

use super::runs::JobRun;

/// Ticks at regular intervals, the first one `offset_s` seconds after 1970, UTC.
#[derive(Debug, Clone, Copy)]
pub struct Timetable {
    pub every_s: i64,
    pub offset_s: i64,
}

impl Timetable {
    pub(super) const fn hourly(minute: i64) -> Self {
        Self { every_s: 3_600, offset_s: 60 * minute }
    }

    fn latest_tick(self, now: OffsetDateTime) -> OffsetDateTime {
        let second = now.unix_timestamp();
        let tick = second - (second - self.offset_s).rem_euclid(self.every_s);
        OffsetDateTime::from_unix_timestamp(tick).unwrap_or(now)
    }

    pub(super) fn next_tick(self, now: OffsetDateTime) -> OffsetDateTime {
        self.latest_tick(now) + Duration::seconds(self.every_s)
    }

    /// Returns the latest tick, unless it was run or a run started after it: a run does *all
    /// outstanding work*, not *the work of one minute*.
    pub(super) fn due_tick(
        self,
        now: OffsetDateTime,
        newest: Option<&JobRun>,
    ) -> Option<OffsetDateTime> {
        let tick = self.latest_tick(now);
        let is_covered =
            newest.is_some_and(|run| run.due_at == tick || (tick..=now).contains(&run.started_at));
        (!is_covered).then_some(tick)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::runs::RunState;
    use super::*;

    const HOURLY: Timetable = Timetable::hourly(7);
    const NOW: OffsetDateTime = datetime!(2026-11-22 12:30 UTC);
    const TICK: OffsetDateTime = datetime!(2026-11-22 12:07 UTC);

    fn due_after(due_at: OffsetDateTime, started_at: OffsetDateTime) -> Option<OffsetDateTime> {
        let run = JobRun {
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
        HOURLY.due_tick(NOW, Some(&run))
    }

    #[test]
    fn latest_and_next_tick_are_found() {
        assert_eq!(HOURLY.latest_tick(TICK), TICK);
        assert_eq!(HOURLY.next_tick(TICK), datetime!(2026-11-22 13:07 UTC));
        let before = datetime!(2026-11-22 12:06:59.9 UTC);
        assert_eq!(HOURLY.latest_tick(before), datetime!(2026-11-22 11:07 UTC));
        assert_eq!(HOURLY.next_tick(before), TICK);
    }

    #[test]
    fn latest_missed_tick_is_due_once() {
        assert_eq!(HOURLY.due_tick(NOW, None), Some(TICK));
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
