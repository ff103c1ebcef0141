//! `holdfast keys`: lists the largest keys, and removes keys on request.
//!
//! Guarantees: only keys are removed that were named, or confirmed by a word typed at a terminal
//! (or by `--yes`); of several names, none if a key is absent or protected. The shop's own keys
//! stay unless `--force` is set. A key that was found to be big is examined again before it is
//! removed. The result goes to stdout, everything else to stderr. Tests:
//! `tests/it/keys_command.rs`, `keys_confirmation.rs`.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use holdfast_lock::Redis;
use serde::Serialize;
use tokio::time::Instant;

use super::{
    BigKeyThreshold, KeyEntry, KeyRemovalMethod, Removal, SearchOptions, SearchResult, find,
    format, inspect, key_name, remove,
};
use crate::output;
use crate::shop::types::grouped;

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Word that confirms a removal.
const CONFIRMATION: &str = "delete";

#[derive(Debug, Clone)]
pub struct KeysOptions {
    pub pattern: String,
    pub top: usize,
    /// True: the largest by memory; false: by elements.
    pub by_memory: bool,
    pub big: BigKeyThreshold,
    pub delete: DeleteTarget,
    pub with: KeyRemovalMethod,
    /// Prefix of the shop's own keys.
    pub prefix: String,
    /// True if the shop's own keys may be deleted.
    pub force: bool,
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteTarget {
    Nothing,
    /// Names as [`key_name::escape`] formats them.
    Named(Vec<String>),
    /// The big keys that are listed; `is_confirmed`: without asking for a confirmation.
    Big {
        is_confirmed: bool,
    },
}

#[derive(Serialize)]
struct KeysReport<'a> {
    #[serde(flatten)]
    found: Option<&'a SearchResult>,
    big_is_more_than: BigKeyThreshold,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<&'a [DeletionResult]>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeletionResult {
    #[serde(flatten)]
    pub(super) entry: KeyEntry,
    /// `None` if the key was skipped: it was absent, of another type, or no longer big.
    #[serde(flatten)]
    pub(super) removal: Option<Removal>,
}

/// Lists or removes keys; returns whether all that was to be removed is gone.
pub async fn run(redis: &Redis, options: &KeysOptions) -> anyhow::Result<bool> {
    match &options.delete {
        DeleteTarget::Nothing => {
            let found = list_keys(redis, options, false).await?;
            report(options, Some(&found), None)?;
            Ok(true)
        }
        DeleteTarget::Named(names) => {
            let entries = inspect_named(redis, options, names).await?;
            let deleted = delete(redis, options, entries, false).await?;
            report(options, None, Some(&deleted))?;
            Ok(is_all_gone(&deleted))
        }
        DeleteTarget::Big { is_confirmed } => {
            ensure!(
                *is_confirmed || std::io::stdin().is_terminal(),
                "there is no terminal to ask on before the big keys are removed, so nothing was \
                 done; --yes says that nobody needs to be asked"
            );
            let found = list_keys(redis, options, true).await?;
            let confirmed = found.top.is_empty() || *is_confirmed || confirm(options, &found)?;
            let entries = if confirmed { found.top.clone() } else { Vec::new() };
            let deleted = delete(redis, options, entries, true).await?;
            report(options, Some(&found), Some(&deleted))?;
            if !confirmed {
                eprintln!("Nothing was removed.");
            }
            Ok(confirmed && is_all_gone(&deleted))
        }
    }
}

async fn list_keys(
    redis: &Redis,
    options: &KeysOptions,
    only_big: bool,
) -> anyhow::Result<SearchResult> {
    let search = SearchOptions {
        pattern: options.pattern.clone(),
        top: options.top,
        by_memory: options.by_memory,
        big: options.big,
        only_big,
        excluded_prefix: (only_big && !options.force).then(|| options.prefix.clone()),
    };
    let mut line = ProgressLine::new();
    let found = find(redis, &search, |result| line.draw(|| format::search_progress(result))).await;
    line.clear();
    let found = found.context("can't look at the keys")?;
    if let Some(why) = found.no_memory.as_ref().filter(|_| options.by_memory) {
        eprintln!(
            "holdfast: this Redis does not tell how much memory a key takes ({why}); the largest \
             by elements are listed instead"
        );
    }
    Ok(found)
}

