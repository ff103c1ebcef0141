//! The file that describes a service: how it is started, how one unit is ordered, and where it
//! keeps its books.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use holdfast_base::output::print_progress;
use serde::Deserialize;
use serde_json::Value;

use super::pass::Pass;

/// The placeholders of the servers.
const SERVERS: [&str; 10] = [
    "{database_url}",
    "{database_host}",
    "{database_port}",
    "{database_user}",
    "{database_password}",
    "{database_name}",
    "{redis_url}",
    "{redis_host}",
    "{redis_port}",
    "{redis_password}",
];
const OTHERS: [&str; 6] = ["{port}", "{item}", "{stock}", "{buyer}", "{key}", "{base}"];

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceFile {
    pub(super) name: String,
    pub(super) service: Service,
    #[serde(default)]
    pub(super) setup: Setup,
    pub(super) order: OrderSettings,
    pub(super) books: Books,
    /// The folder of the file, in which its commands run.
    #[serde(skip)]
    pub(super) folder: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    /// Program and arguments.
    #[serde(default)]
    pub(super) start: Vec<String>,
    /// Of a service that runs already.
    #[serde(default)]
    pub(super) urls: Vec<String>,
    #[serde(default = "two")]
    pub(super) instances: usize,
    /// Path that is answered with 2xx once an instance serves.
    #[serde(default = "root")]
    pub(super) ready: String,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Lease of the service's lock.
    pub(super) lease_ms: Option<u64>,
    /// A server of the user's own.
    pub(super) database: Option<String>,
    pub(super) redis: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    #[serde(default)]
    pub(super) once: Vec<String>,
    pub(super) sql: Option<String>,
    /// Prints the item that it has made.
    #[serde(default)]
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) item: IdFormat,
}

/// The form of an item's id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum IdFormat {
    #[default]
    Text,
    Number,
    Uuid,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderSettings {
    pub(super) post: Option<String>,
    pub(super) json: Option<Value>,
    pub(super) form: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) sold: Vec<u16>,
    #[serde(default)]
    pub(super) sold_out: Vec<u16>,
    /// The buyer's program.
    #[serde(default)]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Books {
    pub(super) stock: Option<String>,
    pub(super) sold: Option<String>,
    pub(super) by_key: Option<String>,
    /// Locks the row of the item.
    pub(super) row: Option<String>,
    /// Prints the stock and the units sold.
    #[serde(default)]
    pub(super) command: Vec<String>,
}

fn two() -> usize {
    2
}

fn root() -> String {
    "/".to_owned()
}

