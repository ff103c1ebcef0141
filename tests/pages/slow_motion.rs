//! Slow motion: which scene plays, what each sign says, and that a drawing is legible, measured in
//! a real browser.

use holdfast_lab::run::LabRun;
use holdfast_lab::store;
use holdfast_testkit::{TestShop, until};
use serde_json::{Value, json};
use thirtyfour::prelude::*;

use crate::axe::violations;
use crate::axe_core::axe;
use crate::browser::Browser;
use crate::lab::{ID, oversold, register_runner, with_run};
use crate::visitor::Visitor;

/// A lane of a scene; each of its events is `[+MS] NAME [VALUE [FENCE]]`, 3 ms after the one
/// before, or so many. Id 0 is somebody who sends no request.
pub fn lane(
    scene: &str,
    id: u8,
    label: &str,
    from_ms: u64,
    events: &[&str],
    end: Option<u16>,
) -> Value {
    let mut at_ms = from_ms;
    let mut event = |text: &&str| {
        let (after, text) = match text.strip_prefix('+').and_then(|rest| rest.split_once(' ')) {
            Some((ms, text)) => (ms.parse().unwrap(), text),
            None => (3, *text),
        };
        at_ms += after;
        let mut parts = text.split(' ');
        let name = parts.next().unwrap();
        let numbers: Vec<i64> = parts.map(|part| part.parse().unwrap()).collect();
        let key = if name == "stopped" { "" } else { "{sku:lab-9}" };
        json!({
            "t_us": at_ms * 1_000, "event": name, "key": key,
            "value": numbers.first(), "fence": numbers.get(1),
        })
    };
    let events: Vec<Value> = events.iter().map(&mut event).collect();
    let over = (at_ms + 3) * 1_000;
    json!({
        "request_id": format!("00000000-0000-0000-0000-0000000000{id:02}"), "label": label,
        "replica": if id > 0 { "18500" } else { "" }, "arm": null, "scene": scene,
        "strategy": "check-then-del", "sent_us": from_ms * 1_000, "answered_us": end.map(|_| over),
        "status": end, "problem": (end == Some(503)).then_some("lock-lost"), "events": events,
    })
}

/// Returns a run of a lesson with two requests under a lock, or without one. A is paused between
/// its read and its write, for 350 ms; its lease is 300 ms.
fn two_orders(lesson: &str, scene: &str, id: &str) -> LabRun {
    let order = |id, label, from_ms, pause| {
        let mut events = vec!["wait", "held", "read 10", "paused", pause, "write 9", "commit"];
        events.extend(["committed", "release"]);
        if lesson == "lost-update" {
            events.retain(|event| *event != "held");
        }
        lane(scene, id, label, from_ms, &events, Some(201))
    };
    let mut run = oversold();
    run.id = id.parse().unwrap();
    run.request.lesson = Some(lesson.to_owned());
    run.outcome.arms.clear();
    let lanes = [order(1, "A", 0, "+350 resumed"), order(2, "B", 320, "+60 resumed")];
    run.outcome.lanes = lanes.map(|lane| serde_json::from_value(lane).unwrap()).into();
    run
}

/// Returns a run whose scenes have every kind of event.
fn every_sign() -> LabRun {
    let mut run = oversold();
    let lanes = json!([
        lane("more", 5, "A, killed", 900, &["wait", "held", "read 10", "killed"], None),
        lane("more", 6, "B, retry", 990, &["replayed"], Some(201)),
        lane(
            "pair",
            1,
            "A",
            0,
            &[
                "wait",
                "expire",
                "held 0 1",
                "renewed",
                "read 10 1",
                "paused",
                "stopped",
                "expired 1500",
                "continued",
                "resumed",
                "write 9 1",
                "commit",
                "committed",
                "delete",
                "foreign",
                "release",
            ],
            Some(201)
        ),
        lane(
            "pair",
            2,
            "B",
            25,
            &["wait", "held 0 2", "read 10 2", "write 9 2", "committed", "lost", "release",],
            Some(503)
        ),
        lane(
            "pair",
            3,
            "C",
            30,
            &[
                "wait",
                "tries",
                "+0 works",
                "+0 worked",
                "busy",
                "held 0 3",
                "stale 3 1",
                "refused 9 1",
                "left",
                "hung",
            ],
            None
        ),
        lane("pair", 0, "Redis", 70, &["cut", "promoted", "flushed", "removed"], None),
    ]);
    let mut lanes: Vec<Value> = lanes.as_array().unwrap().clone();
    // Its name in files of before.
    lanes[4]["events"][9]["event"] = json!("hung up");
    run.outcome.lanes.extend(lanes.into_iter().map(|lane| serde_json::from_value(lane).unwrap()));
    run
}

