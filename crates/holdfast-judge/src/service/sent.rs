//! What an order sends at once, to Postgres or to Redis: its name in a schedule, and what it may
//! wait for. Of a command its name and its place are looked at, not what it answers.

use std::iter::once;

use holdfast_services::{Exchange, ServerKind, Statement};

use super::sql::{fingerprint, is_scheduled};

/// Commands that are only about their connection or the server, or have their effect only at an
/// `EXEC`. Of a `WATCH` it matters whether the other order has written before it.
pub(super) const WITHOUT_EFFECT: [&str; 21] = [
    "ASKING", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DISCARD", "ECHO", "FUNCTION",
    "HELLO", "INFO", "MULTI", "PING", "QUIT", "READONLY", "RESET", "ROLE", "SCRIPT", "SELECT",
    "TIME", "UNWATCH",
];

/// The statements or commands that are sent at once.
#[derive(Debug)]
pub(super) struct SentStatements {
    pub(super) server: ServerKind,
    statements: Vec<Statement>,
}

impl SentStatements {
    pub(super) fn of<'a>(exchanges: impl IntoIterator<Item = &'a Exchange>) -> Self {
        let mut sent = Self { server: ServerKind::default(), statements: Vec::new() };
        for exchange in exchanges {
            sent.server = exchange.server;
            sent.statements.extend_from_slice(&exchange.statements);
        }
        sent
    }

    /// Returns it without its values; `None` if no switch is before it.
    pub(super) fn name(&self) -> Option<String> {
        let statements = self.statements.iter();
        let names: Vec<String> = match self.server {
            ServerKind::Postgres => {
                let fingerprints = statements.map(|statement| fingerprint(&statement.text));
                fingerprints.filter(|it| is_scheduled(it)).collect()
            }
            ServerKind::Redis => {
                let commands = statements.filter(|it| !WITHOUT_EFFECT.contains(&&*it.text));
                commands.map(|command| format!("redis {}", command.text)).collect()
            }
        };
        (!names.is_empty()).then(|| names.join("; "))
    }

    /// Returns its name with the keys of its commands: a job's `GET` is not that of an order.
    pub(super) fn name_with_keys(&self, name: &str) -> String {
        once(name).chain(self.keys()).collect::<Vec<_>>().join(" ")
    }

    /// Returns whether it asks for the same as an earlier one.
    pub(super) fn repeats(&self, earlier: &Self) -> bool {
        self.server == earlier.server && self.asked().eq(earlier.asked())
    }

    /// Returns whether a request that has sent another one, and waits, may go on after this.
    pub(super) fn may_free(&self, waiting: &Self) -> bool {
        let names = |key: &str| {
            let mut values = self.statements.iter().flat_map(|it| &it.values).flatten();
            values.any(|value| value == key)
        };
        self.server == waiting.server
            && (self.server == ServerKind::Postgres || waiting.keys().any(names))
    }

    /// Returns whether Redis may answer only after a command of another client.
    pub(super) fn may_wait(&self) -> bool {
        self.server == ServerKind::Redis && self.statements.iter().any(may_wait)
    }

    /// Returns what is the same each time that a request asks again.
    fn asked(&self) -> impl Iterator<Item = (&str, &[Option<String>])> {
        self.statements.iter().map(move |statement| {
            let values = match self.server {
                ServerKind::Postgres => &statement.values[..],
                ServerKind::Redis => without_token(statement),
            };
            (&*statement.text, values)
        })
    }

    /// Returns the first keys of commands.
    fn keys(&self) -> impl Iterator<Item = &str> {
        let commands = self.statements.iter().filter(move |_| self.server == ServerKind::Redis);
        commands.filter_map(key)
    }
}

fn may_wait(command: &Statement) -> bool {
    match &*command.text {
        "BLMOVE" | "BLMPOP" | "BLPOP" | "BRPOP" | "BRPOPLPUSH" | "BZMPOP" | "BZPOPMAX"
        | "BZPOPMIN" | "WAIT" | "WAITAOF" => true,
        "XREAD" | "XREADGROUP" => place_of(command, "BLOCK").is_some(),
        _ => false,
    }
}

/// Returns the first key of a command.
fn key(command: &Statement) -> Option<&str> {
    command.values.get(key_place(command)?)?.as_deref()
}

