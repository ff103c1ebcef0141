//! QR codes: as text for a terminal, and as a drawing for a page.

use std::fmt::Write as _;

use qrcodegen::{QrCode, QrCodeEcc};

/// Width of the empty border that readers need, in modules.
const BORDER: i32 = 4;
/// Black on white, also where a terminal is white on black; a code with swapped colours is not read
/// by every phone.
const BLACK_ON_WHITE: &str = "\x1b[30;107m";
const RESET: &str = "\x1b[0m";

/// Returns the code of a text that fits, which every address does; medium error correction.
fn encode(text: &str) -> Option<QrCode> {
    QrCode::encode_text(text, QrCodeEcc::Medium).ok()
}

/// Draws a code with two modules above each other in a character.
pub fn for_terminal(text: &str) -> Option<String> {
    let code = encode(text)?;
    let all = -BORDER..code.size() + BORDER;

    let mut lines = String::new();
    for y in all.clone().step_by(2) {
        lines += BLACK_ON_WHITE;
        for x in all.clone() {
            lines.push(match (code.get_module(x, y), code.get_module(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        lines += RESET;
        lines.push('\n');
    }
    Some(lines)
}

/// A code as the path of an SVG: a unit per module.
#[derive(Debug)]
pub struct QrPath {
    /// Side of the drawing, with its border.
    pub side: i32,
    pub path: String,
}

pub fn for_page(text: &str) -> Option<QrPath> {
    let code = encode(text)?;
    let mut path = String::new();
    for y in 0..code.size() {
        for x in (0..code.size()).filter(|x| code.get_module(*x, y)) {
            let _ = write!(path, "M{},{}h1v1h-1z", x + BORDER, y + BORDER);
        }
    }
    Some(QrPath { side: code.size() + 2 * BORDER, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "http://192.168.178.123:8080/join/ABC234";

    /// Returns the dark modules, row by row, with the border.
    fn modules() -> Vec<Vec<bool>> {
        let code = encode(ADDRESS).expect("it fits");
        let all = -BORDER..code.size() + BORDER;
        all.clone().map(|y| all.clone().map(|x| code.get_module(x, y)).collect()).collect()
    }

    #[test]
    fn terminal_shows_every_module() {
        let text = for_terminal(ADDRESS).expect("it fits");
        let mut rows = Vec::new();
        for line in text.lines() {
            let line = line.strip_prefix(BLACK_ON_WHITE).and_then(|l| l.strip_suffix(RESET));
            let line = line.expect("its colours");
            rows.push(line.chars().map(|c| matches!(c, '█' | '▀')).collect::<Vec<_>>());
            rows.push(line.chars().map(|c| matches!(c, '█' | '▄')).collect());
        }
        // The side is odd, and the last line has an empty half.
        assert!(rows.pop().expect("rows").iter().all(|dark| !dark));
        assert_eq!(rows, modules());
        assert!(rows.len() <= 41, "37 columns on 80: {}", rows.len());
    }

    #[test]
    fn drawing_has_every_module() {
        let drawing = for_page(ADDRESS).expect("it fits");
        let side = usize::try_from(drawing.side).expect("a side");
        let mut rows = vec![vec![false; side]; side];
        for module in drawing.path.split('M').skip(1) {
            let (x, rest) = module.split_once(',').expect("x,y");
            let (y, _) = rest.split_once('h').expect("y, then a square");
            rows[y.parse::<usize>().expect("y")][x.parse::<usize>().expect("x")] = true;
        }
        assert_eq!(rows, modules());
    }
}
