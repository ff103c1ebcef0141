//! Judged locks and services: the list of those that come with the program, a page for each lock,
//! and a form that opens the file of another judgement, untrusted and not stored.
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
use crate::web::pages::judgement::{JudgementView, ServiceView};
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::site::documents;
use crate::web::{HttpResult, Problem, ProblemType, app_state};
use holdfast_base::messages::{Language, message};
use holdfast_judge::fault::Fault;
use holdfast_judge::report::Judgement;
use holdfast_judge::service::report::ServiceJudgement;
use holdfast_judge::verdict::{Row, VerdictCell};

/// Upper bound of the events that a page draws, 440 bytes each. The judgements that come with the
/// program have 800.
const MAX_DRAWN_EVENTS: usize = 3_000;

macro_rules! judged_files {
    ($($name:literal: $words:literal),* $(,)?) => {
        &[$(($name, $words, include_str!(concat!("../../../../docs/judged/", $name, ".json")))),*]
    };
}

/// The groups of locks, by what they rest on, in the order of the list.
const GROUPS: [&str; 4] = ["lease", "session", "consensus", "file"];

/// The judgements that come with the program, by the name of their file, with the words by which
/// the search finds them beside it: its group, language, store, and the client below. A test finds
/// files that are not listed.
const FILES: &[(&str, &str, &str)] = judged_files![
    "advisory-lock": "session javascript postgres",
    "aioredlock": "lease python aioredis redis",
    "async-redis-lock": "lease rust redis",
    "celery-once": "lease python celery redis-py redis",
    "curator": "consensus java zookeeper",
    "distkit": "lease rust redis",
    "django-cache": "lease python celery redis-py redis",
    "etcdctl": "consensus etcd",
    "flock": "file util-linux linux kernel",
    "holdfast-lock-fenced": "lease holdfast rust redis",
    "holdfast-lock-owner": "lease holdfast rust redis",
    "holdfast-lock-redlock": "lease holdfast rust redis redlock",
    "holdfast-lock-watchdog": "lease holdfast rust redis",
    "kazoo": "consensus python zookeeper",
    "mariadb": "session mysql python pymysql",
    "node-redlock": "lease javascript ioredis redis redlock",
    "portalocker": "session python redis-py redis",
    "pottery": "lease python redis redlock",
    "python-redis-lock": "lease python redis",
    "redis-lock": "lease javascript node-redis redis",
    "redis-py": "lease python redis",
    "redis-semaphore": "lease javascript ioredis redis",
    "redlock-py": "lease python redis-py redis redlock",
    "redlock-universal": "lease javascript ioredis redis redlock",
    "rslock": "lease rust redis redlock",
    "sesamecare-redlock": "lease javascript ioredis redis redlock",
    "sherlock": "lease python redis-py redis",
    "simple-redis-mutex": "lease javascript node-redis redis",
    "sqlx-advisory": "session rust postgres",
    "symfony-lock": "lease php phpredis redis",
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

macro_rules! judged_service {
    ($name:literal: $words:literal, $found:expr) => {
        JudgedService {
            name: $name,
            words: $words,
            found: &$found,
            readme: include_str!(concat!("../../../../judge/services/", $name, "/README.md")),
        }
    };
}

/// The judged services, by the name of their folder, with the words by which the search finds them
/// beside it, and what was found. A test finds those that are not here.
const SERVICES: &[JudgedService] = &[
    judged_service!("django-oscar": "shop python django postgres", ["oversold"]),
    judged_service!("evershop": "shop javascript postgres", ["oversold", "doubled"]),
    judged_service!("pretix": "shop python django postgres", []),
    judged_service!("vendure": "shop javascript postgres", ["oversold", "drift", "doubled"]),
];

/// Their READMEs, with the titles as those of sections.
static READMES: LazyLock<String> = LazyLock::new(|| {
    let html = |service: &JudgedService| documents::html_of(&format!("##{}", service.readme));
    SERVICES.iter().map(html).collect()
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
    fn cell(&self, fault: &Fault, row: &Row) -> VerdictCell {
        let report = self.judgement.report(fault.name());
        report.map_or(VerdictCell::NotRun, |report| self.judgement.cell(report, *row))
    }

    fn is_of(&self, group: &str) -> bool {
        self.words.split(' ').next() == Some(group)
    }

    /// Returns the words by which the search finds it, its name first.
    fn words(&self) -> String {
        format!("{} {}", self.name, self.words)
    }

    fn date(&self) -> &str {
        self.judgement.started_at.split('T').next().unwrap_or_default()
    }
}

#[derive(Debug)]
struct JudgedService {
    name: &'static str,
    words: &'static str,
    /// Names of what must not be.
    found: &'static [&'static str],
    readme: &'static str,
}

impl JudgedService {
    fn title(&self) -> &'static str {
        self.readme.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    fn words(&self) -> String {
        format!("{} {}", self.name, self.words)
    }

    fn verdict(&self, language: Language) -> String {
        if self.found.is_empty() {
            return language.text("service-listed-sound");
        }
        let name = |found: &&str| language.text(&format!("service-column-{found}"));
        let found = language.list(&self.found.iter().map(name).collect::<Vec<_>>());
        language.text_with("service-verdict-found", &[("found", found.into())])
    }
}

#[derive(Debug, Template)]
#[template(path = "judged.html")]
struct JudgedPage {
    layout: Layout,
    locks: &'static [JudgedLock],
    errors: FormErrors,
}

impl JudgedPage {
    /// Returns the number of columns of the list, with those of the name and the date.
    fn columns(&self) -> usize {
        Fault::ALL.len() + 2
    }
}

#[derive(Debug, Template)]
#[template(path = "judgement.html")]
struct JudgementPage<'a> {
    layout: Layout,
    view: JudgementView<'a>,
    is_opened: bool,
}

