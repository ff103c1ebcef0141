//! What a visitor did in the lab, and the answers of all visitors.

use actix_web::HttpRequest;
use time::OffsetDateTime;

use crate::web::pages::visitor::visitor;
use crate::web::{AppState, Problem, app_state};
use holdfast_base::messages::Language;
use holdfast_lab::class;
use holdfast_lab::lessons::Lesson;
use holdfast_lab::progress::{self, AnswerCount, VisitorActivity};

#[derive(Debug, Default)]
pub struct Progress(Vec<VisitorActivity>);

impl Progress {
    pub async fn of(request: &HttpRequest) -> Result<Self, Problem> {
        let pool = &app_state(request)?.shop.pool;
        Ok(match visitor(request).await? {
            Some(visitor) => Self(progress::of_visitor(pool, visitor).await?),
            None => Self::default(),
        })
    }

    pub fn activity(&self, lesson: &Lesson) -> Option<&VisitorActivity> {
        self.0.iter().find(|activity| activity.name == lesson.name)
    }

    /// Returns whether the visitor has seen the end of a run.
    pub fn is_done(&self, lesson: &Lesson) -> bool {
        self.activity(lesson).is_some_and(|activity| activity.done_at.is_some())
    }

    pub fn guess(&self, lesson: &Lesson) -> Option<usize> {
        self.activity(lesson)?.guess
    }
}

/// The answers of all visitors to a lesson.
#[derive(Debug)]
pub struct Guesses {
    /// The name of the lesson.
    pub lesson: &'static str,
    pub answers: Vec<(String, AnswerCount)>,
    /// True in a class until its teacher shows how many chose each answer.
    pub are_hidden: bool,
    /// When the teacher did.
    pub shown_at: Option<OffsetDateTime>,
    pub most: Option<MostChosen>,
    /// The visitor's own, if any.
    pub own: Option<usize>,
    pub right: usize,
    /// `None` if there is no answer of one's own, or it is right.
    pub why_wrong: Option<String>,
    /// True once the right one may be marked.
    pub is_revealed: bool,
}

impl Guesses {
    pub async fn of(
        state: &AppState,
        lesson: &Lesson,
        own: Option<usize>,
        language: Language,
    ) -> Result<Self, Problem> {
        let pool = &state.shop.pool;
        let shown_at = match state.class {
            true => class::votes_shown_at(pool, lesson.name).await?,
            false => None,
        };
        let counts = progress::counts(pool, lesson.name, shown_at).await?;
        let why_wrong = |place| lesson.why_wrong(place, language);
        let most = |place| MostChosen { number: place + 1, why_wrong: why_wrong(place) };

        Ok(Self {
            lesson: lesson.name,
            answers: lesson.guesses(language).into_iter().zip(counts).collect(),
            are_hidden: state.class && shown_at.is_none(),
            shown_at,
            most: place_of_most(&counts).map(most),
            own,
            right: lesson.right,
            why_wrong: own.and_then(why_wrong),
            is_revealed: true,
        })
    }

    pub fn is_own(&self, place: &usize) -> bool {
        self.own == Some(*place)
    }

    pub fn total(&self) -> i64 {
        self.answers.iter().map(|(_, count)| count.all).sum()
    }

    pub fn late(&self) -> i64 {
        self.answers.iter().map(|(_, count)| count.late).sum()
    }

    pub fn length(&self, count: &i64) -> i64 {
        let most = self.answers.iter().map(|(_, count)| count.all).max();
        count * 200 / most.unwrap_or(0).max(1)
    }
}

/// The answer that more visitors gave than any other.
#[derive(Debug)]
pub struct MostChosen {
    /// As the page numbers the answers.
    pub number: usize,
    /// `None` if it is right.
    pub why_wrong: Option<String>,
}

/// Returns the place of the largest count; `None` if two are as large.
fn place_of_most(counts: &[AnswerCount]) -> Option<usize> {
    let most = counts.iter().map(|count| count.all).max()?;
    let mut places = (0..counts.len()).filter(|place| counts[*place].all == most);
    places.next().filter(|_| places.next().is_none())
}
