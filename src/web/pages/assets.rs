//! Style sheets, scripts and the icon: compiled into the binary, served under `/static/`.
//!
//! Pages link to them with a hash of their content, so a browser may cache them for a year and
//! never combines a new page with an old asset. A font, which the style sheet names, has its
//! version in its name instead.

use std::sync::LazyLock;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use crate::web::{HttpResult, Problem};
use holdfast_base::messages::message;

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    hash: String,
    address: String,
}

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        asset!($name, $kind, $name)
    };
    ($name:literal, $kind:expr, $file:literal) => {
        asset($name, $kind, include_bytes!(concat!("../../../static/", $file)))
    };
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const FONT: &str = "font/woff2";
const PNG: &str = "image/png";

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    vec![
        asset!("charts.js", JAVASCRIPT),
        asset!("class.css", CSS),
        asset!("handles.js", JAVASCRIPT),
        asset!("holdfast.css", CSS),
        asset!("holdfast.js", JAVASCRIPT),
        asset!("holdfast.svg", "image/svg+xml"),
        asset!("inter-4.0-regular.woff2", FONT, "fonts/inter-4.0-regular.woff2"),
        asset!("inter-4.0-semibold.woff2", FONT, "fonts/inter-4.0-semibold.woff2"),
        asset!("judged.css", CSS),
        asset!("judged.js", JAVASCRIPT),
        asset!("lab.css", CSS),
        asset!("lab.js", JAVASCRIPT),
        asset!("postgres-worker.js", JAVASCRIPT),
        asset!("present.css", CSS),
        asset!("race-preview-once-en.png", PNG, "race-preview/once-en.png"),
        asset!("race-preview-once-zh.png", PNG, "race-preview/once-zh.png"),
        asset!("race-preview-twice-en.png", PNG, "race-preview/twice-en.png"),
        asset!("race-preview-twice-zh.png", PNG, "race-preview/twice-zh.png"),
        asset!("race.css", CSS),
        asset!("race.js", JAVASCRIPT),
        asset!("scheduler-postgres.js", JAVASCRIPT),
        asset!("scheduler.css", CSS),
        asset!("scheduler.js", JAVASCRIPT),
        asset!("service.css", CSS),
        asset!("site.css", CSS),
        asset!("swimlane.css", CSS),
        asset!("swimlane.js", JAVASCRIPT),
        asset!("tabs.js", JAVASCRIPT),
        asset!("uplot.css", CSS, "vendor/uPlot-1.6.32.min.css"),
        asset!("uplot.js", JAVASCRIPT, "vendor/uPlot-1.6.32.iife.min.js"),
        asset!("which-lock.js", JAVASCRIPT),
    ]
});

fn asset(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Asset {
    let hash: String =
        Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let address = format!("/static/{name}?v={hash}");
    Asset { name, kind, bytes, hash, address }
}

/// Returns an asset's address with its hash; empty if the name is unknown.
pub fn address(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| &asset.address)
}

/// Returns the names and contents of all assets.
pub(in crate::web) fn all() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    ASSETS.iter().map(|asset| (asset.name, asset.bytes))
}

pub(crate) async fn serve(request: HttpRequest, name: Path<String>) -> HttpResult {
    let unknown = || Problem::missing(message!("problem-missing-asset", name));
    let asset = ASSETS.iter().find(|asset| asset.name == *name).ok_or_else(unknown)?;
    let has_hash = request.query_string() == format!("v={}", asset.hash);
    let keep = if has_hash || asset.kind == FONT {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut response = HttpResponse::Ok();
    response.insert_header((CACHE_CONTROL, keep)).insert_header((CONTENT_TYPE, asset.kind));
    Ok(response.body(asset.bytes))
}
