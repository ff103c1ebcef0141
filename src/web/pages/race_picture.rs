//! Draws a race as a picture with its figures: for previews of links, and for documents.

use askama::Template;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use super::outlined_text::outline_texts;
use super::race_film::{RaceCell, RaceView, server};
use super::respond::hash_source;
use super::timeline::{TimelineView, fade_begin};
use holdfast_base::messages::Language;
use holdfast_lab::race::model::Race;

const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 630;
const CELLS_PER_ROW: usize = 20;

const LIGHT: &str = include_str!("../../../static/race-picture.css");
const DARK: &str = include_str!("../../../static/race-picture-dark.css");

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

/// Returns the animated picture, a document; `None` without a result.
pub(super) fn animated(race: &Race, language: Language) -> Option<String> {
    picture(race, format!("{LIGHT}{DARK}"), true, language)
}

/// Returns the source with which a content security policy admits the animated picture's style.
pub(super) fn animated_style() -> String {
    hash_source(&format!("{LIGHT}{DARK}"))
}

/// Returns the content security policy of the animated picture, which admits only its style.
pub(super) fn animated_policy() -> String {
    format!("default-src 'none'; style-src {}", animated_style())
}

/// Returns the picture for [`png`]; `None` without a result.
pub(super) fn still(race: &Race) -> Option<String> {
    // [`png`] makes groups of that class of its texts. Its font has no Chinese characters.
    picture(race, LIGHT.replace("\ntext{", "\n.text{"), false, Language::English)
}

/// Draws a picture; `None` if it cannot be drawn.
pub(super) fn png(picture: &str) -> Option<Vec<u8>> {
    let tree = Tree::from_str(&outline_texts(picture)?, &Options::default()).ok()?;
    let mut pixels = Pixmap::new(WIDTH, HEIGHT)?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().ok()
}

fn picture(race: &Race, palette: String, is_animated: bool, language: Language) -> Option<String> {
    let view = RaceView::of(race, language)?;
    let mut drawing = view.drawing();

    if let Some(drawing) = drawing.as_mut().filter(|_| is_animated) {
        drawing.is_animated = true;
        // An animation tells who was sold a unit at its end, in the verdict.
        for (lane, order) in drawing.timeline.lanes.iter_mut().zip(&view.result.lanes) {
            lane.replica = server(order, language);
        }
    }

    let picture = RacePicture {
        palette,
        verdict: view.verdict(),
        is_loss: view.is_oversold(),
        lock: match race.lock.as_str() {
            "none" => language.text("race-picture-off"),
            lock => language.text_with("race-picture-lock", &[("lock", lock.into())]),
        },
        footer: view.footer(),
        is_animated,
        drawing,
        cells: view.cells(),
    };

    picture.render().ok()
}
