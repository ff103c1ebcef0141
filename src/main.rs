//! Entry point: runs the subcommand of the command line.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser as _;
use holdfast::app::{self, Replica};
use holdfast::bench;
use holdfast::config::{
    self, AuditArgs, Cli, CliCommand, DEMO_PASSWORD_LENGTH, DatabaseArgs, HealthcheckArgs,
    JudgeArgs, LessonArgs, MIN_PASSWORD_LENGTH, MigrateArgs, PasswordArgs, RedisTlsArgs, ServeArgs,
    UpArgs, UserAddArgs, UserCommand, UserNameArgs, UserPasswdArgs,
};
use holdfast::db;
use holdfast::embedded::{self, RunningUp};
use holdfast::judge;
use holdfast::lab;
use holdfast::output::{self, ProgressLine, ResultFile};
use holdfast::settings;
use holdfast::shop::audit::{self, AuditProgress};
use holdfast::shop::seed::SeedContents;
use holdfast::shop::users::Credentials;
use holdfast::shop::{Failure, Rejection, seed, users};
use holdfast::signals;
use holdfast::telemetry::{self, FlushOnDrop, TraceExporter};

/// With glibc's allocator, a quarter of a replica's time under load is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Dropped last, and after a panic, too.
    let _flush = FlushOnDrop;
    if let Err(error) = telemetry::start_writer() {
        eprintln!("holdfast: can't start its threads: {error}");
        return ExitCode::FAILURE;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain_usage(&error),
    };
    // Exit code 1 of these is their result: the books are not sound, the claim was not shown, the
    // lock is not safe. Errors are 2.
    let answers =
        matches!(cli.command, CliCommand::Audit(_) | CliCommand::Lesson(_) | CliCommand::Judge(_));
    let failure = if answers { 2 } else { 1 };
    let exporter = match start_telemetry(&cli.command) {
        Ok(exporter) => exporter,
        Err(error) => {
            telemetry::report_failure(&format_error(&error));
            return ExitCode::from(failure);
        }
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if matches!(cli.command, CliCommand::Serve(_)) {
        runtime.worker_threads(app::main_threads());
    }
    let done = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(run(cli.command)),
        Err(error) => Err(anyhow::Error::from(error).context("can't start its threads")),
    };
    if let Some(exporter) = exporter {
        exporter.shut_down();
    }
    match done {
        Ok(code) => code,
        Err(error) => {
            telemetry::report_failure(&format_error(&error));
            ExitCode::from(failure)
        }
    }
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn explain_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !telemetry::is_json() {
        error.exit();
    }
    telemetry::report_failure(error.render().to_string().trim_end());
    ExitCode::from(2)
}

/// Starts the log, and in a replica the export of traces.
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