/// The lesson's question names the scene that opens, with its lanes in the order of the text.
#[tokio::test(flavor = "multi_thread")]
async fn asked_scene_plays_first() {
    let run = every_sign();
    let shop = with_run(&run).await;
    let visitor = Visitor::new(&shop);
    let lesson = visitor.get("/lab/lessons/lost-update").await;
    assert!(lesson.text.contains("id=\"guess\" data-scene=\"pair\""));

    for path in [format!("/lab/runs/{ID}"), format!("/lab/runs/{ID}/file")] {
        let page = visitor.get(&path).await;
        let player = page.text.split("class=\"player\"").nth(1).unwrap();
        let player = player.split("</section>").next().unwrap();
        assert!(player.contains("data-scene=\"pair\""), "{path}");
        let names: Vec<&str> = player.split("class=\"name\"").skip(1).collect();
        let names = names.iter().map(|rest| rest.split(['>', '<']).nth(1).unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["A", "B", "C", "Redis"], "{path}");
        assert!(page.text.contains("data-scene=\"more\">\n<h3 id=\"scene-1\">"), "{path}");
        for told in [
            "A</bdi> has lost the lock: its lease of 1,500 ms is over",
            "A</bdi> deletes C’s lock",
            "C</bdi> has lost the lock: A has deleted its key",
            "A</bdi> has asked GET whether the lock is still its own: yes",
            "B</bdi> writes 9, fence 2",
            "B</bdi> is answered 503: The lock was lost",
            "C</bdi> comes too late: its fence 1 is below the row’s 3",
            "C</bdi> has its write rejected: nothing is stored",
            "Redis</bdi> loses all keys and counters (FLUSHALL)",
        ] {
            assert!(player.contains(told), "{told}: {player}");
        }
        for hidden in ["hung up", "releases the lock", "(sku"] {
            assert!(!player.contains(hidden), "{hidden}: {path}");
        }
    }
}

/// Runs a script in the browser until it returns no problem.
async fn measure(browser: &Browser) -> (i64, Value) {
    let script = include_str!("collisions.js");
    let found = browser.driver.execute(script, vec![]).await.unwrap();
    let found = found.json();
    (found[0].as_i64().unwrap(), found[1].clone())
}

/// What is to come is as legible as a note, and every text has the page's typeface.
const LEGIBLE: &str = "
    const root = getComputedStyle(document.documentElement);
    const paper = root.getPropertyValue('--paper');
    const probe = document.createElement('i');
    probe.style.color = paper;
    document.body.append(probe);
    const light = (color) => {
      const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
      const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      const [r, g, b] = parts.map(linear);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(probe).color);
    const contrast = (color) => {
      const both = [light(color), ground].sort((a, b) => a - b);
      return (both[1] + 0.05) / (both[0] + 0.05);
    };
    const slider = document.querySelector('.player input[type=range]');
    slider.value = 1;
    slider.dispatchEvent(new Event('input'));
    const font = getComputedStyle(document.body).fontFamily;
    const problems = [];
    for (const text of document.querySelectorAll('.player .later text')) {
      const style = getComputedStyle(text);
      const opacity = getComputedStyle(text.closest('g')).opacity;
      const isPale = opacity !== '1' || contrast(style.fill) < 4.5;
      if (isPale) problems.push(`pale: ${text.textContent} ${style.fill} ${opacity}`);
    }
    const kinds = ['text', 'button', 'select', 'label', 'li', 'p', 'span'];
    for (const text of document.querySelectorAll(`.player :is(${kinds})`)) {
      const isOther = getComputedStyle(text).fontFamily !== font;
      if (isOther) problems.push(`typeface: ${text.textContent}`);
    }
    probe.remove();
    return [document.querySelectorAll('.player .later text').length, problems];";

