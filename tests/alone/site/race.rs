//! The race on the site: with its script, in a frame, and without scripts.

use std::collections::BTreeSet;

use serde_json::json;

use super::host::SUB_PATH;
use super::visit::Visit;

/// With eight recorded races.
const MAX_FIRST_PAGE: u64 = 165_000;

const HAS_ENDED: &str =
    "return ['lost', 'held'].includes(document.querySelector('#race-stage').dataset.state)";
const STATE: &str = "return document.querySelector('#race-stage').dataset.state";

/// Lets a page play eight times as fast.
const FASTER: &str = "const [now, later] = [performance.now.bind(performance), setTimeout];
    performance.now = () => now() * 8;
    globalThis.setTimeout = (what, ms, ...values) => later(what, ms / 8, ...values);";

/// Moves the scrubber.
const SCRUB: &str = "const scrub = document.querySelector('#race-scrub');
    scrub.value = arguments[0] ?? scrub.max;
    scrub.dispatchEvent(new Event('input', { bubbles: true }));";

/// Plays with a lock, or with an empty name without one, and a number of buyers.
const CHOOSE: &str = "const form = document.querySelector('#race');
    form.elements.on.checked = !!arguments[0];
    if (arguments[0]) form.elements.lock.value = arguments[0];
    form.elements.buyers.value = arguments[1];
    form.dispatchEvent(new Event('input', { bubbles: true }));
    form.requestSubmit();";

impl Visit {
    /// A tap on a hint, a switch or a lock plays at once: first the story, each part of which has a
    /// sentence.
    async fn choices_play(&self) {
        self.until("the race has ended", HAS_ENDED, &[]).await;
        let mut captions = BTreeSet::new();
        let choices = [
            ("#race-hint-on", "held"),
            ("#race-hint-pause", "lost"),
            ("#race-hint-fence", "held"),
            ("#race-on", "lost"),
            ("[name=lock][value=local]", "lost"),
        ];
        for (choice, state) in choices {
            self.click(choice).await;
            let ended = format!("{STATE} === arguments[0]");
            self.until(&format!("{choice} plays to its end"), &ended, &[json!(state)]).await;
            captions.insert(self.text("#race-caption").await);
        }
        assert_eq!(captions.len(), choices.len(), "{captions:?}");

        // The fence was recorded with a pause, and a pause with two buyers.
        self.run(CHOOSE, &[json!("owner"), json!(40)]).await;
        self.click("#race-fence").await;
        let on = "return document.querySelectorAll('.race-switch :checked').length";
        assert_eq!(self.run(on, &[]).await, 3);
        self.until("the race has ended", HAS_ENDED, &[]).await;
        assert!(self.text("#race-verdict").await.contains('1'), "of two buyers");
        self.click("#race-on").await;
    }

    /// It plays by itself without a lock; then as chosen. The scrubber shows any moment.
    pub async fn plays_all_races(&self) {
        self.until("the race has ended", HAS_ENDED, &[]).await;
        let verdict = self.text("#race-verdict").await;
        let numbers: Vec<&str> = verdict.split(|c: char| !c.is_ascii_digit()).collect();
        let numbers: Vec<&str> = numbers.into_iter().filter(|it| !it.is_empty()).collect();
        assert!(numbers.starts_with(&["2", "1"]), "{verdict}");

        self.run(SCRUB, &[json!(500)]).await;
        let steps = "return ['.step.later', '.step'].map((it) =>
            document.querySelectorAll(`#race-drawing ${it}`).length)";
        let steps = self.run(steps, &[]).await;
        let [later, all] = [0, 1].map(|number| steps[number].as_u64().unwrap());
        assert!(0 < later && later < all, "{later} of {all} steps are later");
        assert_eq!(self.text("#race-verdict").await, "");

