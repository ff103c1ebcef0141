//! The format of a line (`HOLDFAST_LOG_FORMAT`): text, or one JSON object.

use std::env;
use std::sync::LazyLock;

use anyhow::bail;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::Level;

const FORMAT: &str = "HOLDFAST_LOG_FORMAT";
const TARGET: &str = "holdfast";

/// Reads the format of the log.
pub fn format_is_json() -> anyhow::Result<bool> {
    let format = env::var_os(FORMAT).unwrap_or_default();
    match format.to_string_lossy().trim() {
        "" | "text" => Ok(false),
        "json" => Ok(true),
        other => bail!("{FORMAT} is “{other}”; it can be text or json"),
    }
}

/// Returns whether the lines of this process are JSON. An invalid setting is reported as text.
pub fn is_json() -> bool {
    static IS_JSON: LazyLock<bool> = LazyLock::new(|| format_is_json().unwrap_or(false));
    *IS_JSON
}

/// Formats a line as the log formats its own.
pub(super) fn format_line(level: Level, message: &str) -> String {
    // Fails for a year of more than four digits.
    let timestamp = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
    if is_json() {
        let line = json!({
            "timestamp": timestamp,
            "level": level.as_str(),
            "target": TARGET,
            "message": message,
        });
        return format!("{line}\n");
    }
    format!("{timestamp} {level:>5} {TARGET}: {message}\n")
}