/// In both languages, on a phone and on a large screen, at every step: no text of a drawing covers
/// another one or leaves the drawing, and no playhead cuts one.
#[tokio::test(flavor = "multi_thread")]
async fn no_label_collides() {
    let shop = with_run(&every_sign()).await;
    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    for language in ["en", "zh"] {
        browser.go(&format!("/language/{language}?next=/lab/runs/{ID}")).await;
        browser.until_path("/lab/runs/").await;
        // Without a playback; the tabs of the details are shown, each scene is opened.
        browser.prefer("prefers-reduced-motion", "reduce").await;
        browser.find(".player .swimlane[role]").await;
        let open =
            "document.querySelectorAll('.tabs > *').forEach((panel) => { panel.hidden = false; });
            document.querySelectorAll('details').forEach((details) => { details.open = true; });";
        browser.driver.execute(open, vec![]).await.unwrap();
        browser.find("section[data-scene=more] .swimlane[role]").await;

        for width in [320, 390, 1280] {
            browser.resize(width, 900).await;
            let (texts, problems) = measure(&browser).await;
            assert_eq!(problems, json!([]), "{language} at {width}");
            assert!(texts > 500, "{texts} texts were measured");
        }
        for scheme in ["light", "dark"] {
            browser.prefer("prefers-color-scheme", scheme).await;
            let found = browser.driver.execute(LEGIBLE, vec![]).await.unwrap();
            let found = found.json();
            assert_eq!(found[1], json!([]), "{language} in {scheme}");
            assert!(found[0].as_i64().unwrap() > 20, "{found}");
        }
    }
    assert!(!include_str!("../../static/lab.js").contains("sans-serif"), "a chart's typeface");
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}

/// Every mark that is drawn has its words in the legend.
#[tokio::test(flavor = "multi_thread")]
async fn legend_names_every_sign() {
    let shop = with_run(&every_sign()).await;
    let page = Visitor::new(&shop).get(&format!("/lab/runs/{ID}")).await;
    for (name, words) in [
        ("delete", "checks: still its lock"),
        ("expired", "lease over"),
        ("renewed", "lease renewed"),
        ("foreign", "deletes another holder’s lock"),
        ("gone", "lock deleted"),
        ("left", "lock stays"),
        ("lost", "not its lock"),
        ("refused", "write rejected"),
        ("stale", "fence too low"),
        ("stopped", "process stopped"),
        ("killed", "killed"),
        ("disconnected", "response lost"),
        ("replayed", "stored response"),
        ("flushed", "all keys lost"),
        ("cut", "link cut"),
        ("promoted", "promoted"),
        ("removed", "deleted by hand"),
        ("busy", "no lock"),
        ("dot", "another step"),
        ("read", "read"),
        ("commit", "about to commit"),
        ("committed", "commit"),
        ("paused", "pause begins"),
    ] {
        let mark = format!("<use class=\"mark {name}\" href=");
        let sign = format!("</svg>{words}</li>");
        let mut marks = page.text.split(&mark).skip(1);
        let in_legend = marks.any(|rest| {
            let end = rest.find("</svg>").unwrap_or_default();
            rest[end..].starts_with(&sign)
        });
        assert!(in_legend, "{name}");
    }
    for bar in ["unsafe", "behind", "paused"] {
        assert!(page.text.contains(&format!("<li class=\"{bar}\">")), "{bar}");
    }
}

const OUTLIVED: &str = "01a2006d-5253-7170-b37f-df609d0c5d30";
const LOST_UPDATE: &str = "01a2006d-5253-7170-b37f-df609d0c5d31";

async fn with_two_orders() -> TestShop {
    let shop = with_run(&oversold()).await;
    register_runner(&shop).await;
    for run in [
        two_orders("outlived", "two-holders", OUTLIVED),
        two_orders("lost-update", "pair", LOST_UPDATE),
    ] {
        assert!(store::import(&shop.pool.clone().into(), &run).await.unwrap());
    }
    shop
}

