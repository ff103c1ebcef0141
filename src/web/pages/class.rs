//! The teacher's page of a class: how to join, the score board, what was handed in, and the forms
//! that free or remove a student, reset the scores and end the class. Tests: `tests/pages/join.rs`.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, ServiceConfig, get, post};
use askama::Template;
use uuid::Uuid;

use super::csv::{self, CsvCell};
use super::format::FormatTime as _;
use super::join;
use super::layout::{DoneQuery, Layout};
use super::respond::html;
use crate::qr::{self, QrPath};
use crate::web::middleware::{AdminUser, FormFields, Query, csrf};
use crate::web::routes::{form_resource, get_post, resource};
use crate::web::{HttpResult, Problem, ProblemType, State, see_other};
use holdfast_base::messages::message;
use holdfast_lab::class::{self, Student, StudentActivity};
use holdfast_lab::lessons::{self, LESSONS};
use holdfast_shop::{UserId, students};

/// Registers the pages of the teacher and of joining.
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/lab/class", "GET").route(get().to(show)))
        .service(resource("/lab/class.csv", "GET").route(get().to(board_file)))
        .service(resource("/lab/class/answers.csv", "GET").route(get().to(answers_file)))
        .service(form_resource("/lab/class/students", post().to(change_student)))
        .service(form_resource("/lab/class/reset", post().to(reset)))
        .service(form_resource("/lab/class/end", post().to(end)))
        .service(get_post("/join", get().to(join::show), post().to(join::join)))
        .service(resource("/join/{code}", "GET").route(get().to(join::show_code)));
}

/// The choice of all students, in the place of an id.
const ALL: &str = "all";
const DONE: [&str; 4] = ["free", "remove", "reset", "end"];
const BOARD_FIELDS: &str = "nickname,lessons_done,lessons,answers,right,stars,handed_in,joined_at";
const ANSWER_FIELDS: &str =
    "nickname,activity,answer,right,answered_at,done_at,stars,run,note,handed_in_at,late";

#[derive(Debug, Template)]
#[template(path = "class.html")]
struct ClassPage {
    layout: Layout,
    /// Where the students join, without and with the code.
    address: String,
    code: String,
    qr: Option<QrPath>,
    students: Vec<Student>,
    handed_in: Vec<StudentActivity>,
    /// The action that a form has just done.
    done: Option<&'static str>,
}

impl ClassPage {
    fn here(&self) -> usize {
        self.students.iter().filter(|student| student.is_here).count()
    }

    /// Returns the title of a lesson; a level of the game has nothing to hand in.
    fn title(&self, activity: &StudentActivity) -> String {
        let lesson = lessons::named(&activity.activity);
        lesson.map_or_else(String::new, |lesson| lesson.title(self.layout.language))
    }
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    query: Query<DoneQuery>,
    _: AdminUser,
) -> HttpResult {
    state.require_class(&request)?;
    let done = query.read()?.done;
    let pool = &state.shop.pool;

    let code = match class::code(pool).await? {
        Some(code) => code,
        None => class::open(pool).await?,
    };
    let url = state.class_url.clone();
    let url = url.unwrap_or_else(|| super::race::own_address(&state, &request, ""));
    let mut handed_in = class::activities(pool).await?;
    handed_in.retain(|activity| activity.handed_in_at.is_some());
    handed_in.sort_by_key(|activity| std::cmp::Reverse(activity.handed_in_at));

    let page = ClassPage {
        qr: qr::for_page(&format!("{url}/join/{code}")),
        address: format!("{url}/join"),
        code,
        students: class::board(pool).await?,
        handed_in,
        done: DONE.into_iter().find(|known| *known == done),
        layout: Layout::of(&request).await?,
    };
    html(StatusCode::OK, &page)
}

