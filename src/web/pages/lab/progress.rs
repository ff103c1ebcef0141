//! The lessons that a visitor has run, with the guesses: a cookie, so that it works without signing
//! in and without JavaScript. And the guesses of all visitors.

use std::collections::BTreeMap;

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;

use crate::web::middleware::LESSONS_COOKIE;
use crate::web::{AppState, Problem};
use holdfast_base::messages::Language;
use holdfast_lab::lessons::{self, GUESSES, Lesson};
use holdfast_lab::store;

/// Lessons by name, each with the index of the visitor's newest guess.
#[derive(Debug, Default)]
pub struct Progress(BTreeMap<&'static str, Option<usize>>);

impl Progress {
    pub fn of(request: &HttpRequest) -> Self {
        Self::parse(&LESSONS_COOKIE.read(request).unwrap_or_default())
    }

    /// Parses `name:guess.name:guess`; ignores what is invalid.
    fn parse(text: &str) -> Self {
        let lesson = |entry: &str| {
            let (name, guess) = entry.split_once(':')?;
            let guess = guess.parse().ok().filter(|guess| *guess < GUESSES);
            Some((lessons::named(name)?.name, guess))
        };
        Self(text.split('.').filter_map(lesson).collect())
    }

    fn text(&self) -> String {
        let entry = |(name, guess): (&&str, &Option<usize>)| {
            format!("{name}:{}", guess.map(|guess| guess.to_string()).unwrap_or_default())
        };
        self.0.iter().map(entry).collect::<Vec<_>>().join(".")
    }

    pub fn has_run(&self, lesson: &Lesson) -> bool {
        self.0.contains_key(lesson.name)
    }

    pub fn guess(&self, lesson: &Lesson) -> Option<usize> {
        self.0.get(lesson.name).copied().flatten()
    }

    /// Records a run; without a new guess, the earlier one stays.
    pub fn record(&mut self, lesson: &Lesson, guess: Option<usize>) {
        let guess = guess.or_else(|| self.guess(lesson));
        self.0.insert(lesson.name, guess);
    }

    pub fn cookie(&self, request: &HttpRequest) -> Cookie<'static> {
        LESSONS_COOKIE.build(request, self.text())
    }
}

#[derive(Debug)]
pub struct Guesses {
    pub answers: Vec<(String, i64)>,
    pub own: usize,
    pub right: usize,
}

impl Guesses {
    pub async fn of(
        state: &AppState,
        lesson: &Lesson,
        own: usize,
        language: Language,
    ) -> Result<Self, Problem> {
        let counts = store::guess_counts(&state.shop.pool, lesson.name, GUESSES).await?;
        let answers = lesson.guesses(language).into_iter().zip(counts).collect();
        Ok(Self { answers, own, right: lesson.right })
    }

    pub fn total(&self) -> i64 {
        self.answers.iter().map(|(_, count)| count).sum()
    }

    pub fn length(&self, count: &i64) -> i64 {
        let most = self.answers.iter().map(|(_, count)| *count).max();
        count * 200 / most.unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_cookie_and_ignores_junk() {
        let lesson = |name: &str| lessons::named(name).expect("there is such a lesson");
        let mut progress = Progress::parse("none-such:1.lost-update:2.fence:99.x.:");
        assert_eq!(progress.guess(lesson("lost-update")), Some(2));
        assert!(progress.has_run(lesson("fence")) && !progress.has_run(lesson("redlock")));
        progress.record(lesson("lost-update"), None);
        progress.record(lesson("redlock"), Some(0));
        assert_eq!(progress.text(), "fence:.lost-update:2.redlock:0");
        assert_eq!(Progress::parse(&progress.text()).text(), progress.text());
    }
}
