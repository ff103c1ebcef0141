//! Logs on stderr, and spans for both the logs and the export of traces.
//!
//! Spans that identify a request, a batch or a job run are of level `error`, so that each filter
//! that shows a line also shows its span. Spans of the steps of a command are of level `debug`:
//! without an exporter they are disabled, and cost one comparison.
//! Tests: `tests/it/logs.rs`, `tests/it/log_reader.rs`, `tests/it/traces.rs`.

mod otlp;
mod otlp_client;
pub mod process;
mod variable;

use std::io::IsTerminal as _;

use anyhow::{Context as _, bail};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use holdfast_base::output::{LineWriter, format_is_json};

use self::variable::variable;

pub use otlp::{TraceExporter, continue_trace, describe_response, is_exporting};

const FILTER: &str = "HOLDFAST_LOG";
const DEFAULT_FILTER: &str = "holdfast=info,warn";
/// Precedes every filter, which may override it: actix logs an error for every connection with a
/// malformed request, and any client can send any number of those.
const FILTER_PREFIX: &str = "actix_http::h1=off";

pub fn start(exporter: Option<&TraceExporter>) -> anyhow::Result<()> {
    let filter = parse_filter(variable(FILTER)?.as_deref().unwrap_or(DEFAULT_FILTER))?;

    // By default a failed write to stderr is reported on stderr, which panics.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| LineWriter)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let lines = match format_is_json()? {
        false => lines.boxed(),
        true => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };

    let traces = exporter.map(TraceExporter::layer);
    tracing_subscriber::registry().with(traces).with(lines.with_filter(filter)).try_init()?;
    Ok(())
}

/// Parses levels and `TARGET=LEVEL`, separated by commas; of several that match, the one with the
/// longest target applies.
fn parse_filter(filter: &str) -> anyhow::Result<Targets> {
    let example = || format!("{FILTER} is “{filter}”; it can be a filter such as {DEFAULT_FILTER}");

    let mut directives = vec![FILTER_PREFIX];
    for directive in filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        check_directive(directive).with_context(example)?;
        directives.push(directive);
    }

    directives.join(",").parse::<Targets>().with_context(example)
}

/// Refuses what the parser would take for the name of a module, of which it then logs all.
fn check_directive(directive: &str) -> anyhow::Result<()> {
    let is_understood = match directive.split_once('=') {
        Some((target, level)) => {
            !target.is_empty() && !level.is_empty() && level.parse::<LevelFilter>().is_ok()
        }
        None => directive.parse::<LevelFilter>().is_ok(),
    };
    if !is_understood || directive.contains(['[', ' ']) {
        bail!(
            "“{directive}” is neither a level (off, error, warn, info, debug, trace) nor \
             TARGET=LEVEL"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn misspelt_level_is_an_error() {
        for filter in
            ["inof", "holdfast=inof", "holdfast=info,wran", "holdfast=info,=", "holdfast=", "a b"]
        {
            let error = parse_filter(filter).expect_err(filter);
            assert!(format!("{error:#}").contains(filter), "{error:#}");
        }
        for filter in ["info", "OFF", "holdfast=debug,warn", "info, holdfast::web=trace", "info,"] {
            parse_filter(filter).expect(filter);
        }
    }

    #[test]
    fn spans_in_filters_are_refused() {
        for filter in ["holdfast[request]=trace", "holdfast[{user}]=trace"] {
            parse_filter(filter).expect_err(filter);
        }
    }

    #[test]
    fn longest_target_decides() {
        let filter = parse_filter("holdfast::web=debug,holdfast=warn,error").expect("a filter");
        let logs = |target, level| filter.would_enable(target, &level);
        assert!(logs("holdfast::web::api", Level::DEBUG) && !logs("holdfast::db", Level::INFO));
        assert!(logs("mio::poll", Level::ERROR) && !logs("mio::poll", Level::WARN));
        assert!(!logs("actix_http::h1::dispatcher", Level::ERROR));

        let filter = parse_filter("trace,actix_http::h1=error").expect("a filter");
        assert!(filter.would_enable("actix_http::h1", &Level::ERROR));
    }
}
