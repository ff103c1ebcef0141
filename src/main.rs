//! Entry point: runs the subcommand of the command line.

use std::process::ExitCode;

use anyhow::Context as _;
use holdfast::app;
use holdfast::commands::{Cli, CliCommand};
use holdfast::telemetry::{self, TraceExporter};
use holdfast_base::output;

/// With glibc's allocator, a quarter of a replica's time under load is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = output::start_writer() {
        eprintln!("holdfast: can't start its threads: {error}");
        return ExitCode::FAILURE;
    }
    let code = match Cli::from_environment() {
        Ok(cli) => execute(cli.command),
        Err(error) => explain_usage(&error),
    };
    output::flush();
    code
}

fn execute(command: CliCommand) -> ExitCode {
    // Exit code 1 of these is their result: the books are not sound, the claim was not shown, the
    // lock is not safe, the level is not passed. Errors are 2.
    let answers = matches!(
        command,
        CliCommand::Audit(_)
            | CliCommand::Ledger(_)
            | CliCommand::Lesson(_)
            | CliCommand::Judge(_)
            | CliCommand::Course(_)
    );

    let done = start_telemetry(&command).and_then(|exporter| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        if matches!(command, CliCommand::Serve(_)) {
            runtime.worker_threads(app::main_threads());
        }
        let runtime = runtime.enable_all().build().context("can't start its threads")?;

        let done = runtime.block_on(command.run());
        drop(runtime);
        if let Some(exporter) = exporter {
            exporter.shut_down();
        }
        done
    });

    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::report_failure(&format_error(&error));
            ExitCode::from(if answers { 2 } else { 1 })
        }
    }
}

fn explain_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !output::is_json() {
        error.exit();
    }
    output::report_failure(error.render().to_string().trim_end());
    ExitCode::from(2)
}

fn start_telemetry(command: &CliCommand) -> anyhow::Result<Option<TraceExporter>> {
    let exporter = match command {
        CliCommand::Serve(options) => {
            let port = options.listen.port().to_string();
            TraceExporter::from_environment(options.replica.as_ref().unwrap_or(&port))?
        }
        // Its replicas export them, and would not start.
        CliCommand::Up(_) => {
            TraceExporter::check_environment()?;
            None
        }
        _ => None,
    };

    telemetry::start(exporter.as_ref())?;
    Ok(exporter)
}

/// Formats an error with its causes, without those that it quotes already.
fn format_error(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.as_str() {
            "" => cause,
            text if text.contains(&cause) => text.to_owned(),
            text => format!("{text}: {cause}"),
        }
    })
}
