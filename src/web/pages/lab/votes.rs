//! The answers to a lesson as its page shows them before and after a run, and the run to watch.

use std::time::Duration;

use actix_web::HttpRequest;
use time::OffsetDateTime;

use super::progress::{Guesses, Progress};
use crate::web::pages::layout::{Layout, OFFERED_FOR};
use crate::web::{Problem, app_state};
use holdfast_lab::lessons::Lesson;
use holdfast_lab::store::{self, LessonRun};

/// Time after its run for which an audience sees the right answer: the next class is asked anew.
const REVEALED_FOR: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub struct Votes {
    /// An audience does not see which answer is the presenter's.
    pub guesses: Guesses,
    pub is_presented: bool,
    /// True if the own answer was given after the class had seen the votes.
    pub is_late: bool,
    /// One that goes on, or that has ended since the visitor answered; for an audience, a moment
    /// ago.
    pub run: Option<LessonRun>,
}

impl Votes {
    pub async fn of(
        request: &HttpRequest,
        lesson: &Lesson,
        layout: &Layout,
    ) -> Result<Self, Problem> {
        let state = app_state(request)?;
        let is_presented = layout.is_presented;
        let progress = Progress::of(request).await?;
        let activity = progress.activity(lesson);

        let own = activity.and_then(|activity| activity.guess).filter(|_| !is_presented);
        let mut guesses = Guesses::of(state, lesson, own, layout.language).await?;
        let since = OffsetDateTime::now_utc() - REVEALED_FOR;
        let done_at = activity.and_then(|activity| activity.done_at);
        guesses.is_revealed = done_at.is_some_and(|at| !is_presented || at > since);

        let answered_at = activity.and_then(|activity| activity.answered_at);
        let is_late = guesses.shown_at.is_some() && answered_at > guesses.shown_at;
        let since = match is_presented {
            // Any one of the class may have started it.
            true => Some(OffsetDateTime::now_utc() - OFFERED_FOR),
            false => answered_at,
        };
        let run = store::run_of_lesson(&state.shop.pool, lesson.name, since).await?;
        Ok(Self { guesses, is_presented, is_late, run })
    }

    /// Returns whether an answer would count. One of an audience always looks so.
    pub fn takes_answer(&self) -> bool {
        self.guesses.own.is_none() && (self.is_presented || !self.guesses.is_revealed)
    }

    /// Returns whether the visitor sees the answers of the others: not before the own one. In a
    /// class they have no figures yet.
    pub fn are_shown(&self) -> bool {
        self.is_presented || self.guesses.own.is_some() || self.guesses.is_revealed
    }
}
