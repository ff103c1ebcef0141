//! `holdfast site`: records races and lessons in a temporary shop, and makes a static site of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::web::site::{self, NewSite, RECORDED_LESSONS, Recordings, Sources, recorded_races};
use holdfast_base::output::print_progress;
use holdfast_base::signals;
use holdfast_lab::race::model::{Race, RaceRequest};
use holdfast_lab::scheduler_game::Level;
use holdfast_lab::{lessons, terminal};
use holdfast_services::{RunningUp, TempShop, load};

/// Races until one shows what its lock does: without one, two orders may miss each other.
const ATTEMPTS: u32 = 5;
const RACE_TIMEOUT: Duration = Duration::from_secs(60);
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// In a solution: the end of the lock's lease.
const ENDED_LEASE: &str = "X";
/// A request without a body: neither a type nor a text.
const NO_BODY: (&str, &str) = ("", "");

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The site has two languages, needs no server, and works under any path and from \
    the file system. What it shows of orders is recorded in a temporary shop on 127.0.0.1.\n\n\
    An earlier site in OUT is replaced once the new one is complete. A folder with other files is\n\
    refused."
)]
pub struct SiteArgs {
    /// Folder of the site
    pub out: PathBuf,
    /// Address that the site will have, for pictures in previews of links
    #[arg(long, value_parser = parse_url, default_value = "")]
    pub url: String,
    /// Folder of the repository, with the documents in docs/
    #[arg(long, default_value = ".")]
    pub sources: PathBuf,
    /// Folder of the package PGlite, on which the scheduler is played; without it, recordings play
    #[arg(long)]
    pub pglite: Option<PathBuf>,
}

/// Returns the address with a slash at its end.
fn parse_url(url: &str) -> Result<String, String> {
    if url.is_empty() {
        return Ok(String::new());
    }
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_of_folder = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['?', '#', ' ', '"', '<'])
    });
    if !is_of_folder {
        return Err("an address such as https://example.org/holdfast/".to_owned());
    }
    Ok(format!("{}/", url.trim_end_matches('/')))
}

pub(crate) async fn site(options: SiteArgs) -> anyhow::Result<()> {
    // Before a minute of recording.
    let new = NewSite::create(&options.out)?;
    let sources = Sources { repository: options.sources, pglite: options.pglite, url: options.url };
    site::check_sources(&sources)?;

    let mut signals = signals::listen()?;
    let mut shop = TempShop::start("site", 2, 0, true)?;
    let recording = async {
        let running = shop.ready().await?;
        record(&running).await
    };
    let recordings = tokio::select! {
        recordings = recording => recordings,
        // The temporary shop has processes to stop.
        Some(name) = signals.recv() => Err(anyhow::Error::msg(name)),
    };
    shop.stop().await;

    new.write(&sources, &recordings?)?;
    print_progress(&format!("made the site: {}", options.out.display()));
    Ok(())
}

async fn record(shop: &RunningUp) -> anyhow::Result<Recordings> {
    let wanted = recorded_races();
    // The first race of a shop is slower: it creates the buyers.
    if let Some(first) = wanted.first() {
        race(shop, first).await?;
    }

    let mut races = Vec::new();
    for request in &wanted {
        races.push(telling_race(shop, request).await?);
    }

    let mut runs = Vec::new();
    for name in RECORDED_LESSONS {
        let lesson = lessons::named(name).context("a recorded lesson is unknown")?;
        let run = terminal::record(shop, lesson).await?;
        ensure!(
            run.outcome.claim_shown == Some(true),
            "the lesson {name} did not show its claim: is the machine busy? Start again"
        );
        runs.push(run);
    }

    let mut games = BTreeMap::new();
    for level in Level::ALL {
        games.insert(level.name(), solution(shop, level).await?);
    }
    Ok(Recordings { races, lessons: runs, games })
}

