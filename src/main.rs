//! Entry point: runs the subcommand of the command line.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser as _;
use holdfast::app::{self, Replica};
use holdfast::bench;
use holdfast::config::{
    self, AuditArgs, Cli, CliCommand, DatabaseArgs, HealthcheckArgs, JudgeArgs, LessonArgs,
    MIN_PASSWORD_LENGTH, MigrateArgs, ServeArgs, UpArgs, UserAddArgs, UserCommand, UserNameArgs,
    UserPasswordArgs,
};
use holdfast::db;
use holdfast::embedded::{self, DEMO_PASSWORD_LENGTH, RunningUp};
use holdfast::judge;
use holdfast::lab;
use holdfast::output::{self, ProgressLine, ResultFile};
use holdfast::settings;
use holdfast::shop::audit::{self, AuditProgress};
use holdfast::shop::seed::SeedContents;
use holdfast::shop::users::Credentials;
use holdfast::shop::{Failure, Rejection, seed, users};
use holdfast::signals;
use holdfast::telemetry::{self, TraceExporter};

/// With glibc's allocator, a quarter of a replica's time under load is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = output::start_writer() {
        eprintln!("holdfast: can't start its threads: {error}");
        return ExitCode::FAILURE;
    }
    let code = match Cli::try_parse() {
        Ok(cli) => execute(cli.command),
        Err(error) => explain_usage(&error),
    };
    output::flush();
    code
}

fn execute(command: CliCommand) -> ExitCode {
    // Exit code 1 of these is their result: the books are not sound, the claim was not shown, the
    // lock is not safe. Errors are 2.
    let answers =
        matches!(command, CliCommand::Audit(_) | CliCommand::Lesson(_) | CliCommand::Judge(_));
    let done = start_telemetry(&command).and_then(|exporter| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        if matches!(command, CliCommand::Serve(_)) {
            runtime.worker_threads(app::main_threads());
        }
        let runtime = runtime.enable_all().build().context("can't start its threads")?;
        let done = runtime.block_on(run(command));
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

/// Runs the command; returns whether its answer is yes, if it has one.
async fn run(command: CliCommand) -> anyhow::Result<bool> {
    match command {
        CliCommand::Up(options) => Box::pin(up(options)).await?,
        CliCommand::Serve(options) => serve(&options).await?,
        CliCommand::Healthcheck(options) => healthcheck(&options).await?,
        CliCommand::Migrate(options) => migrate(&options).await?,
        CliCommand::User(command) => user(command).await?,
        CliCommand::Audit(options) => return audit(options).await,
        CliCommand::Lesson(options) => return lesson(options).await,
        CliCommand::Bench(options) => bench::bench(&options).await?,
        CliCommand::Judge(options) => return judge_lock(&options).await,
        CliCommand::JudgeWorker => Box::pin(judge::run_worker()).await?,
    }
    Ok(true)
}

async fn up(options: UpArgs) -> anyhow::Result<()> {
    // A misspelt lock is rejected before Postgres starts, not by a replica that exits at once.
    let strategy = app::strategy(&options.lock)?;
    if strategy.name == "redlock" && options.redlock == 0 {
        bail!("the lock redlock needs several Redis servers: add --redlock 3");
    }
    // So are other settings that the replicas would reject.
    let of_replicas = options.settings_of_replicas().map_err(anyhow::Error::msg)?;
    if let Err(invalid) = settings::validate(&of_replicas) {
        bail!("{}: {}", config::variable(invalid.flag), invalid.why);
    }
    let prepare = async |database_url: &str| {
        db::migrate(database_url).await?;
        let pool = db::pool(database_url, 2)?;
        seed::seed(&pool, SeedContents::EVERYTHING).await?;
        // No other replica uses this database.
        db::forget_lock_family(&pool).await?;
        Ok(())
    };
    let companion = async |running: RunningUp, control| {
        if running.lab {
            lab::runner::serve(running, control).await;
        }
    };
    embedded::up(&options, prepare, companion).await
}

async fn serve(options: &ServeArgs) -> anyhow::Result<()> {
    // First: process 1 of a container ignores signals until it listens.
    let mut signals = signals::listen().context("signals can't be listened to")?;
    let replica = tokio::select! {
        built = Replica::build(options) => built?,
        Some(_) = signals.recv() => return Ok(()),
    };
    output::announce(&format!(
        "Holdfast replica on http://{}:{} (lock: {})",
        options.listen.ip(),
        replica.port()?,
        options.lock.strategy
    ));
    replica.run_until_stopped(signals).await
}

async fn healthcheck(options: &HealthcheckArgs) -> anyhow::Result<()> {
    let body = embedded::check_ready(options.listen).await;
    let body =
        body.map_err(|why| anyhow::anyhow!("the replica is not ready: {}", why.trim_end()))?;
    Ok(output::print(&format!("ready: {}\n", body.trim_end()))?)
}

async fn migrate(options: &MigrateArgs) -> anyhow::Result<()> {
    db::migrate(&options.database_url).await?;
    output::announce("the schema is up to date");
    let contents = SeedContents { catalogue: options.seed, users: options.demo_users };
    if contents != SeedContents::default() {
        let pool = db::pool(&options.database_url, 2)?;
        output::announce(match seed::seed(&pool, contents).await? {
            true => "demo data added",
            false => "the database is not empty: nothing added",
        });
    }
    Ok(())
}

async fn user(command: UserCommand) -> anyhow::Result<()> {
    let done = match command {
        UserCommand::Add(UserAddArgs { admin, user }) => {
            let (pool, password, min_length) = with_password(&user).await?;
            let credentials = Credentials { user: user.name.clone(), password };
            let added = users::create(&pool, credentials, admin, None, min_length).await;
            added.map(|_| format!("user {} added", user.name))
        }
        UserCommand::Passwd(user) => {
            let (pool, password, min_length) = with_password(&user).await?;
            let set = users::set_password(&pool, &user.name, password, min_length).await;
            set.map(|is_disabled| {
                let note = if is_disabled { "; the user stays disabled" } else { "" };
                format!("password of {} changed, sessions ended{note}", user.name)
            })
        }
        UserCommand::Disable(UserNameArgs { name, database }) => {
            let disabled = users::disable(&connect(&database).await?, &name).await;
            disabled.map(|_| format!("user {name} disabled, sessions ended"))
        }
        UserCommand::Enable(UserNameArgs { name, database }) => {
            let enabled = users::enable(&connect(&database).await?, &name).await;
            enabled.map(|_| format!("user {name} enabled"))
        }
    };
    Ok(output::print(&(done.map_err(user_error)? + "\n"))?)
}

/// Returns the database, the new password and its minimum length.
async fn with_password(user: &UserPasswordArgs) -> anyhow::Result<(db::Pool, String, u16)> {
    let password = match &user.password {
        Some(password) => password.clone(),
        None => prompt_password(&user.name)?,
    };
    // Without a URL, the database is that of an `up`.
    let is_up = user.database.database_url.is_none();
    let default = if is_up { DEMO_PASSWORD_LENGTH } else { MIN_PASSWORD_LENGTH };
    let pool = connect(&user.database).await?;
    Ok((pool, password, user.min_password_length.unwrap_or(default)))
}

fn prompt_password(name: &str) -> anyhow::Result<String> {
    if !std::io::stdin().is_terminal() {
        bail!("no terminal to prompt for the password; set HOLDFAST_PASSWORD");
    }
    let ask = |words: String| rpassword::prompt_password(words).context("can't read the password");
    let password = ask(format!("Password for {name}: "))?;
    if ask("Repeat the password: ".to_owned())? != password {
        bail!("the passwords differ; nothing was changed");
    }
    Ok(password)
}

/// Connects to the database of a command, and checks its schema.
async fn connect(database: &DatabaseArgs) -> anyhow::Result<db::Pool> {
    let (url, _) = find_urls(database, None)?;
    let pool = db::pool(&url, 2)?;
    db::check_reachable(&url).await?;
    db::check_server(&pool).await?;
    Ok(pool)
}

fn user_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Rejected(Rejection::Exists(what)) => anyhow::Error::msg(what),
        Failure::Rejected(Rejection::NotFound(what)) => anyhow::Error::msg(what.english()),
        Failure::Rejected(Rejection::Invalid(field, why)) => anyhow::anyhow!("{field}: {why}"),
        other => other.into(),
    }
}

