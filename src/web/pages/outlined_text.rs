//! Replaces the texts of a picture by the outlines of their letters, so that drawing it needs no
//! engine for fonts, which would cost a tenth of the program's build.
//!
//! Texts are Latin, in one font, with the attributes that `race_picture.svg` and `timeline.html`
//! use; letters keep their distance (no kerning).

use std::fmt::Write as _;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

const FONT: &[u8] = include_bytes!("../../../static/fonts/inter-semibold-latin.otf");
/// Of texts without the attribute, as in `race-picture.css`.
const FONT_SIZE: f32 = 14.0;

/// Returns the picture with a group of the class `text` for each text; `None` if a text has another
/// form.
pub(super) fn outline_texts(picture: &str) -> Option<String> {
    let font = Face::parse(FONT, 0).ok()?;
    let mut outlined = String::with_capacity(4 * picture.len());
    let mut rest = picture;
    while let Some((before, text)) = rest.split_once("<text ") {
        let (text, after) = text.split_once("</text>")?;
        outlined.push_str(before);
        write_text(&mut outlined, &font, text)?;
        rest = after;
    }
    outlined.push_str(rest);
    Some(outlined)
}

/// Writes a text, of which a last part may stand in a `tspan`.
fn write_text(out: &mut String, font: &Face<'_>, text: &str) -> Option<()> {
    let (attributes, content) = text.split_once('>')?;
    let size = attribute(attributes, "font-size").and_then(|size| size.parse().ok());
    let scale = size.unwrap_or(FONT_SIZE) / f32::from(font.units_per_em());
    let class = attribute(attributes, "class").unwrap_or_default();

    let mut line = Line { font, path: String::new(), pen: 0.0 };
    let mut paths = String::new();
    let (content, span) = match content.split_once("<tspan ") {
        Some((content, span)) => (content, Some(span.split_once('>')?)),
        None => (content, None),
    };
    write!(paths, r#"<path d="{}"/>"#, line.outline(content)).ok()?;
    if let Some((attributes, content)) = span {
        let distance: f32 = attribute(attributes, "dx").unwrap_or("0").parse().ok()?;
        line.pen += distance / scale;
        let class = attribute(attributes, "class").unwrap_or_default();
        let path = line.outline(content.strip_suffix("</tspan>")?);
        write!(paths, r#"<path class="{class}" d="{path}"/>"#).ok()?;
    }

    let is_of = |kind: &str| class.split(' ').any(|class| class == kind);
    let anchor = attribute(attributes, "text-anchor").unwrap_or_default();
    let shift = match () {
        () if anchor == "end" || is_of("end") => -line.pen * scale,
        () if is_of("overlap-label") => -line.pen * scale / 2.0,
        () => 0.0,
    };
    // The inner picture takes a place in percent, which a transformation does not.
    let (x, y) = (attribute(attributes, "x")?, attribute(attributes, "y")?);
    write!(
        out,
        r#"<svg x="{x}" y="{y}" overflow="visible"><g class="text {class}" transform="translate({shift} 0) scale({scale} -{scale})">{paths}</g></svg>"#
    )
    .ok()
}

fn attribute<'t>(attributes: &'t str, name: &str) -> Option<&'t str> {
    let mut parts = attributes.split('"');
    while let (Some(before), Some(value)) = (parts.next(), parts.next()) {
        if before.trim().strip_suffix('=') == Some(name) {
            return Some(value);
        }
    }
    None
}

/// Replaces what askama escapes: `&#38;`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split("&#");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, after) = part.split_once(';').unwrap_or(("", part));
        plain.extend(code.parse().ok().and_then(char::from_u32));
        plain.push_str(after);
    }
    plain
}

/// Letters beside each other, in the units of the font.
struct Line<'f> {
    font: &'f Face<'f>,
    path: String,
    pen: f32,
}

impl Line<'_> {
    /// Returns the path of a text at the pen, which then stands behind it.
    fn outline(&mut self, text: &str) -> String {
        for letter in unescaped(text).chars() {
            // Glyph 0 is the box of a letter that the font does not have.
            let glyph = self.font.glyph_index(letter).unwrap_or(GlyphId(0));
            self.font.outline_glyph(glyph, self);
            self.pen += f32::from(self.font.glyph_hor_advance(glyph).unwrap_or_default());
        }
        std::mem::take(&mut self.path)
    }

    fn step(&mut self, command: char, points: &[(f32, f32)]) {
        self.path.push(command);
        for (x, y) in points {
            // Writing to a string does not fail.
            let _ = write!(self.path, "{} {y} ", x + self.pen);
        }
    }
}

impl OutlineBuilder for Line<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.step('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.step('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.step('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.step('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.step('Z', &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_outlines_at_their_places() {
        let text = r#"<g><text class="name" x="2" y="5%">Tea &#38; I<tspan class="replica" dx="8">at 2</tspan></text></g>"#;
        let outlined = outline_texts(text).unwrap();
        assert!(outlined.starts_with(r#"<g><svg x="2" y="5%" "#), "{outlined}");
        assert!(
            outlined.contains(r#"<g class="text name" transform="translate(0 0)"#),
            "{outlined}"
        );
        assert!(outlined.contains(r#"<path class="replica" d="M"#), "{outlined}");
        assert!(outlined.ends_with("</g></svg></g>") && !outlined.contains("<text"), "{outlined}");
        assert_eq!(unescaped("Tea &#38; I"), "Tea & I");
    }

    #[test]
    fn end_of_text_is_at_its_place_if_anchored_there() {
        let text = r#"<text x="9" y="9" font-size="40" text-anchor="end">I</text>"#;
        let font = Face::parse(FONT, 0).unwrap();
        let glyph = font.glyph_index('I').unwrap();
        let scale = 40.0 / f32::from(font.units_per_em());
        let shift = f32::from(font.glyph_hor_advance(glyph).unwrap()) * scale;
        let outlined = outline_texts(text).unwrap();
        assert!(outlined.contains(&format!("translate(-{shift} 0)")), "{outlined}");
    }
}