/// The picture follows its causes: no loss while the work ends within the lease, or where A writes
/// before B reads. What is no number, or too large, is no error.
#[tokio::test(flavor = "multi_thread")]
async fn picture_is_computed_from_causes() {
    let shop = with_two_orders().await;
    let visitor = Visitor::new(&shop);
    let picture = async |id: &str, query: &str| {
        let page = visitor.get(&format!("/lab/runs/{id}/picture?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.text);
        page.text
    };
    let is_loss = |text: &str| text.contains("class=\"step loss\"");

    let shorter = picture(OUTLIVED, "ttl_ms=200&work_ms=400").await;
    assert!(is_loss(&shorter) && shorter.contains("its lease of 200 ms is over"), "{shorter}");
    let longer = picture(OUTLIVED, "ttl_ms=900&work_ms=200").await;
    assert!(!is_loss(&longer) && !longer.contains("its lease of"), "{longer}");
    let apart = picture(LOST_UPDATE, "gap_ms=0").await;
    assert!(!is_loss(&apart) && apart.contains("stock 10 → 8: nothing is lost."), "{apart}");
    let page = visitor.get(&format!("/lab/runs/{LOST_UPDATE}")).await.words();
    assert!(page.contains("2 sold, stock 10 → 9: a sale is lost."), "{page}");
    let largest = picture(OUTLIVED, "ttl_ms=1000&work_ms=100").await;
    for odd in ["ttl_ms=99999&work_ms=0", "ttl_ms=1000&work_ms=100&work_ms=7&other=%00"] {
        assert_eq!(picture(OUTLIVED, odd).await, largest, "{odd}");
    }
    let recorded = picture(OUTLIVED, "").await;
    assert!(recorded.contains("drag it: the picture follows"), "{recorded}");
    for odd in ["ttl_ms=x&work_ms=", "ttl_ms=-1", "ttl_ms=18446744073709551616", "%"] {
        assert_eq!(picture(OUTLIVED, odd).await, recorded, "{odd}");
    }

    for (path, status) in [("/picture", 404), ("", 200)] {
        let page = visitor.get(&format!("/lab/runs/{ID}{path}")).await;
        assert_eq!(page.status, status, "{path} of a run without causes");
    }
}

/// A cause is moved by keyboard, and by its grip in the drawing; *Run it* starts a run with it.
#[tokio::test(flavor = "multi_thread")]
async fn causes_are_dragged() {
    let shop = with_two_orders().await;
    let file = Visitor::new(&shop).get(&format!("/lab/runs/{OUTLIVED}/file")).await;
    for part in ["class=\"handles", "class=\"grip", "data-ms", "drag it"] {
        assert!(!file.text.contains(part), "a saved run has {part}");
    }

    let browser = Browser::open(&shop.replicas[0].base_url, true).await;
    browser.go(&format!("/lab/runs/{OUTLIVED}")).await;
    browser.find(".player .swimlane[role]").await;
    let lease = browser.find(".handles [name=ttl_ms]").await;
    for _ in 0..5 {
        lease.send_keys(Key::Right).await.unwrap();
    }
    browser.until_text(".handles output", "350 ms").await;
    let shows = async |text: &str| {
        until(text, async || {
            let steps = "return document.querySelector('.player .steps').textContent";
            let steps = browser.driver.execute(steps, vec![]).await.unwrap();
            steps.json().as_str().unwrap().contains(text)
        })
        .await;
    };
    shows("its lease of 350 ms is over").await;
    assert_eq!(lease.attr("aria-valuetext").await.unwrap().as_deref(), Some("350 ms"));
    browser.find(".player .swimlane[role]").await;

    // The fastest of at most fifty: what else the machine does can only delay it.
    let measure = "const [within, done] = arguments;
        const input = document.querySelector('.handles [name=ttl_ms]');
        const times = [];
        const move = () => {
          const began = performance.now();
          document.addEventListener('track', () => {
            times.push(performance.now() - began);
            const fastest = Math.min(...times);
            fastest > within && times.length < 50 ? move() : done(fastest);
          }, { once: true });
          input.value = times.length % 2 ? 240 : 250;
          input.dispatchEvent(new Event('input', { bubbles: true }));
        };
        move();";
    let took = browser.driver.execute_async(measure, vec![json!(100)]).await.unwrap();
    let took = took.json().as_f64().unwrap();
    assert!(took <= 100.0, "the picture takes {took} ms");
    let set = "const input = document.querySelector('.handles [name=ttl_ms]');
        input.value = 240;
        input.dispatchEvent(new Event('input', { bubbles: true }));";
    browser.driver.execute(set, vec![]).await.unwrap();
    shows("its lease of 240 ms is over").await;

    let place = "const grip = document.querySelector('.grip[data-field=work_ms]');
        grip.scrollIntoView({ block: 'center' });
        const box = grip.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2];";
    let place = browser.driver.execute(place, vec![]).await.unwrap();
    let (x, y) = (place.json()[0].as_f64().unwrap(), place.json()[1].as_f64().unwrap());
    for (kind, x) in [("mousePressed", x), ("mouseMoved", x + 60.0), ("mouseReleased", x + 60.0)] {
        let mouse = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
        browser.devtools("Input.dispatchMouseEvent", mouse).await;
    }
    let value = "return +document.querySelector('.handles [name=work_ms]').value";
    let value = browser.driver.execute(value, vec![]).await.unwrap();
    assert!(value.json().as_i64().unwrap() > 350, "{}", value.json());

    browser.driver.execute(axe(), vec![]).await.unwrap();
    assert_eq!(violations(&browser, "run with handles", "en").await, Vec::<String>::new());

    browser.click(".handles button").await;
    browser.until_path("/lab/runs/").await;
    until("a run with the lease is queued", async || {
        let asked = "select count(*) from lab_runs where wanted ->> 'ttl_ms' = '240'";
        shop.number(asked).await == 1
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<Value>::new());
    browser.close().await;
}