#[derive(Debug, Template)]
#[template(path = "service_judgement.html")]
struct ServicePage<'a> {
    layout: Layout,
    view: ServiceView<'a>,
}

#[derive(Debug)]
enum OpenedFile {
    Lock(Judgement),
    Service(ServiceJudgement),
}

pub(crate) async fn list(request: HttpRequest, _: LabReader) -> HttpResult {
    list_page(&request, FormErrors::default()).await
}

pub(crate) async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-judgement", name = name.as_str()));
    let judgement = judgement_of(&name).ok_or_else(unknown)?;
    let layout = Layout::of(&request).await?;
    let draw = move || judgement_page(layout, judgement, false);
    PagePlace::take(&request).await?.page(StatusCode::OK, draw).await
}

pub(crate) async fn open(request: HttpRequest, body: Payload) -> HttpResult {
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
        let opened = parse(&upload.file);
        drop(upload);
        opened.map(|opened| match opened {
            OpenedFile::Lock(judgement) => judgement_page(layout, &judgement, true),
            OpenedFile::Service(judgement) => service_page(layout, &judgement),
        })
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

/// Parses the file of a judgement: its JSON, or the page that has it.
fn parse(file: &[u8]) -> Result<OpenedFile, FileError> {
    let json = upload::embedded_json(file);
    match upload::parse(json) {
        Ok(judgement) => Ok(OpenedFile::Lock(judgement)),
        Err(_) => upload::parse(json).map(OpenedFile::Service),
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

/// Draws the page of an opened judgement of a service, to be called off the workers.
fn service_page(layout: Layout, judgement: &ServiceJudgement) -> Result<String, Problem> {
    let view = ServiceView { judgement, language: layout.language };
    render(&ServicePage { layout, view })
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

    use holdfast_base::messages::is_chinese;
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
                true => VerdictCell::Updates { lost: report.lost_updates, turns: report.turns },
                false => VerdictCell::NotRun,
            };
            let fault = report.fault().unwrap();
            assert_eq!(lock.cell(&fault, &Row::WithoutFence), expected, "{}", report.name);
        }
        assert_eq!(lock.date(), "2026-11-25");

        let mut earlier = judged("earlier");
        earlier.judgement.faults.truncate(1);
        assert_eq!(earlier.cell(&Fault::Pause, &Row::WithoutFence), VerdictCell::NotRun);

        earlier.judgement.faults[0].fence_regressions = 4;
        assert_eq!(earlier.cell(&Fault::Undisturbed, &Row::WithFence), VerdictCell::FencesBack(4));
    }

    #[test]
    fn groups_and_verdicts_agree_with_what_was_judged() {
        for lock in JUDGED.iter() {
            let groups = GROUPS.iter().filter(|group| lock.is_of(group));
            assert_eq!(groups.count(), 1, "{}", lock.name);

            let rests_on_time = lock.judgement.report("long-work").unwrap().loses_updates();
            assert!(!rests_on_time || lock.is_of("lease"), "{}", lock.name);
            let stops = lock.judgement.report("session-cut").unwrap().loses_updates();
            assert_eq!(stops, lock.is_of("session"), "{}", lock.name);
        }
        for service in SERVICES {
            let is_sound = service.readme.contains("\nSound: ");
            assert_eq!(service.found.is_empty(), is_sound, "{}", service.name);
        }
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
        assert_eq!(cell(Row::WithoutFence), VerdictCell::Runs { lost: 9, runs: 10, turns });
        // The row that compares the fence lost in other runs than the one that is shown.
        assert_eq!(cell(Row::WithFence), VerdictCell::Runs { lost: 3, runs: 10, turns });
    }
}
