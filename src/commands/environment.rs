//! Settings of the replicas, as `up` finds them in its own environment before it starts anything.
//!
//! Parses them as `serve` does, and names the environment variable in an error, because `up` has no
//! flags for them. Does not see values that a replica's own environment overrides.

use std::error::Error as _;
use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue};
use clap::{Args as _, FromArgMatches as _};

use crate::settings::ServeArgs;
use holdfast_services::UpArgs;

/// Parses the environment as the replicas of `up` will, so that `up` starts nothing that they would
/// reject. The error names the variable.
pub fn settings_of_replicas(up: &UpArgs) -> Result<ServeArgs, String> {
    // `up` passes these itself; their variables are ignored.
    let mut line = vec!["serve", "--database-url=", "--redis-url=", "--redlock-urls="];
    line.extend(["--listen=127.0.0.1:8080", "--lock", &up.lock, "--replica="]);
    line.extend(["--min-password-length=3", "--drain-s=0", "--replica-urls="]);
    line.extend(["--lab", up.lab.name(), "--local-visitors=on", "--unsafe-lock"]);

    let matches = serve_command().try_get_matches_from(line);
    matches
        .and_then(|matches| ServeArgs::from_arg_matches(&matches))
        .map_err(|error| format_variable_error(&error))
}

fn serve_command() -> clap::Command {
    ignore_empty_variables(ServeArgs::augment_args(clap::Command::new("serve")))
}

/// Treats a variable that is empty as one that is not set: Compose and env files also set those
/// that are not filled in.
pub fn ignore_empty_variables(command: clap::Command) -> clap::Command {
    let of_this = command.mut_args(|arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) {
            arg.env(None::<&'static str>)
        } else {
            arg
        }
    });
    of_this.mut_subcommands(ignore_empty_variables)
}

/// Returns the environment variable of a flag of `serve`, or the flag if it has none.
pub fn variable(flag: &str) -> String {
    let name = flag.split(' ').next().and_then(|flag| flag.strip_prefix("--"));
    let command = serve_command();
    let arg = command.get_arguments().find(|arg| arg.get_long() == name);
    let variable = arg.and_then(clap::Arg::get_env).and_then(OsStr::to_str);
    variable.unwrap_or(flag).to_owned()
}

fn format_variable_error(error: &clap::Error) -> String {
    let (Some(ContextValue::String(flag)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return error.to_string();
    };
    let valid = match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(why), _) => why.to_string(),
        (None, Some(ContextValue::Strings(names))) => format!("one of {}", names.join(", ")),
        (None, _) => error.kind().to_string(),
    };
    format!("{} is “{value}”; it can be {valid}", variable(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_serve_flag_has_an_environment_variable() {
        assert_eq!(variable("--lock-ttl-ms <LOCK_TTL_MS>"), "HOLDFAST_LOCK_TTL_MS");
        for arg in serve_command().get_arguments() {
            // In the environment it would apply to every start.
            let is_once = arg.get_id() == "change_lock";
            assert_ne!(arg.get_env().is_some(), is_once, "{}", arg.get_id());
        }
    }
}