impl ServiceFile {
    /// Reads and checks a file; `attach` has the URLs of a service that runs already. Fails with
    /// the line, the key and what was expected.
    pub(super) fn read(path: &Path, attach: &[String]) -> anyhow::Result<Self> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).map_err(|error| anyhow!("can't read {shown}: {error}"))?;
        let mut file: Self = toml::from_str(&text).map_err(|error| anyhow!("{shown}: {error}"))?;
        if !attach.is_empty() {
            file.service.urls = attach.to_vec();
        }
        file.check().map_err(|error| anyhow!("{shown}: {error}"))?;
        for name in file.unknown_placeholders() {
            print_progress(&format!("{shown}: {name} is no placeholder, and stays as it is"));
        }

        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        file.folder = fs::canonicalize(folder).with_context(|| format!("can't find {shown}"))?;
        Ok(file)
    }

    fn check(&self) -> anyhow::Result<()> {
        let Self { service, setup, order, books, .. } = self;
        ensure!(
            !service.start.is_empty() || !service.urls.is_empty(),
            "[service] needs `start`, the command of an instance as a list of words, or `urls` of a \
             service that runs already"
        );
        ensure!(
            (1..=16).contains(&service.instances),
            "[service] instances = {}: it can be 1 to 16",
            service.instances
        );
        let unknown = self.unknown_placeholders().into_iter();
        let unknown = unknown.map(|name| format!(". {name} is no placeholder")).collect::<String>();
        ensure!(
            self.is_attached() || self.uses("{port}"),
            "[service] start: {{port}} is in none of its words, nor in a value of `env`. Each \
             instance has a port of its own, on which it must listen{unknown}"
        );
        for url in &service.urls {
            ensure!(
                url.starts_with("http://"),
                "[service] urls: {url} must begin with http://. The judge speaks no TLS"
            );
        }
        ensure!(
            !self.is_attached() || service.database.is_some() || !books.command.is_empty(),
            "[service] needs `database`, the URL of the database that the running service uses, or \
             [books] needs `command`"
        );

        check_path("[service] ready", &service.ready)?;
        order.check()?;
        ensure!(
            books.command.is_empty() == (books.stock.is_some() && books.sold.is_some()),
            "[books] needs either `stock` and `sold`, each a query of one number, or `command`"
        );
        let queries = [&books.stock, &books.sold, &books.by_key, &books.row];
        for sql in queries.into_iter().flatten() {
            // With one for all items, each run would find the orders of those before it.
            ensure!(sql.contains("{item}"), "[books]: {{item}} is not in `{}`", sql.trim());
        }
        for text in service.start.iter().chain(service.env.values()) {
            let is_of_server =
                |name: &&str| name.starts_with("{database_") || name.starts_with("{redis_");
            if let Some(unknown) = unknown_placeholders(text).find(is_of_server) {
                bail!("[service]: {unknown} is none of the placeholders {}", SERVERS.join(", "));
            }
        }
        ensure!(
            setup.sql.is_none() || setup.command.is_empty(),
            "[setup] has `sql` and `command`: one of them makes the item"
        );
        ensure!(
            setup.sql.is_some() || !setup.command.is_empty(),
            "[setup] needs `sql` or `command`, which makes a new item with its stock before each run"
        );
        Ok(())
    }

    /// Returns what looks like a placeholder and is none. It may be the service's own.
    fn unknown_placeholders(&self) -> BTreeSet<String> {
        let Service { start, env, .. } = &self.service;
        let OrderSettings { post, headers, json, form, .. } = &self.order;
        let json = json.as_ref().map(ToString::to_string);
        let fields = form.iter().flat_map(BTreeMap::values);
        let texts = start.iter().chain(env.values()).chain(post).chain(headers.values());
        let texts = texts.chain(fields).chain(&json);
        texts.flat_map(|text| unknown_placeholders(text)).map(str::to_owned).collect()
    }

    pub(super) fn is_attached(&self) -> bool {
        !self.service.urls.is_empty()
    }

    /// Returns whether an attempt has a key of its own, with which it can be sent again.
    pub(super) fn has_key(&self) -> bool {
        let order = &self.order;
        let has = |text: &str| text.contains("{key}");
        !order.command.is_empty()
            || order.post.as_deref().is_some_and(has)
            || order.json.as_ref().is_some_and(|json| has(&json.to_string()))
            || order.form.iter().flatten().any(|(_, value)| has(value))
            || order.headers.values().any(|value| has(value))
    }

    /// Returns whether a placeholder that begins so is in what starts the service.
    pub(super) fn uses(&self, placeholder: &str) -> bool {
        let Service { start, env, .. } = &self.service;
        start.iter().chain(env.values()).any(|text| text.contains(placeholder))
    }

    /// Returns whether orders may wait for each other outside of the database.
    pub(super) fn has_lock(&self) -> bool {
        self.service.lease_ms.is_some() || self.uses("{redis_")
    }

    /// Returns the time within which an order must be answered. A slow shop may take some under
    /// load.
    pub(super) fn answer_timeout(&self, pass: Pass) -> Duration {
        match pass {
            Pass::Control => Duration::from_secs(10),
            _ => Duration::from_secs(30) + self.pause(),
        }
    }

    /// Returns the time for which a process is stopped: longer than the lease of its lock.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_secs(3).max(self.beyond_lease().unwrap_or_default())
    }

    /// Returns a time that outlasts the lock of the service, if it has one.
    pub(super) fn beyond_lease(&self) -> Option<Duration> {
        self.service.lease_ms.map(|ms| Duration::from_millis(ms).mul_f64(1.5))
    }
}