/// Runs a race that shows what its lock does: without one, with a mutex in each server, and with a
/// pause that outlasts a lease without a fence, units are sold twice.
async fn telling_race(shop: &RunningUp, request: &RaceRequest) -> anyhow::Result<Race> {
    let RaceRequest { lock, buyers, pause, .. } = request;
    let holds = lock == "fenced" || (lock == "owner" && !pause);
    for _ in 0..ATTEMPTS {
        let race = race(shop, request).await?;
        let is_telling = race.result.as_ref().is_some_and(|result| {
            let is_late = !pause || result.late_lane().is_some();
            (result.oversold == 0) == holds && is_late && result.sold >= race.stock
        });
        if is_telling {
            return Ok(race);
        }
    }
    bail!(
        "of {ATTEMPTS} races with the lock {lock} and {buyers} buyers, none had the expected result"
    )
}

async fn race(shop: &RunningUp, request: &RaceRequest) -> anyhow::Result<Race> {
    let request = serde_json::to_string(request)?;
    let mut race: Race = call(shop, "POST", "/api/race", ("application/json", &request)).await?;
    let end = Instant::now() + RACE_TIMEOUT;

    while !race.state.is_over() {
        ensure!(Instant::now() < end, "a race is not over after {RACE_TIMEOUT:?}");
        sleep(POLL_INTERVAL).await;
        race = call(shop, "GET", &format!("/api/race/{}", race.id), NO_BODY).await?;
    }
    Ok(race)
}

/// Plays the best solution of a level. Returns the state of the game before the first step and
/// after each.
async fn solution(shop: &RunningUp, level: Level) -> anyhow::Result<Vec<Value>> {
    let begin = [("level", level.name()), ("csrf", ""), ("previous", "")];
    let mut state = post_form(shop, "/lab/scheduler", &begin).await?;
    let page = format!("/lab/scheduler/{}", state["id"].as_str().context("a game has an id")?);

    let mut states = vec![recorded(&state)];
    for who in level.solution().chars().map(String::from) {
        let end = Instant::now() + STEP_TIMEOUT;
        // An order that waits for a lock has it a moment after it is free.
        while who != ENDED_LEASE && state["pauses"][&who].is_null() {
            ensure!(Instant::now() < end, "order {who} of {page} is not paused");
            sleep(POLL_INTERVAL).await;
            state = call(shop, "GET", &page, NO_BODY).await?;
        }

        let since = state["pauses"][&who].to_string();
        let step = match who.as_str() {
            ENDED_LEASE => [("who", "expire"), ("since", ""), ("csrf", "")],
            who => [("who", who), ("since", since.as_str()), ("csrf", "")],
        };
        state = post_form(shop, &format!("{page}/steps"), &step).await?;
        states.push(recorded(&state));
    }

    let name = level.name();
    ensure!(!state["reached_at"].is_null(), "the solution of {name} did not reach its goal");
    Ok(states)
}

/// Returns a state without what belongs to its server.
fn recorded(state: &Value) -> Value {
    let mut state = state.clone();
    if let Value::Object(fields) = &mut state {
        for of_server in ["id", "pauses", "minutes_left", "refusal"] {
            fields.remove(of_server);
        }
    }
    state
}

async fn post_form(shop: &RunningUp, path: &str, fields: &[(&str, &str)]) -> anyhow::Result<Value> {
    let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    call(shop, "POST", path, ("application/x-www-form-urlencoded", &text)).await
}

/// Sends a request to the first replica, as a page of it does. Returns its response.
async fn call<T: DeserializeOwned>(
    shop: &RunningUp,
    method: &str,
    path: &str,
    (kind, body): (&str, &str),
) -> anyhow::Result<T> {
    let replica = shop.replicas.first().context("the shop has no replica")?;
    let host = replica.strip_prefix("http://").unwrap_or(replica);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {replica}\r\n\
         Accept: application/json\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );

    let (status, response) = load::send(host.parse()?, request.as_bytes()).await?;
    let response = String::from_utf8_lossy(&response);
    ensure!(status < 300, "{method} {path} was answered {status}: {response}");
    serde_json::from_str(&response).with_context(|| format!("not understood: {response}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_of_a_folder_on_the_web() {
        for (typed, url) in [
            ("", ""),
            ("https://example.org", "https://example.org/"),
            ("http://example.org/a/b/", "http://example.org/a/b/"),
        ] {
            assert_eq!(parse_url(typed).as_deref(), Ok(url));
        }
        for wrong in ["example.org", "ftp://example.org/", "https:///a", "https://a.org/?b", "a b"]
        {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }
}
