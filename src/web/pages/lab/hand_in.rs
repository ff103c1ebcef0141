//! What a student of a class hands in about a lesson: a run, with a note; and the sheet that asks
//! for it. Tests: `tests/pages/join.rs`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use crate::web::api::lab_runs::find_run;
use crate::web::middleware::{FormFields, LabReader, csrf};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{AppState, HttpResult, Problem, ProblemType, State, see_other};
use holdfast_base::messages::message;
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::progress::{self, Visitor};
use holdfast_lab::run::LabRun;
use holdfast_shop::sessions::Caller;

/// Longest note, in characters; the table has the same.
const MAX_NOTE: usize = 500;
/// The lessons of the sheet; `exercise-NAME` says what to find in each.
const EXERCISES: [&str; 6] =
    ["lost-update", "one-replica", "check-then-delete", "outlived", "fence", "double-submit"];

/// The form on the page of a run.
#[derive(Debug)]
pub struct HandIn {
    /// What the student handed in about this lesson.
    pub note: String,
    /// Whether this run is the one that was handed in; `None` if none was.
    pub is_this_run: Option<bool>,
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
        Ok(Some(match earlier {
            Some((handed_in, note)) => Self { note, is_this_run: Some(handed_in == Some(run.id)) },
            None => Self { note: String::new(), is_this_run: None },
        }))
    }
}

fn visitor(student: &Caller) -> Visitor {
    Visitor { id: student.id.0, user: Some(student.id) }
}

/// Returns the lesson of a run that is done, and was executed here.
fn lesson_of(run: &LabRun) -> Option<&'static Lesson> {
    let is_done = run.state.is_over() && !run.from_file;
    run.request.lesson.as_deref().filter(|_| is_done).and_then(lessons::named)
}

pub async fn hand_in(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    state.require_class(&request)?;
    let user = csrf::check_form(&request, form.csrf()).await?;
    if !user.caller.is_student {
        let message = message!("class-students-only");
        return Err(Problem::with_message(ProblemType::Forbidden, message));
    }

    let run = find_run(&state, &id).await?;
    let lesson = lesson_of(&run).ok_or_else(|| Problem::field("run", "one of a lesson, done"))?;
    let note = clean_note(form.text("note"))
        .ok_or_else(|| Problem::field("note", format!("1 to {MAX_NOTE} characters")))?;

    let visitor = visitor(&user.caller);
    let is_stored =
        progress::hand_in(&state.shop.pool, lesson.name, visitor, run.id, &note).await?;
    if !is_stored {
        return Err(Problem::field("run", "one that has shown its result"));
    }
    Ok(see_other(&format!("/lab/runs/{}#hand-in", run.id)))
}

/// Returns a note as it is stored: with plain line ends, and without characters that Postgres or a
/// terminal would not take.
fn clean_note(typed: &str) -> Option<String> {
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

impl ExercisePage {
    fn task(&self, lesson: &Lesson) -> String {
        self.layout.text(&format!("exercise-{}", lesson.name))
    }
}

pub async fn exercise(request: HttpRequest, _: LabReader) -> HttpResult {
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