impl OrderSettings {
    fn check(&self) -> anyhow::Result<()> {
        let Self { post, command, sold, sold_out, json, form, .. } = self;
        ensure!(
            post.is_some() || !command.is_empty(),
            "[order] needs either `post`, a path, or `command`, the program of a buyer"
        );
        ensure!(
            post.is_none() || command.is_empty(),
            "[order] has both `post` and `command`: a request buys, or a program"
        );
        ensure!(
            command.is_empty() || (sold.is_empty() && sold_out.is_empty()),
            "[order] has status codes beside `command`: the program says itself what was sold"
        );
        ensure!(
            post.is_none() || !sold.is_empty(),
            "[order] needs `sold`, the status codes of an order that was placed, e.g. [200, 201]"
        );
        if let Some(status) = sold.iter().find(|status| sold_out.contains(status)) {
            bail!("[order] has {status} in `sold` and in `sold_out`: it must mean one of them");
        }
        post.iter().try_for_each(|post| check_path("[order] post", post))?;
        ensure!(
            json.is_none() || form.is_none(),
            "[order] has `json` and `form`: a request has one body"
        );
        Ok(())
    }
}

/// Fails unless it begins with a slash; a placeholder is none.
fn check_path(key: &str, path: &str) -> anyhow::Result<()> {
    ensure!(
        path.starts_with('/'),
        "{key} = {path:?}: it must be a path that begins with /. The URL of the instance is put \
         before it"
    );
    Ok(())
}

/// Returns the words in braces that are written as a placeholder is, and that are none.
fn unknown_placeholders(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || "_0123456789".contains(letter);
    let begins = text.match_indices('{').map(move |(at, _)| &text[at..]);
    let names = begins.filter_map(|rest| Some(&rest[..=rest.find('}')?]));
    let names =
        names.filter(move |name| name.len() > 2 && name[1..name.len() - 1].chars().all(is_part));
    names.filter(|name| !SERVERS.contains(name) && !OTHERS.contains(name))
}

/// The values of placeholders: texts and numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Values(Vec<(&'static str, Value)>);

impl Values {
    /// Returns these with another one, or another value of one.
    pub(super) fn with(&self, name: &'static str, value: impl Into<Value>) -> Self {
        let mut values = self.clone();
        values.0.retain(|(other, _)| *other != name);
        values.0.push((name, value.into()));
        values
    }

    /// Replaces the placeholders of a text. One without a value stays.
    pub(super) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.replace(&format!("{{{name}}}"), &value)
        })
    }

    pub(super) fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }

    /// Replaces those in the texts of JSON. A text that is one placeholder of a number becomes the
    /// number.
    pub(super) fn fill_json(&self, json: &Value) -> Value {
        match json {
            Value::String(text) => {
                let one = self.0.iter().find(|(name, _)| *text == format!("{{{name}}}"));
                one.map_or_else(|| self.fill(text).into(), |(_, value)| value.clone())
            }
            Value::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.fill_json(value))).collect()
            }
            other => other.clone(),
        }
    }
}

