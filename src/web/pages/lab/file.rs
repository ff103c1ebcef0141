//! A run as a file: saved, and opened again in this shop or in another one. A file is untrusted
//! input: it is parsed as a run, checked against a run's limits, and shown as text.

use actix_multipart::Multipart;
use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::StreamExt as _;

use super::custom_load::LoadForm;
use super::{check_lab_form, index, require_lab_admin, run, views};
use crate::lab::run::{ArmResult, LabRun, Lane};
use crate::lab::store;
use crate::web::api::lab_runs::find_run;
use crate::web::pages::see_other;
use crate::web::{AppState, HttpResult};

/// Upper bound of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 2 * 1024 * 1024;
/// Upper bound of what is read and discarded of a larger file: a browser sends all of it before it
/// reads the response.
const MAX_READ_BYTES: usize = 16 * MAX_FILE_BYTES;

pub async fn save(
    state: web::Data<AppState>,
    request: HttpRequest,
    id: web::Path<String>,
) -> HttpResult {
    require_lab_admin(&request).await?;
    let run = find_run(&state, &id).await?;
    if !run.state.is_over() {
        return Ok(see_other(&views::link(&run.id)));
    }
    let name = format!("attachment; filename=\"holdfast-run-{}.json\"", run.id);
    Ok(HttpResponse::Ok().insert_header((CONTENT_DISPOSITION, name)).json(run))
}

/// Opens a file: stores its run and redirects to it.
pub async fn open(
    state: web::Data<AppState>,
    request: HttpRequest,
    body: web::Payload,
) -> HttpResult {
    let upload = read(Multipart::new(request.headers(), body)).await;
    check_lab_form(&request, upload.as_ref().map_or("", |upload| &upload.csrf)).await?;
    match upload
        .and_then(|upload| if upload.too_large { Err(too_large()) } else { parse(&upload.file) })
    {
        Ok(run) => {
            let link = views::link(&run.id);
            let is_new = store::keep(&state.shop.pool, &run).await?;
            Ok(see_other(&if is_new { link } else { format!("{link}?known=1") }))
        }
        Err(why) => index::page(&request, LoadForm::default_of(&request)?, Some(why)).await,
    }
}

#[derive(Default)]
struct UploadedForm {
    csrf: String,
    file: Vec<u8>,
    too_large: bool,
}

async fn read(mut form: Multipart) -> Result<UploadedForm, String> {
    let unreadable = |error| format!("The form can’t be read: {error}.");
    let (mut upload, mut all) = (UploadedForm::default(), 0);
    while let Some(field) = form.next().await {
        let mut field = field.map_err(unreadable)?;
        let name = field.name().unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(chunk) = field.next().await {
            let chunk = chunk.map_err(unreadable)?;
            all += chunk.len();
            if all > MAX_READ_BYTES {
                return Ok(UploadedForm { too_large: true, ..upload });
            }
            if bytes.len() + chunk.len() > MAX_FILE_BYTES {
                upload.too_large = true;
                bytes.clear();
            } else if !upload.too_large {
                bytes.extend_from_slice(&chunk);
            }
        }
        match name.as_str() {
            "csrf" => upload.csrf = String::from_utf8_lossy(&bytes).into_owned(),
            "file" => upload.file = bytes,
            _ => {}
        }
    }
    Ok(upload)
}

fn too_large() -> String {
    "The file is too large: a run has 2 MiB at most.".to_owned()
}

fn parse(file: &[u8]) -> Result<LabRun, String> {
    if file.is_empty() {
        return Err("Choose a file that was saved from the page of a run.".to_owned());
    }
    let unlike = |error| format!("This is not the file of a run: {error}.");
    let run: LabRun = serde_json::from_slice(file).map_err(unlike)?;
    match invalid_run(&run) {
        None => Ok(run),
        Some(why) => Err(format!("This is not the file of a run: {why}.")),
    }
}

/// Returns the reason why no lab can have written this run, if there is one.
fn invalid_run(run: &LabRun) -> Option<String> {
    let LabRun { wanted, progress, outcome, .. } = run;
    if !run.state.is_over() {
        return Some("it is not over".to_owned());
    }
    if !run::is_plausible_time(run.created_at) || run.created_at.year() < 2000 {
        return Some("created_at is no time at which a run could be asked for".to_owned());
    }
    let many = [
        ("arms", outcome.arms.len(), 24),
        ("lanes", outcome.lanes.len(), 600),
        ("facts", outcome.facts.len(), 200),
        ("said", outcome.said.len().max(progress.said.len()), 500),
        ("strategies", wanted.strategies.len(), 24),
        ("samples", progress.samples.len(), 3_000),
    ];
    if let Some((name, ..)) = many.into_iter().find(|(_, count, most)| count > most) {
        return Some(format!("it has too many {name}"));
    }
    let texts = [&outcome.verdict, &progress.strategy].into_iter();
    let texts = texts.chain(&outcome.said).chain(&progress.said).chain(&wanted.strategies);
    let texts = texts.chain(outcome.facts.iter().flat_map(|fact| [&fact.name, &fact.value]));
    let mut texts = texts.chain(&wanted.lesson).chain(&wanted.wait);
    let guess = run.guess.as_ref().is_some_and(|guess| is_too_long(guess, 200));
    if guess || texts.any(|text| is_too_long(text, 2_000)) {
        return Some("a text in it is too long, or has a zero byte".to_owned());
    }
    outcome
        .arms
        .iter()
        .find_map(invalid_arm)
        .or_else(|| outcome.lanes.iter().find_map(invalid_lane))
}

fn invalid_arm(arm: &ArmResult) -> Option<String> {
    let entries = arm.forked.iter().map(|fork| fork.entries.len()).sum::<usize>();
    if arm.samples.len() > 3_000 || arm.waits.len() > 100 || entries > 2_000 {
        return Some("an arm of it has too many entries".to_owned());
    }
    let figures = [arm.orders_per_s, arm.wait_p50_ms, arm.wait_p99_ms].into_iter();
    let figures = figures.chain(arm.samples.iter().flat_map(|one| [one.p50_ms, one.p99_ms]));
    let mut figures = figures.chain(arm.waits.iter().map(|bucket| bucket.up_to_ms));
    if figures.any(|figure| !(0.0..=1e9).contains(&figure)) {
        return Some("a figure of an arm is out of range".to_owned());
    }
    let names = [Some(&arm.strategy), arm.sku.as_ref()];
    let long = names.into_iter().flatten().any(|name| is_too_long(name, 100));
    long.then(|| "a name in it is too long".to_owned())
}

fn invalid_lane(lane: &Lane) -> Option<String> {
    let names = lane.events.iter().flat_map(|event| [&event.event, &event.key]);
    let mut names = names.chain([&lane.label, &lane.replica]);
    if lane.events.len() > 200 || names.any(|name| is_too_long(name, 200)) {
        return Some("a lane of it has too many events, or too long a name".to_owned());
    }
    None
}

/// Returns whether a text is too long or has a zero byte, which Postgres cannot store in JSON.
fn is_too_long(text: &str, most: usize) -> bool {
    text.chars().count() > most || text.contains('\0')
}
