//! Draws a race as a picture: for previews of links, for pages without scripts, and for documents.
//!
//! One template draws all of them. Times are to scale, except that events are moved apart so that
//! their marks do not cover each other.

use std::sync::{Arc, LazyLock};

use askama::Template;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::respond::hash_source;
use crate::lab::race::model::{Race, RaceLane, RaceResult, SOLD, SOLD_OUT};
use crate::messages::Language;
use crate::output::grouped;

const FONT: &[u8] = include_bytes!("../../../static/fonts/inter-semibold-latin.otf");
const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 630;
/// Range of the marks, in pixels.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 960.0;
const LANES_Y: [i32; 2] = [285, 455];
/// Distance between two events.
const MIN_GAP: f64 = 64.0;
/// Part of an animation in which the race plays; the rest shows its end.
const PLAYED: f64 = 0.6;
/// The view of the whole picture, and of the part below its title.
const WHOLE: &str = "viewBox=\"0 0 1200 630\"";
const WITHOUT_TITLE: &str = "viewBox=\"0 150 1200 470\"";
/// A wait shorter than this part of the axis is not drawn.
const MIN_WAIT: i32 = 140;
const CELLS_PER_ROW: usize = 20;
/// The events that the picture shows.
const SHOWN: [&str; 5] = ["sent", "wait", "read", "write", "answered"];

const LIGHT: &str = "svg{font-family:Inter,system-ui,sans-serif;font-weight:600}\
    .paper{fill:#fff}text{fill:#16191a}.quiet{fill:#5b6264}.loss,.result.doubled{fill:#b3121d}\
    .track{stroke:#dfe2de;stroke-width:6}.hold{stroke:#16191a;stroke-width:18;opacity:.25}\
    .wait{stroke:#9a4a00;stroke-width:10;stroke-dasharray:4 16;stroke-linecap:round}\
    .overlap{fill:#b3121d;fill-opacity:.14}.mark circle,.mark rect{fill:#16191a}\
    .mark text{fill:#fff}.cell{fill:#16191a}.cell.doubled{fill:#b3121d}\
    .cell.refused{fill:none;stroke:#5b6264;stroke-width:2}";
const DARK: &str = "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6ecea}\
    .quiet{fill:#9db0ad}.loss,.result.doubled{fill:#ff7b78}.track{stroke:#30363d}\
    .hold{stroke:#e6ecea}.wait{stroke:#ffb454}.overlap{fill:#ff7b78}\
    .mark circle,.mark rect{fill:#e6ecea}.mark text{fill:#0d1117}.cell{fill:#e6ecea}\
    .cell.doubled{fill:#ff7b78}.cell.refused{stroke:#9db0ad}}";

#[derive(Debug, Template)]
#[template(path = "race_picture.svg", escape = "html")]
struct RacePicture {
    /// Style sheet of a document; a picture inside of a page has the page's.
    palette: Option<String>,
    label: String,
    verdict: String,
    is_loss: bool,
    lock: String,
    footer: String,
    is_animated: bool,
    is_crowd: bool,
    cells: Vec<ReceiptCell>,
    lanes: Vec<LanePicture>,
    overlap: Option<Stretch>,
}

#[derive(Debug)]
struct ReceiptCell {
    x: usize,
    y: usize,
    kind: &'static str,
    from: String,
}

#[derive(Debug)]
struct LanePicture {
    name: String,
    replica: String,
    y: i32,
    from: i32,
    wait: Option<Stretch>,
    hold: Option<Stretch>,
    marks: Vec<Mark>,
    result: String,
    kind: &'static str,
    answered: String,
}

/// A part of the time axis.
#[derive(Debug)]
struct Stretch {
    x: i32,
    width: i32,
    from: String,
}

#[derive(Debug)]
struct Mark {
    kind: &'static str,
    name: String,
    value: i64,
    x: i32,
    from: String,
}

/// Positions of times on the axis, in order.
struct Axis(Vec<(u64, f64)>);

