//! Draws a race as a picture with its figures: for previews of links, and for documents.

use std::sync::{Arc, LazyLock};

use askama::Template;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::race_film::{RaceCell, cells, server, timeline, verdict};
use super::respond::hash_source;
use super::timeline::{TimelineView, fade_begin};
use crate::lab::race::model::{Race, RaceResult};
use crate::messages::Language;
use crate::output::grouped;

const FONT: &[u8] = include_bytes!("../../../static/fonts/inter-semibold-latin.otf");
const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 630;
const CELLS_PER_ROW: usize = 20;

const LIGHT: &str = "svg{font-family:Inter,system-ui,sans-serif;font-weight:600}\
    .paper{fill:#fff}text{fill:#16191a}.quiet,.replica{fill:#5b6264}\
    .loss,.loss .label,.overlap-label{fill:#b3121d}.name,.label,.overlap-label{font-size:14px}\
    .overlap-label{text-anchor:middle}.label.end{text-anchor:end}.label.narrow{display:none}\
    .rule{stroke:#dfe2de}.overlap{fill:#b3121d;fill-opacity:.14}.activity.idle{fill:#dfe2de}\
    .activity.waiting{fill:none;stroke:#9a4a00;stroke-width:2;stroke-dasharray:4 3}\
    .activity.lock{fill:#0f6b64}.activity.working{fill:#5b6264;fill-opacity:.35}\
    .mark{fill:#fff;stroke:#16191a;stroke-width:2}.mark.write{fill:#16191a}\
    .mark.held,.mark.release{stroke:#0f6b64}.loss .mark{fill:#b3121d;stroke:#b3121d}\
    .cell{fill:#16191a}.cell.doubled{fill:#b3121d}\
    .cell.refused{fill:none;stroke:#5b6264;stroke-width:2}";
const DARK: &str = "@media (prefers-color-scheme:dark){.paper,.mark{fill:#0d1117}\
    text,.cell,.mark.write{fill:#e6ecea}.mark{stroke:#e6ecea}.quiet,.replica{fill:#9db0ad}\
    .loss,.loss .label,.overlap-label,.overlap,.cell.doubled,.loss .mark{fill:#ff7b78}\
    .rule{stroke:#30363d}.loss .mark{stroke:#ff7b78}.activity.idle{fill:#30363d}\
    .activity.lock{fill:#4fd1c5}\
    .activity.waiting{stroke:#ffb454}.mark.held,.mark.release{stroke:#4fd1c5}\
    .cell.refused{fill:none;stroke:#9db0ad}}";

#[derive(Debug, Template)]
#[template(path = "race_picture.svg", escape = "html")]
struct RacePicture {
    palette: String,
    verdict: String,
    is_loss: bool,
    lock: String,
    footer: String,
    is_animated: bool,
    /// The timeline of two orders; else the receipts of a crowd.
    drawing: Option<TimelineView>,
    cells: Vec<RaceCell>,
}

/// Returns the animated picture as a document with a style of its own.
pub(super) fn animated(race: &Race) -> String {
    picture(race, format!("{LIGHT}{DARK}"), true)
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
    let tree = Tree::from_str(&picture(race, LIGHT.to_owned(), false), &options).ok()?;
    let mut pixels = Pixmap::new(WIDTH, HEIGHT)?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().ok()
}

/// Returns the line below a picture: `2 real orders in 59 ms · Holdfast`.
pub(super) fn footer(result: &RaceResult, language: Language) -> String {
    let last = result.lanes.iter().filter_map(|lane| lane.events.last());
    let ms = last.map(|event| event.t_us).max().unwrap_or(0).div_ceil(1_000);
    let figures = [("orders", result.lanes.len().into()), ("ms", grouped(ms).into())];
    language.text_with("race-picture-footer", &figures)
}

fn picture(race: &Race, palette: String, is_animated: bool) -> String {
    // The font has no Chinese characters.
    let language = Language::English;
    let empty = RaceResult::default();
    let result = race.result.as_ref().unwrap_or(&empty);
    let is_duel = result.lanes.len() == 2;
    let draw = || {
        let mut timeline = timeline(race, result, language);
        if is_animated {
            // An animation tells who was sold a unit at its end, in the verdict.
            for (lane, order) in timeline.lanes.iter_mut().zip(&result.lanes) {
                lane.replica = server(order, language);
            }
        }
        let mut view = TimelineView::fitting(timeline, language);
        view.is_animated = is_animated;
        view
    };
    let lock = race.lock.as_str();
    let picture = RacePicture {
        palette,
        verdict: verdict(race, language),
        is_loss: result.doubled() > 0,
        lock: if lock == "none" {
            language.text("race-picture-off")
        } else {
            language.text_with("race-picture-lock", &[("lock", lock.into())])
        },
        footer: footer(result, language),
        is_animated,
        drawing: is_duel.then(draw),
        cells: if is_duel { Vec::new() } else { cells(race, result, language) },
    };
    picture.render().unwrap_or_default()
}