/// Returns the program and the arguments of a command, which runs in this folder.
pub(super) fn program<'a>(
    command: &'a [String],
    folder: &Path,
    key: &str,
) -> anyhow::Result<(PathBuf, &'a [String])> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("{key} is empty: it must be a list of words, the first one a program");
    };
    if program.contains('/') {
        let found = folder.join(program);
        ensure!(found.is_file(), "{key}: there is no program `{}`", found.display());
        return Ok((found, arguments));
    }

    let path = env::var_os("PATH").unwrap_or_default();
    ensure!(
        env::split_paths(&path).any(|folder| folder.join(program).is_file()),
        "{key}: there is no program `{program}` in PATH; ./{program} would be looked for in the \
         file's folder"
    );
    Ok((PathBuf::from(program), arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = r#"
        name = "my shop"
        [service]
        start = ["shop", "{port}"]
        [setup]
        sql = "insert into products values ('{item}', {stock})"
        [order]
        post = "/orders"
        sold = [201]
        [books]
        stock = "select stock from products where id = '{item}'"
        sold = "select count(*) from orders where product = '{item}'"
    "#;

    fn error_of(text: &str) -> String {
        let read = toml::from_str::<ServiceFile>(text).map_err(anyhow::Error::new);
        read.and_then(|file| file.check()).expect_err("it is wrong").to_string()
    }

    #[test]
    fn wrong_file_is_answered_with_what_was_expected() {
        toml::from_str::<ServiceFile>(FILE).expect("it is right").check().expect("it is whole");

        let unknown = error_of(&FILE.replace("post =", "path ="));
        assert!(unknown.contains("line 8") && unknown.contains("`path`, expected one of `post`"));
        let text = error_of(&FILE.replace("[201]", "\"201\""));
        assert!(text.contains("line 9") && text.contains("expected a sequence"), "{text}");
        assert!(error_of(&FILE.replace("[order]", "[orders]")).contains("`orders`"));

        for (right, wrong, expected) in [
            ("\"{port}\"", "\"8000\"", "listen"),
            ("\"{port}\"", "\"{prot}\"", "listen. {prot} is no placeholder"),
            ("\"{port}\"", "\"{port}\", \"{redis_uri}\"", "{redis_uri} is none of"),
            ("start =", "instances = 0\nstart =", "1 to 16"),
            ("post = \"/orders\"", "", "either `post`"),
            ("post =", "command = [\"buy\"]\npost =", "both `post` and `command`"),
            ("post = \"/orders\"", "command = [\"buy\"]", "status codes beside `command`"),
            (
                "post = \"/orders\"",
                "post = \"{base}/orders\"",
                "[order] post = \"{base}/orders\": it",
            ),
            ("start =", "ready = \"health\"\nstart =", "[service] ready = \"health\": it must"),
            ("sold = [201]", "", "needs `sold`"),
            ("sold = [201]", "sold = [201]\nsold_out = [409, 201]", "201 in `sold` and in"),
            ("stock = ", "row = ", "either `stock` and `sold`"),
            ("sql = ", "once = [\"true\"]\n#", "needs `sql` or `command`"),
            ("start = [\"shop\", \"{port}\"]", "urls = [\"https://shop\"]", "no TLS"),
            ("start = [\"shop\", \"{port}\"]", "urls = [\"http://shop\"]", "needs `database`"),
        ] {
            assert!(FILE.contains(right), "{right}");
            let error = error_of(&FILE.replace(right, wrong));
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    /// Braces of other languages are none of the judge's.
    #[test]
    fn misspelt_placeholders_are_named() {
        let order = r#"post = "/orders/{itme}"
            json = { query = "{ me { id } }", of = [{ product = "{item}", buyer = "{byer}" }] }
            headers = { Idempotency-Key = "{key}", Shape = "{A}{}{" }"#;
        let text = FILE.replace("post = \"/orders\"", order);
        let file: ServiceFile = toml::from_str(&text).expect("it is right");
        assert_eq!(Vec::from_iter(file.unknown_placeholders()), ["{byer}", "{itme}"]);
    }

    #[test]
    fn placeholders_are_replaced_as_text() {
        let values = Values::default().with("item", "tea").with("buyer", 7);
        assert_eq!(values.fill("'{item}' {other}"), "'tea' {other}");
        let json = json!({ "of": ["{item}", "no {buyer}", "{buyer}"], "quantity": 1 });
        let filled = json!({ "of": ["tea", "no 7", 7], "quantity": 1 });
        assert_eq!(values.fill_json(&json), filled);
    }
}
