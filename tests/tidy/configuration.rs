//! Checks `docs/CONFIGURATION.md` against the command line: the flags of `up` and `serve` with
//! their variables, their defaults and the beginning of their help, and the list of commands.

use std::ffi::OsStr;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use holdfast::commands::Cli;

const DOCUMENT: &str = include_str!("../../docs/CONFIGURATION.md");

/// Returns the table of a command's flags as the document shows it. A hidden flag has no row: `up`
/// passes it to its replicas.
fn table(command: &Command) -> String {
    let mut table = "| flag | variable | default | |\n|---|---|---|---|\n".to_owned();
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in flags.filter(|arg| !matches!(arg.get_action(), ArgAction::Help)) {
        let Some(flag) = arg.get_long() else { continue };
        let variable = arg.get_env().and_then(OsStr::to_str).unwrap_or_default();
        let (meaning, default) = help(arg);
        let cells = [as_code(variable), as_code(&default)].join("|");
        writeln!(table, "| `--{flag}` |{cells}| {meaning} |").unwrap();
    }
    table
}

/// Returns a cell, with code marks around what can be typed.
fn as_code(cell: &str) -> String {
    match cell {
        "" => " ".to_owned(),
        "required" => " required ".to_owned(),
        text if text.contains(' ') => format!(" {text} "),
        text => format!(" `{text}` "),
    }
}

/// Returns the help of a flag up to the first `. `, `: ` or `; `, and its default.
fn help(arg: &Arg) -> (String, String) {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (text, in_help) = help.split_once(" [default: ").unwrap_or((&help, "]"));
    let end = [". ", ": ", "; "].iter().filter_map(|end| text.find(end)).min();
    let meaning = text[..end.unwrap_or(text.len())].to_owned();

    let values = arg.get_default_values().iter().filter_map(|value| value.to_str());
    let default = match arg.get_action() {
        ArgAction::SetTrue => "off".to_owned(),
        _ if arg.is_required_set() => "required".to_owned(),
        _ => values.collect::<Vec<_>>().join(","),
    };
    match default.is_empty() {
        true => (meaning, in_help.trim_end_matches(']').to_owned()),
        false => (meaning, default),
    }
}

fn check_commands(path: &str, command: &Command) {
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&Command> = subcommands.filter(|command| command.get_name() != "help").collect();
    if names.is_empty() {
        assert!(DOCUMENT.contains(&format!("`{path}`")), "no row for the command {path}");
    }
    for command in names {
        check_commands(format!("{path} {}", command.get_name()).trim(), command);
    }
}

#[test]
fn documentation_lists_every_command_and_setting() {
    let cli = Cli::command();
    check_commands("", &cli);
    let tables = ["up", "serve"].map(|name| table(cli.find_subcommand(name).unwrap()));
    // Between blank lines: a row too many is wrong, too.
    let is_there = |table: &String| DOCUMENT.contains(&format!("\n\n{}\n\n", table.trim()));
    let missing: Vec<String> = tables.into_iter().filter(|table| !is_there(table)).collect();
    assert!(missing.is_empty(), "docs/CONFIGURATION.md needs:\n\n{}", missing.join("\n"));
}