async fn audit(options: AuditArgs) -> anyhow::Result<bool> {
    // The Redis of an `up` has no certificates.
    let redis_tls = options.redis_url.as_ref().map(|_| options.redis_tls).unwrap_or_default();
    let (database_url, redis_url) = find_urls(&options.database, options.redis_url)?;
    db::check_reachable(&database_url).await?;
    let locks = redis_url.as_deref().map(|url| app::locks(url, &redis_tls)).transpose()?;
    let pool = db::pool(&database_url, 2)?;
    db::check_readable(&pool).await?;
    let mut line = ProgressLine::new(Duration::ZERO);
    let audit = audit::check_all(&pool, locks.as_ref(), |AuditProgress { done, total, check }| {
        line.draw(|| format!("check {} of {total}: {check}", done + 1));
    });
    let audit = audit.await;
    line.clear();
    let audit = audit?;
    if options.json {
        output::print(&(serde_json::to_string_pretty(&audit)? + "\n"))?;
    } else {
        output::print(&format_audit(&audit))?;
    }
    Ok(audit.ok)
}

async fn lesson(options: LessonArgs) -> anyhow::Result<bool> {
    match options.name {
        Some(name) => lab::terminal::run(&name, &options.data, options.json).await,
        None => {
            output::print(&lab::terminal::list())?;
            Ok(true)
        }
    }
}

async fn judge_lock(options: &JudgeArgs) -> anyhow::Result<bool> {
    let json = options.json.as_deref().map(ResultFile::open_or_stdout).transpose()?;
    let html = options.html.as_deref().map(ResultFile::open).transpose()?;
    let judgement = Box::pin(judge::judge(options)).await?;
    judge::print(&judgement, json)?;
    if let Some(html) = html {
        html.write(&app::judgement_page(&judgement)?)?;
    }
    Ok(judgement.safe)
}

/// Returns the given URLs, or those of the `holdfast up` that runs on the data folder.
fn find_urls(
    database: &DatabaseArgs,
    redis_url: Option<String>,
) -> anyhow::Result<(String, Option<String>)> {
    let DatabaseArgs { database_url, data } = database;
    if let Some(database_url) = database_url {
        return Ok((database_url.clone(), redis_url));
    }
    let running = embedded::read_env(data).with_context(|| {
        format!(
            "no `holdfast up` runs on {}. Start one with script/server, name its folder with \
             --data, or set DATABASE_URL",
            data.display()
        )
    })?;
    Ok((running.database_url, redis_url.or(Some(running.redis_url))))
}

fn format_audit(audit: &audit::AuditReport) -> String {
    let mut text = String::new();
    let width = audit.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &audit.checks {
        let mark = if check.ok { "ok  " } else { "FAIL" };
        text += &format!("{mark}  {:width$}  {}\n", check.name, check.detail);
    }
    for note in &audit.notes {
        text += &format!("      {note}\n");
    }
    text += if audit.ok {
        "\nThe books balance: all checks hold.\n"
    } else {
        "\nThe books do NOT balance.\n"
    };
    text
}
