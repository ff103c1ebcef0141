//! The lab: a map of the lessons, a form for a custom load, the newest runs.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Form;
use askama::Template;

use super::presentation::Presentation;
use super::progress::Progress;
use super::run_form::{self, FieldError, NumberField};
use super::run_list::{self, start_run, stored_runs};
use crate::lab::lessons::{Chapter, LESSONS, Lesson};
use crate::lab::run::FaultKind;
use crate::lab::store::{NewRun, RunSummary};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::shop::strategy::STRATEGIES;
use crate::web::middleware::lab_access::{RunAccess, check_run_form, run_access};
use crate::web::middleware::{FormFields, LabReader};
use crate::web::pages::format::{FormatTime as _, sentence};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{AppState, HttpResult, State, app_state};

const MAX_LISTED_RUNS: usize = 15;
/// The strategies selected by default: no lock, and the shop's own default.
const DEFAULT_STRATEGIES: [&str; 2] = ["none", "batched"];

#[derive(Template)]
#[template(path = "lab.html")]
struct LabPage {
    layout: Layout,
    presentation: Presentation,
    access: RunAccess,
    chapters: Vec<ChapterView>,
    form: LoadForm,
    file_wrong: Option<String>,
    runs: Vec<RunSummary>,
}

/// A chapter of the map, with the visitor's progress.
struct ChapterView {
    title: String,
    lessons: Vec<LessonView>,
    done: usize,
    /// True for the chapter that links to the judged locks.
    has_judged: bool,
}

struct LessonView {
    lesson: &'static Lesson,
    title: String,
    is_done: bool,
}

fn chapters(progress: &Progress, language: Language) -> Vec<ChapterView> {
    let view = |lesson: &&'static Lesson| LessonView {
        lesson,
        title: lesson.title(language),
        is_done: progress.has_run(lesson),
    };
    let chapter = |chapter: Chapter| {
        let lessons = LESSONS.iter().filter(|lesson| lesson.chapter == chapter);
        let lessons: Vec<LessonView> = lessons.map(view).collect();
        let done = lessons.iter().filter(|lesson| lesson.is_done).count();
        let has_judged = chapter == Chapter::Failures;
        ChapterView { title: chapter.title(language), lessons, done, has_judged }
    };
    Chapter::ALL.into_iter().map(chapter).collect()
}

pub(super) struct LoadForm {
    strategies: Vec<StrategyChoice>,
    load: Vec<NumberField>,
    fault: Vec<NumberField>,
    input: FormFields,
    wrong: Vec<FieldError>,
}

struct StrategyChoice {
    strategy: &'static Strategy,
    is_selected: bool,
    /// True if the lock it needs is configured.
    is_configured: bool,
}

impl LoadForm {
    pub fn default_of(state: &AppState, language: Language) -> Self {
        let strategies = DEFAULT_STRATEGIES.map(|name| ("strategies".to_owned(), name.to_owned()));
        Self::new(state, FormFields(strategies.into()), Vec::new(), language)
    }

    fn new(
        state: &AppState,
        input: FormFields,
        wrong: Vec<FieldError>,
        language: Language,
    ) -> Self {
        let strategies = STRATEGIES.iter().map(|strategy| StrategyChoice {
            strategy,
            is_selected: input.all("strategies").any(|name| name == strategy.name),
            is_configured: is_configured(state, strategy),
        });
        let (load, fault) = run_form::fields(&input, &wrong, language);
        Self { strategies: strategies.collect(), load, fault, input, wrong }
    }

    fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns all errors: the field's name, its label, and the reason.
    fn all_errors(&self, language: Language) -> Vec<(&'static str, String, String)> {
        let formatted =
            |(field, why): &FieldError| (*field, run_form::label(field, language), sentence(why));
        self.wrong.iter().map(formatted).collect()
    }

    /// Returns the error of a field that is not a number.
    fn wrong_with(&self, field: &str) -> Option<String> {
        let wrong = self.wrong.iter().find(|(name, _)| *name == field);
        wrong.map(|(_, why)| sentence(why))
    }

    fn has(&self, name: &str, value: &str) -> bool {
        self.input.trimmed(name) == value
    }

    /// Returns whether a fault was selected, or one of its fields is wrong.
    fn shows_fault(&self) -> bool {
        !self.has("fault", "") || self.fault.iter().any(|field| field.wrong.is_some())
    }
}

fn is_configured(state: &AppState, strategy: &Strategy) -> bool {
    strategy.lock.is_none_or(|kind| state.shop.locks.is_configured(kind))
}

pub async fn show(state: State, request: HttpRequest, _: LabReader) -> HttpResult {
    let language = Layout::minimal(&request)?.language;
    page(&request, LoadForm::default_of(&state, language), None).await
}

pub async fn run_load(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let user = check_run_form(&request, form.csrf()).await?;
    let language = Layout::minimal(&request)?.language;
    let (load, mut wrong) = run_form::load(&form, language);
    let unconfigured = |name: &&String| {
        Strategy::named(name).is_some_and(|strategy| !is_configured(&state, strategy))
    };
    if let Some(name) = load.strategies.iter().find(unconfigured) {
        let name = [("strategy", name.as_str().into())];
        wrong.push(("strategies", language.text_with("lab-wrong-redlock", &name)));
    }
    if !wrong.is_empty() {
        let form = LoadForm::new(&state, form.into_inner(), wrong, language);
        return page(&request, form, None).await;
    }
    start_run(&state, NewRun { request: &load, guess: None, user }, "").await
}

/// Renders the page, with the form's input, or with what is wrong with a file.
pub(super) async fn page(
    request: &HttpRequest,
    form: LoadForm,
    file_wrong: Option<String>,
) -> HttpResult {
    let runs = stored_runs(app_state(request)?).await?;
    let status = if form.is_right() && file_wrong.is_none() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let layout = Layout::of(request).await?;
    let page = LabPage {
        presentation: Presentation::of(request),
        access: run_access(request).await?,
        chapters: chapters(&Progress::of(request), layout.language),
        form,
        file_wrong,
        runs: runs.into_iter().take(MAX_LISTED_RUNS).collect(),
        layout,
    };
    html(status, &page)
}
