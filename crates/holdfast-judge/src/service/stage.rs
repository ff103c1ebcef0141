//! The servers, the links and the instances of a service, for all passes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use futures_util::future::{join, try_join_all};
use holdfast_base::message;
use holdfast_base::messages::Message;
use holdfast_base::output::print_progress;
use holdfast_services::{Proxy, TempFolder, Upstream, free_ports, tied_command};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use uuid::Uuid;

use super::balances::BookTotals;
use super::buyers::Buyers;
use super::database::{Database, decoded};
use super::file::{Books, IdFormat, ServiceFile, Values, program};
use super::instances::{Instance, InstanceSetup};
use super::learned::Learned;
use super::pass::Pass;
use super::program::BuyerProgram;
use super::watch::{LinkWatch, RedisWatch, Watch};
use crate::adapter::{LAST_WORDS_TIMEOUT, LastLines, joined, keep_last_lines};
use crate::servers::RedisServers;

/// Time for `[setup] once`, which may install something, and for the other commands.
const ONCE_TIMEOUT: Duration = Duration::from_mins(10);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// The books are read when there was no statement for so long; or after this time, of a service
/// that is never quiet.
pub(super) const QUIET: Duration = Duration::from_millis(500);
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);
const QUIET_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct ServiceStage<'a> {
    pub(super) file: &'a ServiceFile,
    pub(super) database: Option<Database>,
    pub(super) instances: Vec<Instance>,
    pub(super) buyers: Buyers,
    pub(super) watch: Arc<Watch>,
    pub(super) learned: Learned,
    /// Why the row of an item can't be locked.
    pub(super) no_gate: Option<Message>,
    /// The placeholders of what is not an instance.
    values: Values,
    /// The judge's own. It ends when it is dropped, as the links do.
    pub(super) redis: Option<RedisServers>,
    /// The service has sent commands to it.
    pub(super) uses_redis: bool,
    /// Those of the instances.
    pub(super) postgres_links: Vec<Proxy>,
    pub(super) redis_links: Vec<Proxy>,
    /// Those of what is not an instance.
    own_links: Vec<Proxy>,
    /// Part of the ids of the items: those of another judge may be in the same database.
    id: u32,
    /// Number of items that were made.
    pub(super) items: u32,
    /// It was said that the service is never quiet.
    is_restless: bool,
}

/// An item of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct RunItem {
    pub(super) id: Value,
    pub(super) values: Values,
}

#[derive(Deserialize)]
struct MadeItem {
    item: Value,
}

impl<'a> ServiceStage<'a> {
    pub(super) fn new(file: &'a ServiceFile) -> Self {
        let buyers = Buyers {
            order: file.order.clone(),
            bases: Vec::new(),
            program: None,
            answer_timeout: file.answer_timeout(Pass::Control),
            ended: AtomicUsize::new(0),
            cuts: AtomicUsize::new(0),
        };
        Self {
            file,
            database: None,
            instances: Vec::new(),
            buyers,
            watch: Arc::default(),
            learned: Learned::default(),
            no_gate: None,
            values: Values::default(),
            redis: None,
            uses_redis: false,
            postgres_links: Vec::new(),
            redis_links: Vec::new(),
            own_links: Vec::new(),
            id: rand::random(),
            items: 0,
            is_restless: false,
        }
    }

    /// Makes a database in the user's server, if the file names one.
    pub(super) async fn make_database(&mut self) -> anyhow::Result<()> {
        if let (Some(url), false) = (&self.file.service.database, self.file.is_attached()) {
            self.database = Some(Database::make_in(url).await?);
        }
        Ok(())
    }

