//! Runs a lesson from a terminal: the same run as in the browser, printed as text.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::drawing;
use super::lessons::{self, Chapter, LESSONS, Lesson};
use super::run::{LabRun, LabRunState, RunRequest};
use super::store::{self, NewRun, RunEnqueueResult};
use holdfast_base::messages::Language;
use holdfast_base::output::{self, ProgressLine};
use holdfast_base::signals;
use holdfast_services::{RunningUp, TempShop, read_env};
use holdfast_shop::db::{self, Pool};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time for a place in the queue, or for the lab of a new shop to open.
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

/// Runs a lesson on the `holdfast up` of the folder `data`, if that runs with its lab on, otherwise
/// on a temporary shop. Returns whether the claim was shown.
pub async fn run(name: &str, data: &Path, json: bool) -> anyhow::Result<bool> {
    let numbered = || LESSONS.iter().copied().find(|it| it.number().to_string() == name);
    let Some(lesson) = lessons::named(name).or_else(numbered) else {
        bail!("there is no lesson “{name}”; the lessons are {}", lessons::names());
    };

    let mut signals = signals::listen()?;
    let mut own = None;
    let running_lesson = async {
        match read_env(data) {
            Some(running) if running.lab => return run_on(&running, lesson, json, true).await,
            Some(_) => eprintln!(
                "the lab of the shop on {} is off; starting a temporary shop",
                data.display()
            ),
            None => {}
        }
        let running = own.insert(TempShop::start("lesson", 2, 0, true)?).ready().await?;
        run_on(&running, lesson, json, false).await
    };

    // A signal ends the lesson, not the command: the temporary shop has processes to stop.
    let result = tokio::select! {
        result = running_lesson => result,
        Some(name) = signals.recv() => Err(anyhow::Error::msg(name)),
    };
    if let Some(own) = own {
        own.stop().await;
    }
    result
}

/// Runs a lesson on a shop. If that outlives this command, prints where the run is shown.
async fn run_on(
    shop: &RunningUp,
    lesson: &Lesson,
    json: bool,
    outlives: bool,
) -> anyhow::Result<bool> {
    let language = Language::of_environment();
    let pool = db::pool(&shop.database_url, 2)?;
    db::check_reachable(&shop.database_url).await?;
    let id = enqueue(&pool, lesson).await?;

    if !json {
        output::print(&drawing::draw_heading(lesson, language))?;
        if let (true, Some(replica)) = (outlives, shop.replicas.first()) {
            let page = [("page", format!("{replica}/lab/runs/{id}").into())];
            output::print(&(language.text_with("terminal-page", &page) + "\n\n"))?;
        }
    }

    let run = follow(&pool, id, json, language).await?;
    output::print(&if json {
        serde_json::to_string_pretty(&run.clone().in_language(Language::English))? + "\n"
    } else {
        drawing::draw_result(&run, lesson, language)
    })?;

    if run.state == LabRunState::Failed {
        bail!("{}", run.outcome.verdict.map(|it| it.english()).unwrap_or_default());
    }
    Ok(run.outcome.claim_shown == Some(true))
}

/// Runs a lesson on a shop; prints nothing.
pub async fn record(shop: &RunningUp, lesson: &Lesson) -> anyhow::Result<LabRun> {
    let pool = db::pool(&shop.database_url, 2)?;
    let id = enqueue(&pool, lesson).await?;
    follow(&pool, id, true, Language::English).await
}

/// Queues the run, as soon as a runner is alive and the queue has a place.
async fn enqueue(pool: &Pool, lesson: &Lesson) -> anyhow::Result<Uuid> {
    let request = RunRequest { lesson: Some(lesson.name.to_owned()), ..RunRequest::default() };
    let end = Instant::now() + QUEUE_TIMEOUT;

    loop {
        let run = NewRun { request: &request, user: None, visitor: None };
        if let RunEnqueueResult::Queued(id) = store::enqueue(pool, run).await? {
            return Ok(id);
        }

        ensure!(
            Instant::now() < end,
            "the lab of that shop is closed, or its queue full; the output of `holdfast up` says \
             why"
        );
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits for the end of the run, and prints its steps unless `quiet`.
async fn follow(pool: &Pool, id: Uuid, quiet: bool, language: Language) -> anyhow::Result<LabRun> {
    let mut line = ProgressLine::new(Duration::ZERO);
    let mut shown = 0;

    loop {
        let run = store::find(pool, id).await?.context("the run was deleted")?;
        let is_over = run.state.is_over();

        if !quiet {
            let steps = if is_over { &run.outcome.steps } else { &run.progress.steps };
            for step in steps.iter().skip(shown) {
                line.clear();
                shown += 1;
                output::print(&format!("{shown:>3}. {}\n", step.text(language)))?;
            }
            if let Some(sample) = run.progress.samples.last() {
                line.draw(|| drawing::draw_sample(&run.progress.strategy, sample, language));
            }
        }

        if is_over {
            line.clear();
            return Ok(run);
        }
        sleep(POLL_INTERVAL).await;
    }
}