/// Returns which argument of a command is its first key, if it has any.
pub(super) fn key_place(command: &Statement) -> Option<usize> {
    match &*command.text {
        "BLMPOP" | "BZMPOP" => Some(2),
        "XREAD" | "XREADGROUP" => Some(place_of(command, "STREAMS")? + 1),
        name if is_script(name) => Some(2),
        _ => Some(0),
    }
}

/// Returns the arguments of a command, but not what a lock is set to: that may be another token
/// each time.
fn without_token(command: &Statement) -> &[Option<String>] {
    let kept = match &*command.text {
        "GETSET" | "SET" | "SETNX" => 1,
        // The script, the number of the keys, and the first one.
        name if is_script(name) => 3,
        _ => command.values.len(),
    };
    command.values.get(..kept).unwrap_or(&command.values)
}

pub(super) fn is_script(name: &str) -> bool {
    name.starts_with("EVAL") || name.starts_with("FCALL")
}

fn place_of(command: &Statement, word: &str) -> Option<usize> {
    let mut values = command.values.iter().map(Option::as_deref);
    values.position(|value| value.is_some_and(|value| value.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is sent at once. Commands are words with spaces between them.
    fn sent(server: ServerKind, texts: &str) -> SentStatements {
        let statements = texts.split("; ").map(|text| {
            let (name, values) = match server {
                ServerKind::Postgres => (text, ""),
                ServerKind::Redis => text.split_once(' ').unwrap_or((text, "")),
            };
            let values = values.split_whitespace().map(|value| Some(value.to_owned())).collect();
            Statement { text: name.into(), values, ..Statement::default() }
        });
        SentStatements { server, statements: statements.collect() }
    }

    fn redis(commands: &str) -> SentStatements {
        sent(ServerKind::Redis, commands)
    }

    #[test]
    fn commands_have_names_and_keys() {
        for (commands, name, with_keys) in [
            ("GET a", "redis GET", "redis GET a"),
            ("WATCH a", "redis WATCH", "redis WATCH a"),
            ("MULTI; SET a 1; EXEC", "redis SET; redis EXEC", "redis SET; redis EXEC a"),
            ("EVALSHA 5f0 1 a t", "redis EVALSHA", "redis EVALSHA a"),
            ("XREAD COUNT 1 streams a 0", "redis XREAD", "redis XREAD a"),
        ] {
            let sent = redis(commands);
            assert_eq!(sent.name().as_deref(), Some(name), "{commands}");
            assert_eq!(sent.name_with_keys(name), with_keys);
        }
        assert_eq!(redis("MULTI").name(), None);
        assert_eq!(redis("CLIENT SETINFO LIB-NAME x; SELECT 0").name(), None);
        let statement = sent(ServerKind::Postgres, "commit");
        assert_eq!(statement.name().as_deref(), Some("commit"));
        assert_eq!(statement.name_with_keys("commit"), "commit");
    }

    #[test]
    fn lock_is_asked_for_with_another_token() {
        for (earlier, again) in [
            ("SET lock t1 NX PX 1000", "SET lock t2 NX PX 1000"),
            ("EVAL x 1 lock t1", "EVAL x 1 lock t2"),
            ("EXISTS lock", "EXISTS lock"),
        ] {
            assert!(redis(again).repeats(&redis(earlier)), "{again}");
        }
        for (earlier, other) in [
            ("SET lock t1", "SET other t1"),
            ("EVAL acquire 1 lock t1", "EVAL release 1 lock t1"),
            ("HGET tea stock", "HGET tea price"),
            ("GET lock", "DEL lock"),
            ("GET lock", "GET lock; GET lock"),
        ] {
            assert!(!redis(other).repeats(&redis(earlier)), "{other}");
        }
    }

    #[test]
    fn command_that_names_the_key_may_free_it() {
        let waiting = redis("SET lock t1 NX");
        for command in ["DEL lock", "EVALSHA 5f0 1 lock t2", "UNLINK other lock"] {
            assert!(redis(command).may_free(&waiting), "{command}");
        }
        assert!(!redis("DEL other").may_free(&waiting));
        assert!(!sent(ServerKind::Postgres, "commit").may_free(&waiting));
    }

    #[test]
    fn command_that_waits_is_known() {
        for command in ["BLPOP queue 5", "XREAD block 0 STREAMS queue $", "WAIT 1 0"] {
            assert!(redis(command).may_wait(), "{command}");
        }
        for command in ["LPOP queue", "XREAD STREAMS queue 0", "BITCOUNT queue"] {
            assert!(!redis(command).may_wait(), "{command}");
        }
    }
}
