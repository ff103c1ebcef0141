//! The scheduler on the site: a game on a Postgres in the browser, and a recording instead.

use holdfast_lab::scheduler_game::Level;
use serde_json::{Value, json};

use super::host::{BROKEN, SLOW, STRICT};
use super::visit::Visit;

/// What a page shows of a game.
const SHOWN: &str = r"const root = document.querySelector(arguments[0]);
    const texts = (css) => [...root.querySelectorAll(css)].map((it) =>
        it.textContent.replace(/\s+/g, ' ').trim());
    // How long an order waits for a lock that is free again depends on the machine.
    const withoutWaits = (steps) => steps.map((step) =>
        step.replace(/ → waits until its server notices .*$/, ''));
    return {
        chips: texts('.chip'),
        steps: withoutWaits(texts('.taken-steps li')),
        chains: texts('.ledger .chain'),
        books: texts('.books'),
        rejected: texts('.game-order .rejected'),
        code: texts('.code pre'),
        fine: texts('.ledger .fine'),
    };";

/// Measures how long the page does not respond: the tasks of at least 50 ms.
const MEASURE_BUSY: &str = "window.measuredFrom = performance.now();
    window.busyMs = 0;
    const observer = new PerformanceObserver((list) => {
        for (const task of list.getEntries()) busyMs += task.duration;
    });
    observer.observe({ type: 'longtask' });";

const HAS_BEGUN: &str =
    "return !!document.querySelector('#step-A') && !document.querySelector('.taken-steps')";
const STEPS: &str = "return document.querySelectorAll('.taken-steps li').length";
const HAS_RECORDING: &str = "return !document.querySelector('#recording').hidden
    && !!document.querySelector('#moment')";

/// What the orders' cards say of the lock once the goal is reached.
fn chips(level: Level) -> Value {
    match level {
        Level::UselessLock => json!(["believes it has the lock", "has the lock"]),
        Level::Fence => json!(["has the lock"]),
        Level::Oversell | Level::Version => json!([]),
    }
}

impl Visit {
    pub async fn play(&self, level: &str) {
        self.click(&format!("[data-play={level}]")).await;
    }

    pub async fn watch(&self, level: &str) {
        self.click(&format!("[data-watch={level}]")).await;
        self.until("the recording", HAS_RECORDING, &[]).await;
    }

    async fn has_steps(&self, steps: usize) {
        let what = format!("{steps} steps");
        self.until(&what, &format!("{STEPS} === arguments[0]"), &[json!(steps)]).await;
    }

    /// Plays the best solution; asserts that its last step, and none before, reaches the goal.
    async fn solve(&self, level: Level) {
        self.play(level.name()).await;
        self.until("the game has begun", HAS_BEGUN, &[]).await;
        for (taken, who) in level.solution().chars().enumerate() {
            let button = if who == 'X' { "#expire".to_owned() } else { format!("#step-{who}") };
            self.click(&button).await;
            self.has_steps(taken + 1).await;
        }
        let reached = "return !!document.querySelector('#game .goal.reached')
            && !!document.querySelector('#game .taken-steps li:last-child.reached')";
        assert_eq!(self.run(reached, &[]).await, true, "{}: the goal", level.name());
    }

    /// The page says how much is here, and plays a recording meanwhile.
    async fn slow_line_is_bearable(&self) {
        self.play("oversell").await;
        // All but a half of one file.
        let most = "return /: 1[0-9] of 1[0-9] MB/.test(
            document.querySelector('#state').textContent)";
        self.until("most is here", most, &[]).await;
        self.watch("oversell").await;

        self.play("version").await;
        self.run(MEASURE_BUSY, &[]).await;
        self.host.let_rest_follow();
        let begun = "return !!document.querySelector('#step-A')";
        self.until("the game has begun", begun, &[]).await;

        let measured = "return [busyMs, performance.now() - measuredFrom]";
        let measured = self.run(measured, &[]).await;
        let [busy_ms, took_ms] = [0, 1].map(|number| measured[number].as_f64().unwrap());
        assert!(busy_ms < took_ms / 3.0, "no response for {busy_ms} of {took_ms} ms");
        let hidden = self.run("return document.querySelector('#recording').hidden", &[]).await;
        assert_eq!(hidden, true, "the recording is left");
        assert!(self.text("#game").await.contains("version"), "another game");
    }

    /// Plays the recording that is shown instead of a game, to its end; asserts that the page says
    /// `why`.
    async fn recording_plays(&self, level: Level, why: &[&str]) {
        self.until("the recording", HAS_RECORDING, &[]).await;
        let said = self.text("#state").await;
        assert!(why.iter().all(|part| said.contains(part)), "{said}");
        for _ in level.solution().chars() {
            self.click("#forward").await;
        }
        let reached = "return !!document.querySelector('#recorded .goal.reached')";
        assert_eq!(self.run(reached, &[]).await, true, "{}: the goal", level.name());
    }
}

