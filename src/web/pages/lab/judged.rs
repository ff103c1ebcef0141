//! Judged locks: the list of those that come with the program, a page for each, and a form that
//! opens the file of another judgement, which is shown and not stored.
//!
//! A file is untrusted: it is bounded, checked and shown as text. Tests: `tests/pages/judged.rs`.

use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Path, Payload};
use askama::Template;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::file::invalid_value;
use super::upload::{self, UploadedForm};
use crate::judge::report::{FaultReport, Judgement};
use crate::web::middleware::LabReader;
use crate::web::middleware::auth::find_signed_in;
use crate::web::middleware::csrf::{check_origin, check_public_form};
use crate::web::pages::judgement::{self, JudgementView};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, Problem, app_state};

/// Upper bounds of the lists in a judgement, by name.
const MAX_LENGTHS: [(&str, usize); 3] = [("faults", 40), ("violations", 100), ("events", 1_000)];

/// Compiles files of `docs/judged/` into the program.
macro_rules! judged_files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../docs/judged/", $name, ".json")))),*]
    };
}

/// The judgements that come with the program, by the name of their file. A test finds files that
/// are not listed.
const FILES: &[(&str, &str)] = judged_files![
    "aioredlock",
    "async-redis-lock",
    "distkit",
    "etcdctl",
    "flock",
    "holdfast-lock-fenced",
    "holdfast-lock-owner",
    "holdfast-lock-redlock",
    "holdfast-lock-watchdog",
    "node-redlock",
    "pottery",
    "python-redis-lock",
    "redis-py",
    "redis-semaphore",
    "rslock",
    "sqlx-advisory",
    "symfony-lock",
];

static JUDGED: LazyLock<Vec<JudgedLock>> = LazyLock::new(|| {
    let parse = |(name, json): &(&'static str, &str)| {
        let judgement = serde_json::from_str(json).inspect_err(|error| {
            tracing::error!(%error, name, "a judgement can't be read");
        });
        Some(JudgedLock { name, judgement: judgement.ok()? })
    };
    FILES.iter().filter_map(parse).collect()
});

#[derive(Debug)]
struct JudgedLock {
    name: &'static str,
    judgement: Judgement,
}

#[derive(Debug, Template)]
#[template(path = "judged.html")]
struct JudgedPage {
    layout: Layout,
    faults: Vec<String>,
    locks: Vec<LockRow>,
    wrong: Option<String>,
}

/// A row of the list.
#[derive(Debug)]
struct LockRow {
    name: &'static str,
    title: String,
    date: String,
    cells: Vec<LockCell>,
    /// The verdicts on writes that demand the fence, of a lock that has one.
    fenced: Option<Vec<LockCell>>,
}

/// The verdict of a lock under one fault.
#[derive(Debug)]
struct LockCell {
    /// `loss`, `safe`, `missing`, or `elsewhere`: not at the servers of the lock.
    kind: &'static str,
    lost: u64,
}

#[derive(Debug, Template)]
#[template(path = "judgement.html")]
struct JudgementPage {
    layout: Layout,
    view: JudgementView,
    is_opened: bool,
}

pub async fn list(request: HttpRequest, _: LabReader) -> HttpResult {
    list_page(&request, None).await
}

pub async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    let found = JUDGED.iter().find(|judged| judged.name == *name);
    let unknown = || Problem::not_found(format!("there is no judgement {name}"));
    judgement_page(&request, &found.ok_or_else(unknown)?.judgement, false).await
}

/// Shows the judgement in a file.
pub async fn open(request: HttpRequest, body: Payload) -> HttpResult {
    app_state(&request)?.require_lab()?;
    // Before the file is read; the CSRF token of a session is in the form.
    if find_signed_in(&request).await?.is_none() {
        check_origin(&request)?;
    }
    let upload = upload::read(&request, body).await?;
    check_public_form(&request, upload.as_ref().map_or("", |upload| &upload.csrf)).await?;
    let upload = upload.as_ref().ok_or("lab-file-unreadable");
    match upload.and_then(parse) {
        Ok(judgement) => judgement_page(&request, &judgement, true).await,
        Err(why) => {
            let language = Layout::minimal(&request)?.language;
            list_page(&request, Some(language.text(why))).await
        }
    }
}

/// Parses a file; the error is the message that explains it to a person.
fn parse(upload: &UploadedForm) -> Result<Judgement, &'static str> {
    if upload.file.is_empty() {
        return Err("judge-file-empty");
    }
    let judgement = serde_json::from_slice(&upload.file);
    let judgement: Judgement = judgement.map_err(|error| {
        tracing::debug!(%error, "a file is no judgement");
        "judge-file-invalid"
    })?;
    match invalid_judgement(&judgement) {
        None => Ok(judgement),
        Some(why) => {
            tracing::debug!(why, "the file of a judgement is invalid");
            Err("judge-file-invalid")
        }
    }
}

/// Returns the reason why the judge cannot have written this judgement, if there is one.
fn invalid_judgement(judgement: &Judgement) -> Option<String> {
    if OffsetDateTime::parse(&judgement.started_at, &Rfc3339).is_err() {
        return Some("started_at is not a time".to_owned());
    }
    match serde_json::to_value(judgement) {
        Ok(value) => invalid_value("judgement", &value, &MAX_LENGTHS),
        Err(error) => Some(error.to_string()),
    }
}

