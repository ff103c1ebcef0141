//! Checks the tables of `docs/CONFIGURATION.md` against the command line: every flag of every
//! command with its variable, its default, and the first sentence of its help.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use holdfast::commands::Cli;

const DOCUMENT: &str = include_str!("../../docs/CONFIGURATION.md");

/// A row of a table: its cells by the name of their column.
type DocumentRow = BTreeMap<String, String>;

/// Returns the rows of the tables below `## holdfast NAME`, by flag.
fn documented(command: &str) -> BTreeMap<String, DocumentRow> {
    let heading = format!("## `holdfast {command}`\n");
    let section = DOCUMENT.split_once(&heading).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut columns = Vec::new();
    let mut rows = BTreeMap::new();
    for line in section.lines() {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            columns.clear();
            continue;
        };
        let cells: Vec<String> = cells.split('|').map(plain).collect();
        if columns.is_empty() {
            columns = cells;
            continue;
        }
        let first = cells[0].split(", ").next().and_then(|cell| cell.strip_prefix("--"));
        if let Some(flag) = first.filter(|flag| !flag.starts_with('-')) {
            let row = columns.iter().cloned().zip(cells.iter().cloned()).collect();
            assert!(rows.insert(flag.to_owned(), row).is_none(), "{command}: --{flag} twice");
        }
    }
    rows
}

/// Removes Markdown's code marks and the commas between thousands.
fn plain(text: &str) -> String {
    let text = text.replace('`', "");
    let is_separator = |at: usize| {
        let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3)
    };
    let kept = text.char_indices().filter(|(at, c)| *c != ',' || !is_separator(*at));
    kept.map(|(_, c)| c).collect::<String>().trim().to_owned()
}

/// Splits the help of a flag into its first sentence, up to a colon, and its `[default: …]`.
fn help(arg: &Arg) -> (String, Option<String>) {
    let help = plain(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let (text, default) = match help.split_once(" [default: ") {
        Some((text, default)) => (text, default.strip_suffix(']').map(str::to_owned)),
        None => (help.as_str(), None),
    };
    let sentence = text.split(". ").next().and_then(|sentence| sentence.split(": ").next());
    (sentence.unwrap_or_default().to_lowercase(), default)
}

fn default(arg: &Arg, in_help: Option<String>) -> String {
    let values: Vec<&str> =
        arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    match arg.get_action() {
        ArgAction::SetTrue => "off".to_owned(),
        _ if !values.is_empty() => values.join(","),
        _ if arg.is_required_set() => "required".to_owned(),
        _ => in_help.unwrap_or_default(),
    }
}

fn check(name: &str, command: &Command) {
    let mut rows = documented(name);
    for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
        let flag = arg.get_long().unwrap_or_default();
        if matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong) {
            continue;
        }
        let Some(row) = rows.remove(flag) else {
            // One that `up` passes to its replicas is not for users.
            assert!(arg.is_hide_set(), "{name}: no row for --{flag}");
            continue;
        };
        let cell = |column: &str| row.get(column).map_or("", String::as_str);
        let (sentence, in_help) = help(arg);
        let variable = arg.get_env().and_then(OsStr::to_str).unwrap_or_default();
        assert_eq!(cell("variable"), variable, "{name} --{flag}");
        assert_eq!(cell("default"), default(arg, in_help), "{name} --{flag}");
        let meaning = cell("meaning").to_lowercase();
        assert!(meaning.starts_with(&sentence), "{name} --{flag}: “{meaning}”, not “{sentence}”");
    }
    assert!(rows.is_empty(), "{name} has no {:?}", rows.keys());
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        check(format!("{name} {}", subcommand.get_name()).trim(), subcommand);
    }
}

#[test]
fn documentation_lists_every_flag() {
    check("", &Cli::command());
}