    /// Starts the servers and the instances. What was started before a failure is ended by
    /// [`Self::end`].
    pub(super) async fn set_up(&mut self, folder: &TempFolder) -> anyhow::Result<()> {
        self.start_servers(folder).await?;
        self.values = self.link(None).await?;
        let once = &self.file.setup.once;
        // A service that runs has its schema already.
        if !once.is_empty() && !self.file.is_attached() {
            self.run_command("[setup] once", once, &self.values, ONCE_TIMEOUT).await?;
        }

        if self.file.is_attached() {
            let urls = self.file.service.urls.iter().enumerate();
            self.instances = urls.map(|(number, url)| Instance::attached(number, url)).collect();
        } else {
            for number in 0..self.file.service.instances {
                let instance = self.start_instance(number).await?;
                self.instances.push(instance);
            }
        }
        let ready = &self.file.service.ready;
        try_join_all(self.instances.iter_mut().map(|it| it.wait_ready(ready))).await?;

        self.buyers.bases = self.instances.iter().map(|it| it.base.clone()).collect();
        self.values = self.values.with("base", self.buyers.bases[0].as_str());
        let command = &self.file.order.command;
        if !command.is_empty() {
            let env = self.environment(&self.values);
            self.buyers.program = Some(BuyerProgram::start(command, &self.file.folder, &env)?);
        }
        Ok(())
    }

    /// Starts those servers that the file has a use for, besides the database that was made.
    async fn start_servers(&mut self, folder: &TempFolder) -> anyhow::Result<()> {
        let file = self.file;
        match &file.service.database {
            Some(url) if file.is_attached() => self.database = Some(Database::attach(url).await?),
            None if file.uses("{database_") || file.books.command.is_empty() => {
                self.database = Some(Database::start(folder).await?);
            }
            _ => {}
        }
        if file.service.redis.is_none() && file.uses("{redis_") {
            self.redis = Some(RedisServers::start(false).await?);
        }
        Ok(())
    }

    /// Puts proxies before the servers, and returns the placeholders with their addresses. What an
    /// instance sends is watched.
    async fn link(&mut self, instance: Option<usize>) -> anyhow::Result<Values> {
        let mut values = Values::default();
        if let Some(database) = &self.database {
            let (link, links) = match instance {
                Some(instance) => {
                    let watcher = LinkWatch { watch: Arc::clone(&self.watch), instance };
                    let link = Proxy::watched(database.target(), Arc::new(watcher)).await?;
                    (link, &mut self.postgres_links)
                }
                None => (Proxy::start(database.target()).await?, &mut self.own_links),
            };
            values = database.values_at(link.port)?;
            links.push(link);
        }

        let (target, mut url) = match (&self.redis, &self.file.service.redis) {
            (Some(redis), _) => {
                let url = format!("redis://:{}@127.0.0.1/0", redis.primary.password);
                (Upstream::Socket(redis.primary.socket()), Url::parse(&url)?)
            }
            (None, Some(url)) => {
                let wrong = || "[service] redis: it must be a URL, redis://HOST:PORT".to_owned();
                let url = Url::parse(url).ok().filter(|url| url.scheme() == "redis");
                let url = url.with_context(wrong)?;
                let host = url.host_str().with_context(wrong)?;
                let address = format!("{host}:{}", url.port().unwrap_or(6379));
                (Upstream::Address(address), url)
            }
            (None, None) => return Ok(values),
        };
        let (link, links) = match instance {
            Some(instance) => {
                let watcher = RedisWatch { watch: Arc::clone(&self.watch), instance };
                let link = Proxy::watched_redis(target, Arc::new(watcher)).await?;
                (link, &mut self.redis_links)
            }
            None => (Proxy::start(target).await?, &mut self.own_links),
        };
        let _ = url.set_host(Some("127.0.0.1"));
        let _ = url.set_port(Some(link.port));
        let values = values
            .with("redis_url", url.as_str())
            .with("redis_host", "127.0.0.1")
            .with("redis_port", link.port)
            .with("redis_password", decoded(url.password().unwrap_or_default()));
        links.push(link);
        Ok(values)
    }

    /// Returns how many commands were sent to the judge's own Redis so far.
    pub(super) async fn redis_commands(&self) -> anyhow::Result<u64> {
        match &self.redis {
            Some(redis) => redis.commands().await,
            None => Ok(0),
        }
    }

