//! The format of the log's lines: text, or one JSON object per line.

use std::sync::LazyLock;

use anyhow::bail;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::Level;

use super::variable;

const FORMAT: &str = "HOLDFAST_LOG_FORMAT";
/// Target of the lines that are not events of `tracing`.
const TARGET: &str = "holdfast";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Text,
    Json,
}

impl LineFormat {
    pub(super) fn from_environment() -> anyhow::Result<Self> {
        match variable(FORMAT)?.as_deref() {
            None | Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some(other) => bail!("{FORMAT} is “{other}”; it can be text or json"),
        }
    }
}

/// Returns whether the lines of this process are JSON. An invalid setting is reported as text.
pub fn is_json() -> bool {
    static IS_JSON: LazyLock<bool> =
        LazyLock::new(|| LineFormat::from_environment().is_ok_and(|it| it == LineFormat::Json));
    *IS_JSON
}

/// Formats a line that is not an event of `tracing`, as the log formats those.
pub(super) fn format_line(level: Level, message: &str) -> String {
    let now = OffsetDateTime::now_utc();
    // Fails for a year of more than four digits.
    let timestamp = now.format(&Rfc3339).unwrap_or_default();
    if is_json() {
        let (level, target) = (level.as_str(), TARGET);
        let line =
            json!({ "timestamp": timestamp, "level": level, "target": target, "message": message });
        return format!("{line}\n");
    }
    format!("{timestamp} {level:>5} {TARGET}: {message}\n")
}