/// With the same steps, entries and statements as in the shop, where they were recorded.
#[tokio::test(flavor = "multi_thread")]
async fn levels_are_played_on_postgres() {
    let visit = Visit::begin().await;
    visit.prefer("dark", "reduce").await;
    visit.browser.go(&format!("{SLOW}scheduler.html")).await;
    let requests = visit.requests().await;
    assert!(!requests.iter().any(|it| it.contains("pglite")), "loaded before a game");
    visit.slow_line_is_bearable().await;

    for level in Level::ALL {
        let name = level.name();
        visit.solve(level).await;
        assert_eq!(visit.text("#game .stars").await, "★★★", "{name}");
        let here = visit.run(SHOWN, &[json!("#game")]).await;
        if level == Level::Version {
            // It has read again, and there is nothing left to compute.
            let next = visit.text("#step-B").await;
            assert!(next.ends_with("find it sold out"), "{next}");
        }

        visit.watch(name).await;
        let to_end = "const moment = document.querySelector('#moment');
            moment.value = moment.max;
            moment.dispatchEvent(new Event('input'))";
        visit.run(to_end, &[]).await;
        let there = visit.run(SHOWN, &[json!("#recorded")]).await;
        assert_eq!(here, there, "{name}");
        let expected = match level {
            Level::Version | Level::Fence => 1,
            Level::Oversell | Level::UselessLock => 0,
        };
        let rejected = here["rejected"].as_array().unwrap().len();
        assert_eq!(rejected, expected, "{name}");
        assert_eq!(here["chips"], chips(level), "{name}");
    }
    visit.examine("scheduler.html").await;

    visit.play("oversell").await;
    let another = format!("{HAS_BEGUN} && document.querySelector('#undo').disabled");
    visit.until("another game", &another, &[]).await;
    visit.click("#step-A").await;
    visit.has_steps(1).await;
    visit.click("#undo").await;
    visit.until("no step", &another, &[]).await;
    let requests = visit.requests().await;
    assert!(requests.iter().any(|it| it.ends_with("pglite.wasm")), "{requests:?}");
    visit.examine("scheduler.html").await;
    visit.end().await;
}

/// For who wants motion, to its end; a button stops it.
#[tokio::test(flavor = "multi_thread")]
async fn solution_plays_by_itself() {
    let visit = Visit::begin().await;
    visit.prefer("light", "").await;
    visit.open("scheduler.html").await;
    visit.watch("oversell").await;
    visit.until("a step", "return document.querySelector('#moment').value > 1", &[]).await;
    visit.click("#playing").await;
    let stopped = visit.run("return document.querySelector('#moment').value", &[]).await;
    visit.click("#playing").await;
    let last = "const moment = document.querySelector('#moment');
        return moment.value > arguments[0] && moment.value === moment.max";
    visit.until("the last step", last, &[stopped]).await;
    visit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_plays_from_the_file_system() {
    let visit = Visit::begin().await;
    visit.open_file("scheduler.html").await;
    visit.play("fence").await;
    visit.recording_plays(Level::Fence, &["Postgres"]).await;
    visit.end().await;
}

/// The host forbids it, the browser has none, or a file is missing.
#[tokio::test(flavor = "multi_thread")]
async fn recording_plays_without_webassembly() {
    let visit = Visit::begin().await;
    visit.size(1280).await;
    visit.browser.go(&format!("{STRICT}zh/scheduler.html")).await;
    visit.play("oversell").await;
    visit.recording_plays(Level::Oversell, &["Postgres", "WebAssembly"]).await;
    visit.examine("zh/scheduler.html").await;

    let without = visit.run_first("delete globalThis.WebAssembly").await;
    visit.open("scheduler.html").await;
    visit.play("version").await;
    visit.recording_plays(Level::Version, &["Postgres"]).await;
    visit.run_no_longer(without).await;

    visit.browser.go(&format!("{BROKEN}scheduler.html")).await;
    visit.play("useless-lock").await;
    visit.recording_plays(Level::UselessLock, &["Postgres", "404"]).await;
    visit.end().await;
}