async fn run(command: CliCommand) -> anyhow::Result<ExitCode> {
    match command {
        CliCommand::Up(options) => Box::pin(up(options)).await?,
        CliCommand::Serve(options) => serve(&options).await?,
        CliCommand::Healthcheck(options) => healthcheck(&options).await?,
        CliCommand::Migrate(options) => migrate(&options).await?,
        CliCommand::User(UserCommand::Add(options)) => add_user(options).await?,
        CliCommand::User(UserCommand::Passwd(options)) => set_password(options).await?,
        CliCommand::User(UserCommand::Disable(options)) => disable_user(&options).await?,
        CliCommand::User(UserCommand::Enable(options)) => enable_user(&options).await?,
        CliCommand::Audit(options) => return audit(options).await,
        CliCommand::Lesson(options) => return lesson(options).await,
        CliCommand::Bench(options) => bench::bench(&options).await?,
        CliCommand::Judge(options) => return judge_lock(&options).await,
        CliCommand::JudgeWorker => Box::pin(judge::run_worker()).await?,
    }
    Ok(ExitCode::SUCCESS)
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
    telemetry::announce(&format!(
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
    telemetry::announce("the schema is up to date");
    let contents = SeedContents { catalogue: options.seed, users: options.demo_users };
    if contents == SeedContents::default() {
        return Ok(());
    }
    let added = match contents {
        _ if !seed::seed(&db::pool(&options.database_url, 2)?, contents).await? => {
            "the database is not empty: nothing added"
        }
        SeedContents::EVERYTHING => "demo catalogue and demo users added",
        SeedContents { catalogue: true, .. } => "demo catalogue added",
        SeedContents { .. } => "demo users added",
    };
    telemetry::announce(added);
    Ok(())
}

async fn add_user(options: UserAddArgs) -> anyhow::Result<()> {
    let min_length = min_password_length(&options.password, &options.database);
    let password = read_password(options.password, &options.name)?;
    let credentials = Credentials { user: options.name.clone(), password };
    let pool = connect(&options.database).await?;
    users::create(&pool, credentials, options.admin, None, min_length).await.map_err(user_error)?;
    Ok(output::print(&format!("user {} added\n", options.name))?)
}

async fn set_password(options: UserPasswdArgs) -> anyhow::Result<()> {
    let name = options.name;
    let min_length = min_password_length(&options.password, &options.database);
    let password = read_password(options.password, &name)?;
    let pool = connect(&options.database).await?;
    let set = users::set_password(&pool, &name, password, min_length).await;
    let note = if set.map_err(user_error)? { "; the user stays disabled" } else { "" };
    Ok(output::print(&format!("password of {name} changed, sessions ended{note}\n"))?)
}

async fn disable_user(options: &UserNameArgs) -> anyhow::Result<()> {
    users::disable(&connect(&options.database).await?, &options.name).await.map_err(user_error)?;
    Ok(output::print(&format!("user {} disabled, sessions ended\n", options.name))?)
}

async fn enable_user(options: &UserNameArgs) -> anyhow::Result<()> {
    users::enable(&connect(&options.database).await?, &options.name).await.map_err(user_error)?;
    Ok(output::print(&format!("user {} enabled\n", options.name))?)
}

fn read_password(options: PasswordArgs, name: &str) -> anyhow::Result<String> {
    if let Some(password) = options.password {
        return Ok(password);
    }
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

/// Returns the minimum length of a new password; without a URL, the database is that of an `up`.
fn min_password_length(password: &PasswordArgs, database: &DatabaseArgs) -> u16 {
    let is_up = database.database_url.is_none();
    let default = if is_up { DEMO_PASSWORD_LENGTH } else { MIN_PASSWORD_LENGTH };
    password.min_password_length.unwrap_or(default)
}

fn user_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Rejected(Rejection::Exists(what)) => anyhow::Error::msg(what),
        Failure::Rejected(Rejection::NotFound(what)) => anyhow::Error::msg(what.english()),
        Failure::Rejected(Rejection::Invalid(field, why)) => anyhow::anyhow!("{field}: {why}"),
        other => other.into(),
    }
}

async fn audit(options: AuditArgs) -> anyhow::Result<ExitCode> {
    let redis_tls = certificates_of(options.redis_url.as_deref(), options.redis_tls);
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
    Ok(if audit.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn lesson(options: LessonArgs) -> anyhow::Result<ExitCode> {
    let Some(name) = options.name else {
        output::print(&lab::terminal::list())?;
        return Ok(ExitCode::SUCCESS);
    };
    let shown = lab::terminal::run(&name, &options.data, options.json).await?;
    Ok(if shown { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn judge_lock(options: &JudgeArgs) -> anyhow::Result<ExitCode> {
    let json = options.json.as_deref().map(ResultFile::open_or_stdout).transpose()?;
    let html = options.html.as_deref().map(ResultFile::open).transpose()?;
    let judgement = Box::pin(judge::judge(options)).await?;
    judge::print(&judgement, json)?;
    if let Some(html) = html {
        html.write(&app::judgement_page(&judgement)?)?;
    }
    Ok(if judgement.safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the certificates for the given Redis; that of an `up` has none.
fn certificates_of(redis_url: Option<&str>, given: RedisTlsArgs) -> RedisTlsArgs {
    if redis_url.is_some() { given } else { RedisTlsArgs::default() }
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
    let failed = audit.checks.iter().filter(|check| !check.ok).count();
    text += &match failed {
        0 => "\nThe books balance: all checks hold.\n".to_owned(),
        1 => "\nThe books do NOT balance: 1 check fails.\n".to_owned(),
        _ => format!("\nThe books do NOT balance: {failed} checks fail.\n"),
    };
    text
}