async fn judgement_page(
    request: &HttpRequest,
    judgement: &Judgement,
    is_opened: bool,
) -> HttpResult {
    let layout = Layout::of(request).await?;
    let view = JudgementView::new(judgement, layout.language);
    html(StatusCode::OK, &JudgementPage { layout, view, is_opened })
}

/// Renders the list, with what is wrong with a file.
async fn list_page(request: &HttpRequest, wrong: Option<String>) -> HttpResult {
    let status = if wrong.is_none() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let faults = fault_names(&JUDGED);
    let locks = JUDGED.iter().map(|judged| LockRow::new(judged, &faults)).collect();
    html(status, &JudgedPage { layout: Layout::of(request).await?, faults, locks, wrong })
}

/// Returns the names of all faults, in the order of their first occurrence.
fn fault_names(judged: &[JudgedLock]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for fault in judged.iter().flat_map(|judged| &judged.judgement.faults) {
        if !names.contains(&fault.name) {
            names.push(fault.name.clone());
        }
    }
    names
}

impl LockRow {
    fn new(judged: &JudgedLock, faults: &[String]) -> Self {
        let judgement = &judged.judgement;
        let cells = |lost: fn(&FaultReport) -> u64| {
            let report = |name: &String| judgement.faults.iter().find(|fault| fault.name == *name);
            faults.iter().map(|name| LockCell::new(judgement, report(name), lost)).collect()
        };
        let lost_with_fence =
            |fault: &FaultReport| fault.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
        let date = judgement::format_time(&judgement.started_at);
        Self {
            name: judged.name,
            title: judgement.adapter.name.clone(),
            date: date.split(' ').next().unwrap_or_default().to_owned(),
            cells: cells(|fault| fault.lost_updates),
            fenced: judgement.adapter.fencing.then(|| cells(lost_with_fence)),
        }
    }
}

impl LockCell {
    fn new(
        judgement: &Judgement,
        report: Option<&FaultReport>,
        lost: fn(&FaultReport) -> u64,
    ) -> Self {
        let cell = |kind, lost| Self { kind, lost };
        match report.filter(|fault| fault.ran) {
            None => cell("missing", 0),
            Some(fault) => match lost(fault) {
                0 if judgement.is_elsewhere(fault) => cell("elsewhere", 0),
                0 => cell("safe", 0),
                lost => cell("loss", lost),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../../tests/pages/judgement.json");

    fn judged(name: &'static str) -> JudgedLock {
        JudgedLock { name, judgement: serde_json::from_str(FIXTURE).unwrap() }
    }

    #[test]
    fn every_shipped_file_is_in_table() {
        let folder = std::fs::read_dir("docs/judged").into_iter().flatten().flatten();
        let names = folder.filter_map(|file| file.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
        names.sort();
        let table: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(table, names, "list each file of docs/judged in FILES");
        for judged in JUDGED.iter() {
            assert_eq!(invalid_judgement(&judged.judgement), None, "{}", judged.name);
        }
        assert_eq!(JUDGED.len(), FILES.len());
    }

    #[test]
    fn invalid_judgement_has_a_reason() {
        let assert_invalid = |why: &str, change: fn(&mut Judgement)| {
            let mut judgement = judged("first").judgement;
            change(&mut judgement);
            let reason = invalid_judgement(&judgement).unwrap();
            assert!(reason.contains(why), "{reason}");
        };
        assert_invalid("not a time", |it| it.started_at = "yesterday".to_owned());
        assert_invalid("too many faults", |it| it.faults = vec![it.faults[0].clone(); 41]);
        assert_invalid("too long", |it| it.adapter.name = "x".repeat(2_001));
        assert_invalid("wait_p99_ms is out of range", |it| it.faults[0].wait_p99_ms = 1e12);
    }

    #[test]
    fn list_has_verdict_of_each_fault() {
        let mut other = judged("other");
        other.judgement.faults.truncate(1);
        other.judgement.faults[0].name = "later".to_owned();
        let locks = [judged("first"), other];
        let faults = fault_names(&locks);
        assert_eq!(faults.len(), locks[0].judgement.faults.len() + 1);
        let rows = locks.each_ref().map(|lock| LockRow::new(lock, &faults));
        let fencing = locks[0].judgement.adapter.fencing;
        assert_eq!(rows[0].fenced.as_ref().map(Vec::len), fencing.then_some(faults.len()));
        for (fault, cell) in locks[0].judgement.faults.iter().zip(&rows[0].cells) {
            let expected = match (fault.ran, fault.lost_updates) {
                (false, _) => "missing",
                (_, 0) => "safe",
                _ => "loss",
            };
            assert_eq!((cell.kind, cell.lost), (expected, fault.lost_updates), "{}", fault.name);
        }
        let kinds: Vec<&str> = rows[1].cells.iter().map(|cell| cell.kind).collect();
        assert_eq!(kinds.last(), Some(&"safe"));
        assert!(kinds[..kinds.len() - 1].iter().all(|kind| *kind == "missing"));
        assert_eq!(rows[0].date, "2026-11-25");
    }
}
