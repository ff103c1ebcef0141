//! Runs a lesson from a terminal: the same run as in the browser, with measurements and swimlanes
//! as text.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::drawing;
use super::lessons::{self, Chapter, LESSONS, Lesson};
use super::run::{LabRun, LabRunState, RunRequest};
use super::store::{self, EnqueueResult, NewRun};
use crate::db::{self, Pool};
use crate::embedded::{TempShop, TempShopOptions, read_env};
use crate::messages::Language;
use crate::output::{self, ProgressLine};
use crate::signals;

/// Time for which a run may be queued before its position is printed.
const QUEUE_NOTICE_AFTER: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time for another run to end, or for the lab of a new shop to open.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

pub fn list() -> String {
    let language = Language::of_environment();
    let width = LESSONS.iter().map(|lesson| lesson.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for chapter in Chapter::ALL {
        text += &format!("{}\n", chapter.title(language));
        for lesson in LESSONS.iter().filter(|lesson| lesson.chapter == chapter) {
            let title = lesson.title(language);
            text += &format!("{:>3}  {:width$}  {title}\n", lesson.number(), lesson.name);
        }
        text.push('\n');
    }
    text + &language.text("terminal-run-one") + "\n"
}

/// Runs a lesson on the `holdfast up` of the folder `data`, if that runs with its lab on,
/// otherwise on a temporary shop. Prints the result as a drawing, or as JSON only. Returns whether
/// the claim was shown.
pub async fn run(name: &str, data: &Path, json: bool) -> anyhow::Result<bool> {
    let Some(lesson) = lessons::named(name) else {
        bail!("there is no lesson “{name}”; the lessons are {}", lessons::names());
    };
    let mut signals = signals::listen()?;
    let mut own = None;
    // Page of the run, set if it is executed by a shop that outlives this command.
    let page = OnceLock::new();
    let running_lesson = async {
        let running = match read_env(data) {
            Some(running) if running.lab => running,
            other => {
                if other.is_some() {
                    eprintln!(
                        "the lab of the shop on {} is off; starting a temporary shop",
                        data.display()
                    );
                }
                let plan = TempShopOptions { name: "lesson", replicas: 2, nodes: 0, jobs: true };
                own.insert(TempShop::start(&plan)?).ready().await?
            }
        };
        let pool = db::pool(&running.database_url, 2)?;
        db::check_reachable(&running.database_url).await?;
        let id = enqueue(&pool, lesson).await?;
        if let (None, Some(replica)) = (&own, running.replicas.first()) {
            let _ = page.set(page_url(replica, id));
        }
        let run = show_run(&pool, id, lesson, json).await?;
        if let (false, Some(page)) = (json, page.get()) {
            let page = [("page", page.as_str().into())];
            let page = Language::of_environment().text_with("terminal-page", &page);
            output::print(&format!("\n{page}\n"))?;
        }
        if run.state == LabRunState::Failed {
            bail!("{}", run.outcome.verdict.map(|it| it.english()).unwrap_or_default());
        }
        Ok(run.outcome.claim_shown == Some(true))
    };
    let result = tokio::select! {
        result = running_lesson => result,
        Some(name) = signals.recv() => Err(interrupted(name, page.get())),
    };
    match own {
        Some(own) => {
            own.stop().await;
            result
        }
        // The stopped shop is the cause; the error says only that its Postgres is gone.
        None if result.is_err() && page.get().is_some() && read_env(data).is_none() => {
            bail!("the shop was stopped before the run had finished")
        }
        None => result,
    }
}

fn page_url(replica: &str, id: Uuid) -> String {
    format!("{replica}/lab/runs/{id}")
}

/// Returns the error of an interrupted command. A shop that is still running completes the run.
fn interrupted(why: &str, page: Option<&String>) -> anyhow::Error {
    match page {
        Some(page) => anyhow!("{why}; the run continues in the shop: {page}"),
        None => anyhow!("{why}"),
    }
}

/// Prints a run's steps during its execution, then its result.
async fn show_run(pool: &Pool, id: Uuid, lesson: &Lesson, json: bool) -> anyhow::Result<LabRun> {
    let language = Language::of_environment();
    if !json {
        output::print(&drawing::draw_heading(lesson, language))?;
    }
    let run = follow(pool, id, json, language).await?;
    if json {
        let run = run.clone().in_language(Language::English);
        output::print(&(serde_json::to_string_pretty(&run)? + "\n"))?;
    } else {
        output::print(&drawing::draw_result(&run, lesson, language))?;
    }
    Ok(run)
}

/// Queues the run, as soon as a runner is alive and the queue has a place.
async fn enqueue(pool: &Pool, lesson: &Lesson) -> anyhow::Result<Uuid> {
    let request = RunRequest { lesson: Some(lesson.name.to_owned()), ..RunRequest::default() };
    let end = Instant::now() + QUEUE_TIMEOUT;
    loop {
        let run = NewRun { request: &request, guess: None, user: None };
        let why = match store::enqueue(pool, run).await? {
            EnqueueResult::Queued(id) => return Ok(id),
            EnqueueResult::QueueFull | EnqueueResult::UserLimit => {
                "the queue of the lab is full; try again later".to_owned()
            }
            EnqueueResult::NoRunner => {
                "the lab of that shop did not open; the output of `holdfast up` says why".to_owned()
            }
        };
        ensure!(Instant::now() < end, "{why}");
        sleep(POLL_INTERVAL).await;
    }
}

async fn follow(pool: &Pool, id: Uuid, quiet: bool, language: Language) -> anyhow::Result<LabRun> {
    let mut line = ProgressLine::new(Duration::ZERO);
    let (begin, mut shown, mut position) = (Instant::now(), 0, None);
    loop {
        let run = store::find(pool, id).await?.context("the run was deleted")?;
        let is_new = |place: &i64| begin.elapsed() > QUEUE_NOTICE_AFTER && position != Some(*place);
        if let Some(place) = run.position.filter(is_new) {
            position = Some(place);
            eprintln!("{}", language.text_with("terminal-queued", &[("place", place.into())]));
        }
        if !quiet {
            let steps = if run.state.is_over() { &run.outcome.steps } else { &run.progress.steps };
            if steps.len() > shown {
                line.clear();
            }
            for (number, step) in steps.iter().enumerate().skip(shown) {
                output::print(&(drawing::draw_step(number + 1, &step.text(language)) + "\n"))?;
            }
            shown = shown.max(steps.len());
        }
        if run.state.is_over() {
            line.clear();
            return Ok(run);
        }
        if !quiet && let Some(sample) = run.progress.samples.last() {
            line.draw(|| drawing::draw_sample(&run.progress.strategy, sample, language));
        }
        sleep(POLL_INTERVAL).await;
    }
}
