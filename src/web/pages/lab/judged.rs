//! Judged locks: the list of those that come with the program, a page for each, and a form that
//! opens the file of another judgement, untrusted and not stored. Below them the judged services.
//! Tests: `tests/pages/judged.rs`.

use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Path, Payload};
use askama::Template;

use super::upload::{self, FileError};
use crate::web::middleware::LabReader;
use crate::web::middleware::auth::find_signed_in;
use crate::web::middleware::csrf::{check_origin, check_public_form};
use crate::web::offload::offload;
use crate::web::page_place::{PagePlace, render};
use crate::web::pages::judgement::JudgementView;
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::site::documents;
use crate::web::{HttpResult, Problem, ProblemType, app_state};
use holdfast_base::messages::message;
use holdfast_judge::fault::Fault;
use holdfast_judge::report::Judgement;
use holdfast_judge::verdict::{Cell, Row};

/// Upper bound of the events that a page draws, 440 bytes each. The judgements that come with the
/// program have 800.
const MAX_DRAWN_EVENTS: usize = 3_000;

macro_rules! judged_files {
    ($($name:literal: $words:literal),* $(,)?) => {
        &[$(($name, $words, include_str!(concat!("../../../../docs/judged/", $name, ".json")))),*]
    };
}

/// The judgements that come with the program, by the name of their file, with the words by which
/// the search finds them beside it: language, store, and the client below. A test finds files that
/// are not listed.
const FILES: &[(&str, &str, &str)] = judged_files![
    "advisory-lock": "javascript postgres",
    "aioredlock": "python aioredis redis",
    "async-redis-lock": "rust redis",
    "celery-once": "python celery redis-py redis",
    "curator": "java zookeeper",
    "distkit": "rust redis",
    "django-cache": "python celery redis-py redis",
    "etcdctl": "etcd",
    "flock": "util-linux linux kernel",
    "holdfast-lock-fenced": "holdfast rust redis",
    "holdfast-lock-owner": "holdfast rust redis",
    "holdfast-lock-redlock": "holdfast rust redis redlock",
    "holdfast-lock-watchdog": "holdfast rust redis",
    "kazoo": "python zookeeper",
    "mariadb": "mysql python pymysql",
    "node-redlock": "javascript ioredis redis redlock",
    "portalocker": "python redis-py redis",
    "pottery": "python redis redlock",
    "python-redis-lock": "python redis",
    "redis-lock": "javascript node-redis redis",
    "redis-py": "python redis",
    "redis-semaphore": "javascript ioredis redis",
    "redlock-py": "python redis-py redis redlock",
    "redlock-universal": "javascript ioredis redis redlock",
    "rslock": "rust redis redlock",
    "sesamecare-redlock": "javascript ioredis redis redlock",
    "sherlock": "python redis-py redis",
    "simple-redis-mutex": "javascript node-redis redis",
    "sqlx-advisory": "rust postgres",
    "symfony-lock": "php phpredis redis",
];

static JUDGED: LazyLock<Vec<JudgedLock>> = LazyLock::new(|| {
    let parse = |(name, words, json): &(&'static str, &'static str, &str)| {
        let judgement = serde_json::from_str(json).inspect_err(|error| {
            tracing::error!(%error, name, "a judgement can't be read");
        });
        Some(JudgedLock { name, words, judgement: judgement.ok()? })
    };
    FILES.iter().filter_map(parse).collect()
});

/// The READMEs of the judged services, with their titles as those of sections. A test finds those
/// that are not here.
static SERVICES: LazyLock<String> = LazyLock::new(|| {
    documents::html_of(concat!(
        "##",
        include_str!("../../../../judge/services/django-oscar/README.md"),
        "\n##",
        include_str!("../../../../judge/services/evershop/README.md"),
        "\n##",
        include_str!("../../../../judge/services/pretix/README.md"),
        "\n##",
        include_str!("../../../../judge/services/vendure/README.md"),
    ))
});

#[derive(Debug)]
struct JudgedLock {
    name: &'static str,
    words: &'static str,
    judgement: Judgement,
}

impl JudgedLock {
    /// Returns what became of the updates of a row under a fault, which an earlier version may not
    /// have had.
    fn cell(&self, fault: &Fault, row: &Row) -> Cell {
        let report = self.judgement.report(fault.name());
        report.map_or(Cell::NotRun, |report| self.judgement.cell(report, *row))
    }

    /// Returns the words by which the search finds it, its name first.
    fn words(&self) -> String {
        format!("{} {}", self.name, self.words)
    }

    fn date(&self) -> &str {
        self.judgement.started_at.split('T').next().unwrap_or_default()
    }
}

#[derive(Debug, Template)]
#[template(path = "judged.html")]
struct JudgedPage {
    layout: Layout,
    locks: &'static [JudgedLock],
    errors: FormErrors,
}

#[derive(Debug, Template)]
#[template(path = "judgement.html")]
struct JudgementPage<'a> {
    layout: Layout,
    view: JudgementView<'a>,
    is_opened: bool,
}

pub async fn list(request: HttpRequest, _: LabReader) -> HttpResult {
    list_page(&request, FormErrors::default()).await
}

pub async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-judgement", name = name.as_str()));
    let judgement = judgement_of(&name).ok_or_else(unknown)?;
    let layout = Layout::of(&request).await?;
    let draw = move || judgement_page(layout, judgement, false);
    PagePlace::take(&request).await?.page(StatusCode::OK, draw).await
}