    async fn start_instance(&mut self, number: usize) -> anyhow::Result<Instance> {
        program(&self.file.service.start, &self.file.folder, "[service] start")?;
        let port = free_ports(1)?;
        let values = self.link(Some(number)).await?.with("port", port);
        let setup = InstanceSetup {
            command: values.fill_all(&self.file.service.start),
            folder: self.file.folder.clone(),
            env: self.environment(&values),
        };
        Instance::start(number, port, setup).await
    }

    fn environment(&self, values: &Values) -> BTreeMap<String, String> {
        let env = self.file.service.env.iter();
        env.map(|(name, value)| (name.clone(), values.fill(value))).collect()
    }

    /// Runs a command of the file to its end, and returns what it prints to stdout.
    async fn run_command(
        &self,
        key: &str,
        command: &[String],
        values: &Values,
        limit: Duration,
    ) -> anyhow::Result<String> {
        let command = values.fill_all(command);
        let (program, arguments) = program(&command, &self.file.folder, key)?;
        let name = program.display();
        let running = tied_command(&program, "KILL")
            .args(arguments)
            .current_dir(&self.file.folder)
            .envs(self.environment(values))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut running = running.with_context(|| format!("{key}: can't start `{name}`"))?;

        let mut stdout = running.stdout.take().context("a command has no stdout")?;
        let stderr = running.stderr.take().context("a command has no stderr")?;
        let (mut printed, said) = (Vec::new(), LastLines::default());
        let ended = {
            let listening = keep_last_lines(stderr, Arc::clone(&said));
            let mut reading = pin!(join(stdout.read_to_end(&mut printed), listening));
            let ending = async {
                tokio::select! {
                    _ = &mut reading => running.wait().await,
                    status = running.wait() => {
                        // What it has left running may keep them open.
                        let _ = timeout(LAST_WORDS_TIMEOUT, &mut reading).await;
                        status
                    }
                }
            };
            timeout(limit, ending).await
        };
        let status =
            ended.map_err(|_| anyhow!("{key}: `{name}` has not ended after {limit:?}"))??;
        if !status.success() {
            let last = joined(&said);
            bail!("{key}: `{name}` failed ({status}). The end of its stderr:\n  {last}");
        }
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs a command of the file that prints JSON, and returns what that says.
    async fn read_printed<T: DeserializeOwned>(
        &self,
        key: &str,
        command: &[String],
        values: &Values,
        expected: &str,
    ) -> anyhow::Result<T> {
        let printed = self.run_command(key, command, values, COMMAND_TIMEOUT).await?;
        serde_json::from_str(printed.trim()).map_err(|error| {
            anyhow!("{key}: it must print {expected} and nothing else ({error}), not {printed:?}")
        })
    }

    /// Makes a new item with `units` units.
    pub(super) async fn make_item(&mut self, units: i64) -> anyhow::Result<RunItem> {
        self.items += 1;
        let setup = &self.file.setup;
        let id: Value = match setup.item {
            IdFormat::Text => format!("item-{:08x}-{}", self.id, self.items).into(),
            // Far from the first ids of a sequence, and within 31 bits.
            IdFormat::Number => (1_000_000_000 + self.id % 1_000_000 * 1_000 + self.items).into(),
            IdFormat::Uuid => Uuid::new_v4().to_string().into(),
        };
        let values = self.values.with("item", id.clone()).with("stock", units);
        if let Some(sql) = &setup.sql {
            let key = "[setup] sql";
            self.database(key)?.run(key, &values.fill(sql)).await?;
            return Ok(RunItem { id, values });
        }

        let (key, expected) = ("[setup] command", r#"{"item": "…"}"#);
        let made: MadeItem = self.read_printed(key, &setup.command, &values, expected).await?;
        let values = self.values.with("item", made.item.clone()).with("stock", units);
        Ok(RunItem { id: made.item, values })
    }

    fn database(&mut self, key: &str) -> anyhow::Result<&mut Database> {
        self.database.as_mut().with_context(|| {
            format!("{key}: the service has no database: {{database_url}} is in no value of `env`")
        })
    }

    /// Learns from the query of the stock which tables and columns have it.
    pub(super) async fn learn(&mut self, item: &RunItem) -> anyhow::Result<()> {
        if let (Some(sql), Some(database)) = (&self.file.books.stock, &mut self.database) {
            let learned = database.learn(&item.values.fill(sql)).await?;
            self.set_learned(learned);
        }
        Ok(())
    }

    pub(super) fn set_learned(&mut self, learned: Learned) {
        self.watch.set_learned(learned.clone());
        self.learned = learned;
    }

    /// Locks the row of an item in a transaction, until the connection is closed.
    pub(super) async fn lock_row(&mut self, item: &RunItem) -> anyhow::Result<PgConnection> {
        let Books { row, stock, .. } = &self.file.books;
        let without_end = |sql: &String| sql.trim_end().trim_end_matches(';').to_owned();
        let learned = stock.as_ref().map(without_end).map(|sql| sql + "\nfor no key update");
        let sql = row.clone().or(learned).context("[books] has no `row`")?;
        let sql = item.values.fill(&sql);
        self.database("[books] row")?.lock_row(&sql).await
    }

    /// Finds out whether the row of an item can be locked.
    pub(super) async fn try_gate(&mut self, item: &RunItem) {
        if let Err(error) = self.lock_row(item).await {
            self.no_gate = Some(message!("service-why-no-row", error = format!("{error:#}")));
        }
    }

    /// Waits until the service has done nothing for so long.
    pub(super) async fn wait_quiet(&mut self, quiet: Duration) {
        let until = Instant::now() + QUIET_TIMEOUT;
        sleep(quiet).await;
        while self.watch.quiet_for() < quiet && Instant::now() < until {
            sleep(QUIET_INTERVAL).await;
        }

        if self.watch.quiet_for() < quiet && !self.is_restless {
            self.is_restless = true;
            print_progress(&format!(
                "the service sends statements all the time: its books are read after \
                 {QUIET_TIMEOUT:?}. Switch polling jobs off"
            ));
        }
    }

    /// Reads the books of an item.
    pub(super) async fn books(&mut self, item: &RunItem) -> anyhow::Result<BookTotals> {
        let books = &self.file.books;
        let fill = |sql: &str| item.values.fill(sql);
        let (Some(stock), Some(sold)) = (&books.stock, &books.sold) else {
            let (key, expected) = ("[books] command", r#"{"stock": 1, "sold": 2}"#);
            return self.read_printed(key, &books.command, &item.values, expected).await;
        };

        let database = self.database("[books] stock")?;
        // A service that is never quiet must not change them between the queries.
        database.run("[books]", "begin isolation level repeatable read, read only").await?;
        let reading = async {
            let stock = database.number("[books] stock", &fill(stock)).await?;
            let sold = database.number("[books] sold", &fill(sold)).await?;
            let by_key = match &books.by_key {
                Some(sql) => Some(database.numbers("[books] by_key", &fill(sql)).await?),
                None => None,
            };
            anyhow::Ok(BookTotals { stock, sold, by_key })
        };
        let entries = reading.await;
        // Also after a query that has failed, whose error is returned first.
        let ended = database.run("[books]", "rollback").await;
        entries.and_then(|entries| ended.map(|()| entries))
    }

    /// Checks the opening stock of an item that was just made.
    pub(super) async fn check_opening(&mut self, item: &RunItem, units: i64) -> anyhow::Result<()> {
        let books = self.books(item).await?;
        ensure!(
            (books.stock, books.sold) == (units, 0),
            "[setup] has made the item {} with a stock of {units}, and [books] finds {} in stock and \
             {} sold: is `{{stock}}` used, and `{{item}}` in each query?",
            item.id,
            books.stock,
            books.sold
        );
        Ok(())
    }

    /// Ends the instances.
    pub(super) async fn end(mut self) -> Option<Database> {
        for instance in &mut self.instances {
            instance.kill().await;
        }
        self.database
    }
}