impl Axis {
    fn of(result: &RaceResult) -> Self {
        let events = result.lanes.iter().flat_map(|lane| &lane.events);
        let events = events.filter(|event| SHOWN.contains(&event.event.as_str()));
        let mut times: Vec<u64> = events.map(|event| event.t_us).collect();
        times.sort_unstable();
        let span = times.last().copied().unwrap_or(1).max(1) as f64;
        let mut places = Vec::with_capacity(times.len());
        let mut last = f64::MIN;
        for t_us in times {
            let linear = t_us as f64 / span * (RIGHT - LEFT);
            last = linear.max(last + MIN_GAP);
            places.push((t_us, last));
        }
        let (first, end) = (places.first().map_or(0.0, |p| p.1), last.max(1.0));
        let scale = (RIGHT - LEFT) / (end - first).max(1.0);
        Self(places.into_iter().map(|(t, x)| (t, LEFT + (x - first) * scale)).collect())
    }

    fn x(&self, t_us: u64) -> i32 {
        let at = self.0.iter().find(|(time, _)| *time >= t_us).or(self.0.last());
        at.map_or(LEFT, |(_, x)| *x).round() as i32
    }

    /// Returns the time of an animation at which `t_us` is reached, as a part of its duration.
    fn part(&self, t_us: u64) -> String {
        let part = (f64::from(self.x(t_us)) - LEFT) / (RIGHT - LEFT);
        format!("{:.3}", 0.02 + part.clamp(0.0, 1.0) * PLAYED)
    }

    fn stretch(&self, from: Option<u64>, to: Option<u64>) -> Option<Stretch> {
        let (from, to) = (from?, to.filter(|to| Some(*to) > from)?);
        Some(Stretch { x: self.x(from), width: self.x(to) - self.x(from), from: self.part(from) })
    }
}

/// Returns the picture of a race inside of a page, described by `label`; with the figures of the
/// race, unless the page has them.
pub(super) fn inline(race: &Race, label: &str, language: Language, is_titled: bool) -> String {
    let svg = picture(race, label, language, None, false);
    if is_titled { svg } else { svg.replacen(WHOLE, WITHOUT_TITLE, 1) }
}

/// Returns the animated picture as a document with a style of its own.
pub(super) fn animated(race: &Race) -> String {
    let language = Language::English;
    picture(race, &verdict(race, language), language, Some(format!("{LIGHT}{DARK}")), true)
}

/// Returns the content security policy of the animated picture, which admits only its style.
pub(super) fn animated_policy() -> String {
    format!("default-src 'none'; style-src {}", hash_source(&format!("{LIGHT}{DARK}")))
}

/// Returns the picture as PNG; `None` if it cannot be drawn.
pub(super) fn png(race: &Race) -> Option<Vec<u8>> {
    static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(FONT.to_vec());
        Arc::new(fonts)
    });
    let options = Options {
        fontdb: Arc::clone(&FONTS),
        font_family: "Inter".to_owned(),
        ..Options::default()
    };
    // The font has no Chinese characters.
    let svg = picture(race, "", Language::English, Some(LIGHT.to_owned()), false);
    let tree = Tree::from_str(&svg, &options).ok()?;
    let mut pixels = Pixmap::new(WIDTH, HEIGHT)?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().ok()
}

/// Returns the figures of a race that is done: `2 sold · 1 existed`.
pub(super) fn verdict(race: &Race, language: Language) -> String {
    let sold = race.result.as_ref().map_or(0, |result| result.sold);
    let figures = [("sold", sold.into()), ("existed", race.stock.into())];
    language.text_with("race-verdict", &figures)
}