/// Returns the keys of these names, all of which exist and may be removed.
async fn inspect_named(
    redis: &Redis,
    options: &KeysOptions,
    names: &[String],
) -> anyhow::Result<Vec<KeyEntry>> {
    let mut entries: Vec<KeyEntry> = Vec::with_capacity(names.len());
    for text in names {
        let bytes = key_name::unescape(text).map_err(anyhow::Error::msg)?;
        if belongs_to_shop(options, &bytes) && !options.force {
            bail!(
                "{text} begins with {} and so belongs to the shop: a lock that is removed may be \
                 held twice, a token sent twice. Nothing was removed. If that is meant, say \
                 --force; if it is another shop's, say what this one's keys begin with: \
                 --redis-prefix",
                options.prefix
            );
        }
        match inspect(redis, &bytes, options.big).await? {
            Some(entry) if entries.iter().any(|other| other.name == entry.name) => {}
            Some(entry) => entries.push(entry),
            None => bail!(
                "there is no key {text} (a name is given whole, and as `holdfast keys` prints it). \
                 Nothing was removed"
            ),
        }
    }
    Ok(entries)
}

fn belongs_to_shop(options: &KeysOptions, name: &[u8]) -> bool {
    name.starts_with(options.prefix.as_bytes())
}

/// Asks for the confirmation. The table goes to stderr, because it is part of the question.
fn confirm(options: &KeysOptions, found: &SearchResult) -> anyhow::Result<bool> {
    let count = found.top.len();
    eprint!("{}", format::table(found, options.big));
    eprint!(
        "\nRemove {}, for good? Type `{CONFIRMATION}`, anything else leaves {}: ",
        if count == 1 { "this key".to_owned() } else { format!("these {count} keys") },
        if count == 1 { "it" } else { "them" },
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if !answer.ends_with('\n') {
        // The input ended without a newline, so the cursor is still behind the question.
        eprintln!();
    }
    read.context("can't read the answer, so nothing was removed")?;
    Ok(answer.trim() == CONFIRMATION)
}

/// Removes keys in turn; `still_big`: only keys that are still big.
async fn delete(
    redis: &Redis,
    options: &KeysOptions,
    entries: Vec<KeyEntry>,
    still_big: bool,
) -> anyhow::Result<Vec<DeletionResult>> {
    let mut deleted = Vec::with_capacity(entries.len());
    let mut line = ProgressLine::new();
    for entry in entries {
        let name = key_name::escape(&entry.name);
        if still_big {
            let now = inspect(redis, &entry.name, options.big).await?;
            if now.is_none_or(|now| !now.big || now.kind != entry.kind) {
                eprintln!("holdfast: {name} is no longer what it was, and was left alone");
                deleted.push(DeletionResult { entry, removal: None });
                continue;
            }
        }
        if belongs_to_shop(options, &entry.name) {
            eprintln!("holdfast: {name} belongs to the shop; it goes because of --force");
        }
        let (length, done) = (entry.length.unwrap_or(1), deleted.len());
        let text = |removed| format::removal_progress(&name, removed, length);
        let removal =
            remove(redis, &entry.name, options.with, |removed| line.draw(|| text(removed)));
        let removal = removal.await;
        line.clear();
        let removal = removal.with_context(|| format!("{done} removed, then stopped at {name}"))?;
        if let Some(removal) = &removal {
            warn(&name, removal);
        }
        deleted.push(DeletionResult { entry, removal });
    }
    Ok(deleted)
}

fn warn(name: &str, removal: &Removal) {
    if removal.unlink_refused {
        eprintln!("holdfast: this Redis refuses UNLINK; {name} was removed in batches");
    }
    if removal.left > 0 {
        eprintln!(
            "holdfast: {name} still has {}: it grows while it is removed. Stop whoever writes to \
             it, or remove it at once, --with unlink",
            grouped(removal.left)
        );
    }
}

/// Returns whether no removal left elements; skipped keys count as gone.
fn is_all_gone(deleted: &[DeletionResult]) -> bool {
    deleted.iter().all(|result| result.removal.as_ref().is_none_or(|removal| removal.left == 0))
}

fn report(
    options: &KeysOptions,
    found: Option<&SearchResult>,
    deleted: Option<&[DeletionResult]>,
) -> anyhow::Result<()> {
    let text = if options.json {
        let report = KeysReport { found, big_is_more_than: options.big, deleted };
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        let found = found.map(|found| format::table(found, options.big)).unwrap_or_default();
        let deleted = deleted.map(format::deleted).unwrap_or_default();
        match (found.is_empty(), deleted.is_empty()) {
            (false, false) => format!("{found}\n{deleted}"),
            _ => found + &deleted,
        }
    };
    Ok(output::print(&text)?)
}

/// A progress line on stderr, if stderr is a terminal.
struct ProgressLine {
    is_terminal: bool,
    drawn_at: Option<Instant>,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), drawn_at: None }
    }

    fn draw(&mut self, text: impl FnOnce() -> String) {
        if self.is_terminal
            && self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() > REDRAW_INTERVAL)
        {
            self.drawn_at = Some(Instant::now());
            eprint!("\r\x1b[K{}", text());
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&mut self) {
        if self.drawn_at.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
