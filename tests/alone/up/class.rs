//! A class on a whole `up`: what it prints, the next day, and a computer that was closed.

use std::fs::{self, File};
use std::time::Duration;

use holdfast_shop::db;
use holdfast_shop::users::{self, Credentials};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::time::sleep;

use super::{Running, TestFolder, send, wait_until};

/// For as long as a computer is closed: longer than the leases, heartbeats and sessions in Redis.
const CLOSED: Duration = Duration::from_secs(7);

/// Starts a class; returns what it printed to stderr, too.
async fn start(folder: &TestFolder) -> (Running, String) {
    let log = folder.path.join("stderr");
    let mut command = folder.command();
    command.arg("--class").stderr(File::create(&log).expect("a file"));
    let up = Running::start_command(folder, command).await;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("it says how to join", async || said().contains("The class's page:")).await;
    (up, said())
}

/// Returns the word behind `text`.
fn word(said: &str, text: &str) -> String {
    let rest = said.split_once(text).map(|(_, rest)| rest);
    let rest = rest.unwrap_or_else(|| panic!("{text}: {said}"));
    rest.split([' ', ':', '.', '\n']).next().unwrap().to_owned()
}

struct Phone {
    http: Client,
    base: String,
}

impl Phone {
    fn new(port: u16) -> Self {
        // Without a pool: a connection that was idle while the computer was closed is over.
        let http = Client::builder().cookie_store(true).redirect(Policy::none());
        let http = http.pool_max_idle_per_host(0).build().unwrap();
        Self { http, base: format!("http://127.0.0.1:{port}") }
    }

    async fn get(&self, path: &str) -> Response {
        let page = self.http.get(format!("{}{path}", self.base)).header("Accept", "text/html");
        page.send().await.unwrap()
    }

    /// Returns where the form leads to.
    async fn post(&self, path: &str, form: &str) -> String {
        let form = self.http.post(format!("{}{path}", self.base)).body(form.to_owned());
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let response = form.send().await.unwrap();
        let location = response.headers().get("location").map(|at| at.to_str().unwrap().to_owned());
        location.unwrap_or_else(|| response.status().to_string())
    }

    async fn csrf(&self) -> String {
        let page = self.get("/join").await.text().await.unwrap();
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).expect("a session");
        csrf.split('"').next().unwrap().to_owned()
    }
}

/// Returns a process and all below it.
async fn tree(root: i32) -> Vec<i32> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().await.expect("ps");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs: Vec<Vec<i32>> = text
        .lines()
        .map(|line| line.split_whitespace().filter_map(|id| id.parse().ok()).collect())
        .collect();

    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        tree.extend(pairs.iter().filter(|pair| pair[1] == parent).map(|pair| pair[0]));
        next += 1;
    }
    tree
}

#[tokio::test]
async fn class_goes_on_after_a_closed_lid_and_tomorrow() {
    let folder = TestFolder::new();
    let (up, said) = start(&folder).await;
    assert!(up.line.ends_with("lab: class). Ctrl-C stops it."), "{}", up.line);
    let base = format!("http://127.0.0.1:{}", folder.port);
    assert!(said.contains(&format!("The class joins at {base}/join with the code ")), "{said}");
    assert!(!said.contains('\u{1b}'), "a QR code is for terminals: {said}");
    let code = word(&said, "with the code ");
    let password = word(&said, "with the password ");

    let (teacher, mia) = (Phone::new(folder.port), Phone::new(folder.port));
    let sign_in = format!("user=admin&password={password}&next=/lab/class");
    assert_eq!(teacher.post("/sign-in", &sign_in).await, "/lab/class");
    let page = teacher.get("/lab/class").await.text().await.unwrap();
    assert!(page.contains(&format!("{base}/join")) && page.contains(&code), "{page}");
    assert_eq!(mia.post("/join", &format!("code={code}&nickname=Mia")).await, "/lab");

    // A folder that once had demo users, as of a plain `up`.
    let pool = db::pool(&up.env().database_url, 2).unwrap();
    let alice = Credentials { user: "alice".to_owned(), password: "alice".to_owned() };
    users::create(&pool, alice, false, None, 3).await.unwrap();

    // The computer is closed: nothing of it runs, for longer than every lease and heartbeat. Its
    // Redis and Postgres are stopped, too, so only the clock says when these are over.
    let all = tree(up.pid()).await;
    assert!(all.len() > 5, "{all:?}");
    all.iter().for_each(|pid| send(*pid, Signal::STOP));
    sleep(CLOSED).await;
    all.iter().rev().for_each(|pid| send(*pid, Signal::CONT));
    let form = format!("csrf={}&guess=1", mia.csrf().await);
    let mut run = String::new();
    let opened = tokio::time::Instant::now();
    while !run.starts_with("/lab/runs/") && opened.elapsed() < Duration::from_secs(10) {
        run = mia.post("/lab/lessons/lost-update/runs", &form).await;
    }
    assert!(run.starts_with("/lab/runs/"), "{run}");
    wait_until("the run is done", async || {
        let state = mia.get(&format!("/api{run}")).await.text().await.unwrap();
        state.contains("\"state\":\"done\"")
    })
    .await;
    pool.close().await;
    up.stop().await;

    // Tomorrow.
    let (up, said) = start(&folder).await;
    assert_eq!(word(&said, "with the code "), code);
    assert!(said.contains("an earlier start printed the password"), "{said}");
    assert!(!said.contains(&password), "{said}");
    assert!(said.contains("their passwords are their names: alice"), "{said}");
    assert_eq!(mia.get("/orders").await.status(), 200, "the student's session goes on");
    assert_eq!(teacher.get("/lab/class").await.status(), 200);
    let demo = Phone::new(folder.port);
    assert_eq!(demo.post("/sign-in", "user=alice&password=alice").await, "401 Unauthorized");
    assert_eq!(demo.post("/sign-in", "user=admin&password=admin").await, "401 Unauthorized");
    up.stop().await;
}