fn picture(
    race: &Race,
    label: &str,
    language: Language,
    palette: Option<String>,
    is_animated: bool,
) -> String {
    let empty = RaceResult::default();
    let result = race.result.as_ref().unwrap_or(&empty);
    let is_crowd = result.lanes.len() != LANES_Y.len();
    let axis = Axis::of(result);
    let lanes =
        result.lanes.iter().zip(LANES_Y).map(|(lane, y)| lane_picture(lane, y, &axis, language));
    let span_us = result.lanes.iter().flat_map(|lane| lane.events.last()).map(|event| event.t_us);
    let ms = span_us.max().unwrap_or(0).div_ceil(1_000);
    let lock = race.lock.as_str();
    let picture = RacePicture {
        palette,
        label: label.to_owned(),
        verdict: verdict(race, language),
        is_loss: result.doubled() > 0,
        lock: if lock == "none" {
            language.text("race-picture-off")
        } else {
            language.text_with("race-picture-lock", &[("lock", lock.into())])
        },
        footer: language.text_with(
            "race-picture-footer",
            &[("orders", result.lanes.len().into()), ("ms", grouped(ms).into())],
        ),
        is_animated,
        is_crowd,
        cells: if is_crowd { cells(result) } else { Vec::new() },
        lanes: if is_crowd { Vec::new() } else { lanes.collect() },
        overlap: overlap(result, &axis).filter(|_| !is_crowd),
    };
    picture.render().unwrap_or_default()
}

/// Returns the time in which both lanes had read a value and neither had written.
fn overlap(result: &RaceResult, axis: &Axis) -> Option<Stretch> {
    let times = |event| result.lanes.iter().map(move |lane| lane.at(event));
    let read = times("read").collect::<Option<Vec<u64>>>()?.into_iter().max();
    let write = times("write").collect::<Option<Vec<u64>>>()?.into_iter().min();
    axis.stretch(read, write)
}

fn lane_picture(lane: &RaceLane, y: i32, axis: &Axis, language: Language) -> LanePicture {
    let mark = |kind, name| {
        let event = lane.event(kind)?;
        let (x, from) = (axis.x(event.t_us), axis.part(event.t_us));
        Some(Mark { kind, name: language.text(name), value: event.value?, x, from })
    };
    let (read, write) = (lane.at("read"), lane.at("write"));
    let result = match lane.result.as_str() {
        SOLD => "race-receipt",
        SOLD_OUT => "race-status-sold-out",
        _ => "race-status-no-answer",
    };
    let answered = lane.at("answered").unwrap_or(0);
    LanePicture {
        name: lane.buyer.clone(),
        replica: language.text_with("race-server", &[("name", lane.replica.as_str().into())]),
        y,
        from: axis.x(lane.at("sent").unwrap_or(0)) - 40,
        wait: axis
            .stretch(lane.at("wait").or(lane.at("sent")), lane.at("held").or(read))
            .filter(|wait| wait.width > MIN_WAIT),
        hold: axis.stretch(read, write),
        marks: [mark("read", "race-entry-read"), mark("write", "race-entry-wrote")]
            .into_iter()
            .flatten()
            .collect(),
        result: language.text(result),
        kind: if lane.result == SOLD { "sold" } else { "refused" },
        answered: axis.part(answered),
    }
}

/// Returns the receipts of a crowd in the order of their writes, then the refusals.
fn cells(result: &RaceResult) -> Vec<ReceiptCell> {
    let doubled: Vec<&str> = result.doubled_lanes().map(|lane| lane.buyer.as_str()).collect();
    let mut lanes: Vec<&RaceLane> = result.lanes.iter().collect();
    lanes.sort_by_key(|lane| lane.at("write").unwrap_or(u64::MAX));
    let count = lanes.len().max(1) as f64;
    let cell = |(number, lane): (usize, &RaceLane)| ReceiptCell {
        x: 60 + number % CELLS_PER_ROW * 54,
        y: 165 + number / CELLS_PER_ROW * 38,
        kind: match lane.result.as_str() {
            SOLD if doubled.contains(&lane.buyer.as_str()) => "doubled",
            SOLD => "sold",
            _ => "refused",
        },
        from: format!("{:.3}", 0.02 + number as f64 / count * PLAYED),
    };
    lanes.into_iter().enumerate().map(cell).collect()
}