/// Frees or removes a student, or frees all. Repeated, it does nothing.
pub(crate) async fn change_student(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    check_form(&state, &request, &form).await?;
    let student = match form.text("student") {
        ALL => None,
        id => {
            let id = Uuid::parse_str(id)
                .map_err(|_| Problem::field("student", message!("problem-choose-one")))?;
            Some(UserId(id))
        }
    };

    let pool = &state.shop.pool;
    let (done, changed) = match (form.text("act"), student) {
        ("free", student) => ("free", students::free(pool, student).await?),
        ("remove", Some(student)) => {
            check_sure(&form)?;
            ("remove", class::remove(pool, student).await?)
        }
        // All leave at the end of the class only.
        ("remove", None) => return Err(Problem::field("student", message!("problem-choose-one"))),
        _ => return Err(Problem::field("act", message!("problem-free-or-remove"))),
    };

    // The other replicas forget the sessions within four seconds; joining asks Postgres.
    for student in changed {
        state.sessions.invalidate_user(student)?;
    }
    Ok(back(done))
}

pub(crate) async fn reset(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    check_form(&state, &request, &form).await?;
    check_sure(&form)?;
    class::reset(&state.shop.pool).await?;
    Ok(back("reset"))
}

/// Ends the class whose code the form has: sent twice, it does not end the next one.
pub(crate) async fn end(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    check_form(&state, &request, &form).await?;
    check_sure(&form)?;
    for student in class::end(&state.shop.pool, form.text("code")).await? {
        state.sessions.invalidate_user(student)?;
    }
    Ok(back("end"))
}

async fn check_form(
    state: &State,
    request: &HttpRequest,
    form: &FormFields,
) -> Result<(), Problem> {
    state.require_class(request)?;
    csrf::check_admin_form(request, form.csrf()).await.map(drop)
}

/// Requires the tick without which nothing is deleted.
fn check_sure(form: &FormFields) -> Result<(), Problem> {
    if form.text("sure") == "yes" {
        return Ok(());
    }
    Err(Problem::new(ProblemType::InvalidRequest, message!("class-not-sure")))
}

fn back(done: &str) -> actix_web::HttpResponse {
    see_other(&format!("/lab/class?done={done}"))
}

pub(crate) async fn board_file(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    state.require_class(&request)?;
    let mut file = csv::header(BOARD_FIELDS);
    for student in class::board(&state.shop.pool).await? {
        file += &csv::line(&[
            CsvCell::text(student.nickname),
            CsvCell::plain(student.done),
            CsvCell::plain(LESSONS.len()),
            CsvCell::plain(student.answered),
            CsvCell::plain(student.right),
            CsvCell::plain(student.stars),
            CsvCell::plain(student.handed_in),
            CsvCell::plain(student.joined_at.rfc3339()),
        ]);
    }
    Ok(csv::download("holdfast-class.csv", file))
}

pub(crate) async fn answers_file(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    state.require_class(&request)?;
    let mut file = csv::header(ANSWER_FIELDS);
    for activity in class::activities(&state.shop.pool).await? {
        let yes_or_no = |is: bool| if is { "yes" } else { "no" };
        let is_right = activity.is_right();
        let is_late = activity.answered_at.map(|_| activity.is_late);
        file += &csv::line(&[
            CsvCell::text(activity.nickname),
            CsvCell::text(activity.activity),
            // As a person counts the answers.
            CsvCell::maybe(activity.guess.map(|guess| guess + 1)),
            CsvCell::maybe(is_right.map(yes_or_no)),
            CsvCell::maybe(activity.answered_at.map(|at| at.rfc3339())),
            CsvCell::maybe(activity.done_at.map(|at| at.rfc3339())),
            CsvCell::maybe(activity.stars),
            CsvCell::maybe(activity.run),
            activity.note.map_or(CsvCell::Empty, CsvCell::text),
            CsvCell::maybe(activity.handed_in_at.map(|at| at.rfc3339())),
            CsvCell::maybe(is_late.map(yes_or_no)),
        ]);
    }
    Ok(csv::download("holdfast-answers.csv", file))
}