pub async fn open(request: HttpRequest, body: Payload) -> HttpResult {
    let state = app_state(&request)?;
    state.require_lab()?;
    state.rate_limits.check_lab_file(&request).await?;
    // Before the file is read; the CSRF token of a session is in the form.
    if find_signed_in(&request).await?.is_none() {
        check_origin(&request)?;
    }
    let upload = upload::read(&request, body).await?;
    check_public_form(&request, &upload.csrf).await?;
    let place = PagePlace::take(&request).await?;
    let layout = Layout::of(&request).await?;

    let draw = move || {
        let judgement: Result<Judgement, FileError> = upload::parse(&upload.file);
        drop(upload);
        judgement.map(|judgement| judgement_page(layout, &judgement, true))
    };
    match offload(draw).await? {
        Ok(Ok(page)) => Ok(place.send_page(StatusCode::OK, page)),
        Ok(Err(problem)) if problem.problem_type() == ProblemType::PayloadTooLarge => {
            refuse_file(&request, "judge-file-too-long").await
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => refuse_file(&request, "judge-file-invalid").await,
    }
}

/// Returns the judgement of a lock that comes with the program.
pub(in crate::web) fn judgement_of(name: &str) -> Option<&'static Judgement> {
    JUDGED.iter().find(|judged| judged.name == name).map(|judged| &judged.judgement)
}

/// Renders the site's list.
pub(in crate::web) fn site_list(layout: Layout) -> Result<String, Problem> {
    render(&JudgedPage { layout, locks: &JUDGED, errors: FormErrors::default() })
}

/// Renders the site's page of each judgement; `layout` returns that of a name.
pub(in crate::web) fn site_pages(
    layout: impl Fn(&str) -> Layout,
) -> impl Iterator<Item = (&'static str, Result<String, Problem>)> {
    JUDGED.iter().map(move |judged| {
        (judged.name, judgement_page(layout(judged.name), &judged.judgement, false))
    })
}

/// Draws the page of a judgement, to be called off the workers.
fn judgement_page(
    layout: Layout,
    judgement: &Judgement,
    is_opened: bool,
) -> Result<String, Problem> {
    let view = JudgementView::new(judgement, layout.language, MAX_DRAWN_EVENTS);
    render(&JudgementPage { layout, view, is_opened })
}

async fn refuse_file(request: &HttpRequest, why: &str) -> HttpResult {
    let why = language_of(request).text(why);
    list_page(request, FormErrors::field("file", &why)).await
}

async fn list_page(request: &HttpRequest, errors: FormErrors) -> HttpResult {
    let layout = Layout::of(request).await?;
    let status = errors.status();
    html(status, &JudgedPage { layout, locks: &JUDGED, errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_base::messages::{Language, is_chinese};
    use holdfast_judge::report::Repeats;

    const FIXTURE: &str = include_str!("../../../../tests/pages/judgement.json");

    fn judged(name: &'static str) -> JudgedLock {
        JudgedLock { name, words: "", judgement: serde_json::from_str(FIXTURE).unwrap() }
    }

    #[test]
    fn list_has_verdict_of_each_fault() {
        let lock = judged("first");
        for report in &lock.judgement.faults {
            let expected = match report.ran {
                true => Cell::Updates { lost: report.lost_updates, turns: report.turns },
                false => Cell::NotRun,
            };
            let fault = report.fault().unwrap();
            assert_eq!(lock.cell(&fault, &Row::WithoutFence), expected, "{}", report.name);
        }
        assert_eq!(lock.date(), "2026-11-25");

        let mut earlier = judged("earlier");
        earlier.judgement.faults.truncate(1);
        assert_eq!(earlier.cell(&Fault::Pause, &Row::WithoutFence), Cell::NotRun);

        earlier.judgement.faults[0].fence_regressions = 4;
        assert_eq!(earlier.cell(&Fault::Undisturbed, &Row::WithFence), Cell::FencesBack(4));
    }

    #[test]
    fn sentences_of_judged_locks_are_in_each_language() {
        for JudgedLock { name, judgement, .. } in JUDGED.iter() {
            for fault in &judgement.faults {
                let why_not = fault.why_not.iter().map(|why| (why, &fault.why_not_message));
                let found = fault.violations.iter().map(|it| (&it.text, &it.message));
                for (text, message) in why_not.chain(found) {
                    let message = message.as_ref().expect(name);
                    assert_eq!(*text, message.english(), "{name}");
                    let chinese = message.text(Language::Chinese);
                    assert!(chinese.contains(is_chinese), "{name}: {chinese}");
                }
            }
        }
    }

    #[test]
    fn what_lock_leaves_follows_from_its_faults() {
        let late = "writes that come too late";
        let redis_py = format!("{late}, work that outlasts the lease, a Redis that forgets");
        for (name, expected) in [
            ("redis-py", Some(redis_py.as_str())),
            ("kazoo", Some(late)),
            ("sqlx-advisory", Some("a connection that ends")),
            ("holdfast-lock-fenced", Some("a store that checks its fence with each write")),
            ("flock", None),
        ] {
            let judgement = judgement_of(name).unwrap();
            assert_eq!(judgement.leaves(Language::English).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn repeated_fault_has_its_runs() {
        let mut judged = judged("repeated");
        let pause = &mut judged.judgement.faults[1];
        pause.repeats = Some(Repeats { runs: 10, lost_in: 9, lost_in_with_fence: 3, run_seed: 12 });
        let turns = pause.turns;
        let cell = |row| judged.cell(&Fault::Pause, &row);
        assert_eq!(cell(Row::WithoutFence), Cell::Runs { lost: 9, runs: 10, turns });
        // The row that compares the fence lost in other runs than the one that is shown.
        assert_eq!(cell(Row::WithFence), Cell::Runs { lost: 3, runs: 10, turns });
    }
}
