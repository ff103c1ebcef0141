//! `holdfast keys`: lists the largest keys, and removes keys on request.
//!
//! Guarantees: only keys are removed that were named, or confirmed by a word typed at a terminal
//! (or by `--yes`), and never the shop's own; of several names, none if a key is absent or the
//! shop's. A key that was found to be big is examined again before it is removed. The result goes
//! to stdout, everything else to stderr. Tests: `tests/it/keys_command.rs`,
//! `keys_confirmation.rs`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_lock::Redis;
use serde::Serialize;

use super::{
    KeyEntry, KeyRemovalMethod, MAX_ELEMENTS, MAX_STRING_BYTES, Removal, SearchOptions,
    SearchResult, find, inspect, key_name, remove,
};
use crate::config::KeysArgs;
use crate::output::{self, ProgressLine, grouped};

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Word that confirms a removal.
const CONFIRMATION: &str = "delete";

#[derive(Default, Serialize)]
struct KeysReport {
    #[serde(flatten)]
    found: Option<SearchResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<Vec<DeletionResult>>,
}

#[derive(Debug, Serialize)]
struct DeletionResult {
    #[serde(flatten)]
    entry: KeyEntry,
    #[serde(flatten)]
    removal: Removal,
}

/// Lists or removes keys; returns whether all that was to be removed is gone.
pub async fn run(redis: &Redis, args: &KeysArgs) -> anyhow::Result<bool> {
    let mut report = KeysReport::default();
    let mut confirmed = true;
    if args.delete_big {
        ensure!(
            args.yes || std::io::stdin().is_terminal(),
            "there is no terminal to ask on before the big keys are removed, so nothing was done; \
             --yes skips the question"
        );
        let found = report.found.insert(list_keys(redis, args).await?);
        confirmed = found.top.is_empty() || args.yes || confirm(found)?;
        let entries = if confirmed { found.top.clone() } else { Vec::new() };
        report.deleted = Some(delete(redis, entries, true).await?);
    } else if args.delete.is_empty() {
        report.found = Some(list_keys(redis, args).await?);
    } else {
        let entries = inspect_named(redis, args).await?;
        report.deleted = Some(delete(redis, entries, false).await?);
    }
    if args.json {
        output::print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else {
        output::print(&report.to_text())?;
    }
    if !confirmed {
        eprintln!("Nothing was removed.");
    }
    let deleted = report.deleted.unwrap_or_default();
    Ok(confirmed && deleted.iter().all(|result| result.removal.left == 0))
}

/// Lists the largest keys; before a removal, only big keys that are not the shop's.
async fn list_keys(redis: &Redis, args: &KeysArgs) -> anyhow::Result<SearchResult> {
    let search = SearchOptions {
        pattern: args.pattern.clone(),
        top: usize::from(args.top),
        only_big: args.delete_big,
        excluded_prefix: args.delete_big.then(|| args.redis_prefix.clone()),
    };
    let mut line = ProgressLine::new(REDRAW_INTERVAL);
    let found = find(redis, &search, |SearchResult { seen, all, big, .. }| {
        line.draw(|| {
            let (seen, all) = (grouped(*seen), grouped(*all));
            format!("{seen} of {all} keys examined, {} big", grouped(*big))
        });
    });
    let found = found.await;
    line.clear();
    found.context("can't examine the keys")
}

/// Returns the keys of `--delete`, all of which exist and may be removed.
async fn inspect_named(redis: &Redis, args: &KeysArgs) -> anyhow::Result<Vec<KeyEntry>> {
    let mut entries: Vec<KeyEntry> = Vec::with_capacity(args.delete.len());
    for text in &args.delete {
        let name = key_name::unescape(text).map_err(anyhow::Error::msg)?;
        let prefix = &args.redis_prefix;
        ensure!(
            !name.starts_with(prefix.as_bytes()),
            "{text} begins with {prefix} and so belongs to the shop: a lock that is removed may be \
             held twice, a token sent twice. Nothing was removed. If the shop's keys begin with \
             something else, name it with --redis-prefix"
        );
        let entry = inspect(redis, &name).await?.with_context(|| {
            format!(
                "there is no key {text} (a name is given whole, as `holdfast keys` prints it). \
                 Nothing was removed"
            )
        })?;
        if entries.iter().all(|other| other.name != entry.name) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Asks for the confirmation. The table goes to stderr, because it is part of the question.
fn confirm(found: &SearchResult) -> anyhow::Result<bool> {
    eprint!(
        "{}\nRemove these {} keys permanently? Type `{CONFIRMATION}` to confirm: ",
        table(found),
        found.top.len()
    );
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if !answer.ends_with('\n') {
        // The input ended without a newline, so the cursor is still behind the question.
        eprintln!();
    }
    read.context("can't read the answer, so nothing was removed")?;
    Ok(answer.trim() == CONFIRMATION)
}

/// Removes keys in turn; with `only_big`, those that are still big.
async fn delete(
    redis: &Redis,
    entries: Vec<KeyEntry>,
    only_big: bool,
) -> anyhow::Result<Vec<DeletionResult>> {
    let mut deleted = Vec::with_capacity(entries.len());
    let mut line = ProgressLine::new(REDRAW_INTERVAL);
    for entry in entries {
        let name = key_name::escape(&entry.name);
        if only_big && !inspect(redis, &entry.name).await?.is_some_and(|now| now.big) {
            eprintln!("holdfast: {name} is no longer big, and stays");
            continue;
        }
        let length = grouped(entry.length.unwrap_or(1));
        let removal = remove(redis, &entry.name, KeyRemovalMethod::Unlink, |removed| {
            line.draw(|| format!("{name}: {} of {length} removed", grouped(removed)));
        });
        let removal = removal.await;
        line.clear();
        let done = deleted.len();
        match removal.with_context(|| format!("{done} removed, then stopped at {name}"))? {
            Some(removal) => deleted.push(DeletionResult { entry, removal }),
            None => eprintln!("holdfast: {name} is already gone"),
        }
    }
    Ok(deleted)
}

impl KeysReport {
    fn to_text(&self) -> String {
        let mut text = self.found.as_ref().map(table).unwrap_or_default();
        for DeletionResult { entry, removal } in self.deleted.iter().flatten() {
            let left = match removal.left {
                0 => String::new(),
                left => format!(
                    "; {} left, because the key is growing: stop its writers",
                    grouped(left)
                ),
            };
            let name = key_name::escape(&entry.name);
            let _ =
                writeln!(text, "removed      {name} ({}, {}){left}", entry.key_type, length(entry));
        }
        text
    }
}

fn table(found: &SearchResult) -> String {
    let mut text = format!("{:>14} {:>14}    {:<8} key\n", "memory", "length", "type");
    for entry in &found.top {
        let memory = entry.memory_bytes.map_or("?".to_owned(), grouped);
        let (mark, length) = (if entry.big { '*' } else { ' ' }, length(entry));
        let (key_type, name) = (&entry.key_type, key_name::escape(&entry.name));
        let _ = writeln!(text, "{memory:>14} {length:>14}  {mark} {key_type:<8} {name}");
    }
    let _ = writeln!(
        text,
        "\n{} of {} keys examined: {} big (* a string of more than {} bytes, or more than {} \
         elements)",
        grouped(found.seen),
        grouped(found.all),
        grouped(found.big),
        grouped(MAX_STRING_BYTES),
        grouped(MAX_ELEMENTS),
    );
    let listed = found.top.iter().filter(|entry| entry.big).count() as u64;
    let unlisted = found.big.saturating_sub(listed).saturating_sub(found.left_out);
    if unlisted > 0 {
        let _ = writeln!(text, "more big keys, not listed (--top): {}", grouped(unlisted));
    }
    if found.left_out > 0 {
        let _ = writeln!(
            text,
            "big keys of the shop itself, never removed: {}",
            grouped(found.left_out)
        );
    }
    text
}

fn length(entry: &KeyEntry) -> String {
    match (entry.key_type.as_str(), entry.length) {
        (_, None) => "?".to_owned(),
        ("string", Some(bytes)) => format!("{} bytes", grouped(bytes)),
        (_, Some(elements)) => grouped(elements),
    }
}
