//! What a student of a class hands in about a lesson: a run, with a note; and the sheet that asks
//! for it. Tests: `tests/pages/join.rs`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::middleware::LabReader;
use crate::web::pages::layout::Layout;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::{AppState, HttpResult, Problem};
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::progress::{self, Visitor};
use holdfast_lab::run::LabRun;
use holdfast_shop::sessions::Caller;

/// Longest note, in characters; the table has the same.
pub(super) const MAX_NOTE: usize = 500;
/// The lessons of the sheet; `exercise-NAME` says what to find in each.
const EXERCISES: [&str; 6] =
    ["lost-update", "one-replica", "check-then-delete", "outlived", "fence", "double-submit"];

/// The form on the page of a run.
#[derive(Debug)]
pub struct HandIn {
    /// The note that the student handed in about this lesson.
    pub note: String,
    /// True if this run is the one that was handed in; `None` if none was.
    pub is_this_run: Option<bool>,
    pub errors: FormErrors,
}

impl HandIn {
    /// Returns the form for a student, once a run of a lesson is done.
    pub async fn of(
        state: &AppState,
        caller: Option<&Caller>,
        run: &LabRun,
    ) -> Result<Option<Self>, Problem> {
        let Some(student) = caller.filter(|caller| caller.is_student && state.class) else {
            return Ok(None);
        };
        let Some(lesson) = lesson_of(run) else { return Ok(None) };

        let earlier = progress::handed_in(&state.shop.pool, lesson.name, visitor(student)).await?;
        let (note, is_this_run) = match earlier {
            Some((handed_in, note)) => (note, Some(handed_in == Some(run.id))),
            None => (String::new(), None),
        };
        Ok(Some(Self { note, is_this_run, errors: FormErrors::default() }))
    }
}

pub(super) fn visitor(student: &Caller) -> Visitor {
    Visitor { id: student.id.0, user: Some(student.id) }
}

/// Returns the lesson of a run that is done, and was executed here.
pub(super) fn lesson_of(run: &LabRun) -> Option<&'static Lesson> {
    let is_done = run.state.is_over() && !run.from_file;
    run.request.lesson.as_deref().filter(|_| is_done).and_then(lessons::named)
}

/// Returns a note as it is stored: with plain line ends, and without characters that Postgres or a
/// terminal would not take.
pub(super) fn clean_note(typed: &str) -> Option<String> {
    let lines = typed.replace("\r\n", "\n");
    let note: String = lines.trim().chars().filter(|c| !c.is_control() || *c == '\n').collect();
    (1..=MAX_NOTE).contains(&note.chars().count()).then_some(note)
}

#[derive(Debug, Template)]
#[template(path = "exercise.html")]
struct ExercisePage {
    layout: Layout,
    lessons: Vec<&'static Lesson>,
}

pub(crate) async fn exercise(request: HttpRequest, _: LabReader) -> HttpResult {
    let lessons = EXERCISES.into_iter().filter_map(lessons::named).collect();
    html(StatusCode::OK, &ExercisePage { layout: Layout::of(&request).await?, lessons })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::messages::Language;

    #[test]
    fn note_is_stored_as_typed_within_bounds() {
        assert_eq!(clean_note(" one\r\ntwo\0\u{7} \n"), Some("one\ntwo".to_owned()));
        let longest = "字".repeat(MAX_NOTE);
        assert_eq!(clean_note(&longest), Some(longest.clone()));
        for typed in ["", " \r\n ", &format!("{longest}字")] {
            assert_eq!(clean_note(typed), None);
        }
    }

    /// What the sheet's six lessons say of each question of the quiz in `docs/TEACHING.md`, and of
    /// what a lease, a fence and an idempotency key are for.
    const QUIZ: [(&str, &str, &str, &str); 13] = [
        (
            "lost-update",
            "takeaway-2",
            "two entries have the same `before`",
            "`before`（变动前）相同",
        ),
        (
            "one-replica",
            "takeaway-2",
            "It fails when the service scales to two",
            "一旦扩到两个副本",
        ),
        (
            "outlived",
            "primer",
            "a crash between `SETNX` and `EXPIRE`",
            "在 `SETNX` 和 `EXPIRE` 之间崩溃",
        ),
        (
            "check-then-delete",
            "takeaway-3",
            "Compare and delete in one atomic step",
            "一个原子步骤",
        ),
        ("outlived", "claim", "if the work outlives the lease", "业务时间超过租约时"),
        ("outlived", "takeaway-3", "a paused process renews nothing", "进程一暂停，续期也停了"),
        ("fence", "takeaway-2", "Only an equal row version proves", "只有行的版本相等"),
        ("fence", "takeaway-3", "dead Redis servers, not a paused client", "容忍不了客户端暂停"),
        (
            "lost-update",
            "takeaway-3",
            "before the read, released after the commit",
            "提交之后才释放",
        ),
        ("double-submit", "takeaway-3", "The unique row in Postgres", "Postgres 里唯一的那一行"),
        ("outlived", "primer", "cannot keep it for ever", "也不会永远占着"),
        ("fence", "primer", "reject a holder that comes too late", "拒绝来得太迟的持锁者"),
        ("double-submit", "primer", "recognizes the repetition", "由此认出重复的请求"),
    ];

    #[test]
    fn sheet_answers_the_quiz() {
        for (lesson, text, english, chinese) in QUIZ {
            assert!(EXERCISES.contains(&lesson), "{lesson}");
            for (language, words) in Language::ALL.into_iter().zip([english, chinese]) {
                let text = language.text(&format!("lesson-{lesson}-{text}"));
                assert!(text.contains(words), "{words} is not in: {text}");
            }
        }
    }

    #[test]
    fn every_exercise_is_about_a_lesson() {
        for name in EXERCISES {
            assert!(lessons::named(name).is_some(), "{name}");
            for language in Language::ALL {
                let task = language.text(&format!("exercise-{name}"));
                assert!(!task.starts_with("Unknown"), "{task}");
            }
        }
    }
}