        for (lock, buyers, state) in [
            ("owner", 2, "held"),
            ("local", 2, "lost"),
            ("local", 40, "lost"),
            ("owner", 40, "held"),
            ("", 40, "lost"),
        ] {
            self.run(CHOOSE, &[json!(lock), json!(buyers)]).await;
            self.run(SCRUB, &[]).await;
            assert_eq!(self.run(STATE, &[]).await, state, "{lock:?}, {buyers} buyers");
        }
    }

    async fn hints_have_one_line(&self) {
        for width in [390, 1280] {
            self.size(width).await;
            let heights = "return [...document.querySelectorAll('.race-hint')].map((hint) =>
                hint.getBoundingClientRect().height)";
            let heights = self.run(heights, &[]).await;
            let heights = heights.as_array().unwrap().iter().map(|it| it.as_f64().unwrap());
            let are_lines = heights.clone().all(|height| 0.0 < height && height < 40.0);
            assert!(
                are_lines && heights.len() == 3,
                "{width} px: {:?}",
                heights.collect::<Vec<_>>()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_page_is_small() {
    let visit = Visit::begin().await;
    let no_cache = json!({ "cacheDisabled": true });
    visit.browser.devtools("Network.setCacheDisabled", no_cache).await;
    visit.requests().await;
    visit.open("index.html").await;
    visit.until("the race has ended", HAS_ENDED, &[]).await;

    let base = format!("{}{SUB_PATH}", visit.host.address);
    let files: Vec<String> = visit
        .requests()
        .await
        .iter()
        .map(|address| address.strip_prefix(&base).unwrap().to_owned())
        .collect();
    let has_font = files.iter().any(|file| file.ends_with(".woff2"));
    assert!(files.contains(&"assets/race.js".to_owned()) && has_font, "{files:?}");
    let size = |file| visit.folder.join(file).metadata().unwrap().len();
    let total: u64 = files.iter().map(size).sum();
    assert!(total <= MAX_FIRST_PAGE, "{total} bytes: {files:?}");
    visit.end().await;
}

/// The first one as it moves; the others at once, as for who wants no motion.
#[tokio::test(flavor = "multi_thread")]
async fn race_plays() {
    let visit = Visit::begin().await;
    visit.run_first(FASTER).await;
    for (path, width, scheme, motion) in [
        ("index.html", 1280, "dark", ""),
        ("zh/index.html", 390, "light", "reduce"),
        ("race.html", 320, "dark", "reduce"),
    ] {
        visit.size(width).await;
        visit.prefer(scheme, motion).await;
        visit.open(path).await;
        visit.choices_play().await;
        visit.plays_all_races().await;
        visit.hints_have_one_line().await;
        visit.size(width).await;
        visit.examine(path).await;
    }
    visit.end().await;
}

/// Of 320 px, which allows scripts and nothing else, as in a blog.
#[tokio::test(flavor = "multi_thread")]
async fn race_plays_in_a_frame() {
    let visit = Visit::begin().await;
    visit.size(1280).await;
    visit.open("lessons.html").await;
    let embed = r#"document.querySelector('main').innerHTML = '<iframe id="frame" src="race.html"
        title="Holdfast" width="320" height="760" sandbox="allow-scripts" style="border: 0">
        </iframe>'"#;
    visit.run(&embed.replace('\n', " "), &[]).await;

    visit.enter_frame("#frame").await;
    visit.plays_all_races().await;
    let width = visit.run("return document.documentElement.scrollWidth", &[]).await;
    assert!(width.as_u64().unwrap() <= 320, "the frame is {width} px wide");
    let hidden = "const parts = ['#race-go', '.race-switches', '#race-stage', '#race-verdict',
            '#race-scrub'];
        return parts.filter((part) =>
            document.querySelector(part).getBoundingClientRect().bottom > innerHeight)";
    let hidden = visit.run(hidden, &[]).await;
    assert_eq!(hidden, json!([]), "not seen without scrolling");

    visit.leave_frame().await;
    assert_eq!(visit.run("return scrollY", &[]).await, 0, "the frame scrolls its page");
    visit.end().await;
}

/// As drawings whose steps appear, for who wants motion; other pages say what they need.
#[tokio::test(flavor = "multi_thread")]
async fn race_plays_without_scripts() {
    let visit = Visit::begin().await;
    let off = json!({ "value": true });
    visit.browser.devtools("Emulation.setScriptExecutionDisabled", off).await;
    for (path, first_step) in [("index.html", "A reads 1"), ("zh/race.html", "A 读到 1")] {
        for (motion, moving) in [("", 2), ("reduce", 0)] {
            visit.prefer("light", motion).await;
            visit.open(path).await;
            let drawings = "document.querySelectorAll('.race-recorded svg').length";
            assert_eq!(visit.evaluate(drawings).await, 2, "{path}");
            let stage = "getComputedStyle(document.querySelector('#race')).display";
            assert_eq!(visit.evaluate(stage).await, "none", "{path}");
            let words =
                visit.evaluate("document.querySelector('.race-recorded').textContent").await;
            assert!(words.as_str().unwrap().contains(first_step), "{path}: {words}");
            let appearing = "document.getAnimations().filter((it) => it.animationName === 'appear')
                .length";
            assert_eq!(visit.evaluate(appearing).await, moving, "{path}: drawings that appear");
        }
    }

    for (path, shown, hidden) in [
        ("scheduler.html", "noscript p", ".levels"),
        ("zh/judged.html", "tbody tr", "#search"),
        ("which-lock.html", "noscript a", "#answers h2"),
        ("zh/lessons/fence.html", "svg", "#none"),
    ] {
        visit.open(path).await;
        for (css, expected) in [(shown, true), (hidden, false)] {
            let is_seen = format!("!!document.querySelector('{css}')?.checkVisibility()");
            assert_eq!(visit.evaluate(&is_seen).await, expected, "{path}: {css}");
        }
    }
    visit.end().await;
}
