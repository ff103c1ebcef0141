//! The confirmation of `holdfast keys --delete-big` at a terminal: only the word `delete` deletes
//! keys, and without a terminal the command fails.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::keys::TestRedis;
use crate::keys_command::{command, error_of, filled, stdout_of, text};
use crate::topology::Topology;

/// The end of the question.
const QUESTION: &str = "Type `delete` to confirm: ";
/// Ctrl-D, at a terminal.
const END_OF_INPUT: &str = "\x04";

/// The program at a terminal of its own, which has asked its question.
struct Prompt {
    program: Child,
    /// Input of the terminal.
    keyboard: File,
    /// Its stderr up to the question.
    message: String,
}

/// Starts it, and waits for the question.
fn prompt(mut command: Command) -> Prompt {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    // Otherwise a replica of another test inherits it, and it is never closed.
    #[cfg(target_os = "linux")]
    let flags = flags | OpenptFlags::CLOEXEC;
    let keyboard = openpt(flags).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let terminal = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    command.stdin(terminal.unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let stderr = program.stderr.as_mut().unwrap();
    let (mut message, mut byte) = (Vec::new(), [0]);
    while !message.ends_with(QUESTION.as_bytes()) {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "it ended: {}", text(&message));
        message.push(byte[0]);
    }
    Prompt { program, keyboard: keyboard.into(), message: text(&message) }
}

impl Prompt {
    fn answer(mut self, typed: &str) -> Output {
        self.keyboard.write_all(typed.as_bytes()).unwrap();
        self.program.wait_with_output().unwrap()
    }

    /// The terminal is closed.
    fn close_terminal(self) -> Output {
        drop(self.keyboard);
        self.program.wait_with_output().unwrap()
    }
}

async fn seven_big_keys() -> TestRedis {
    let redis_server = filled(Topology::Redis).await.unwrap();
    assert_eq!(redis_server.count().await, 12);
    redis_server
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmation_deletes_the_listed_keys() {
    let redis_server = seven_big_keys().await;
    let asked = prompt(command(redis_server.url(), &["--delete-big"]));
    let message = &asked.message;
    assert!(message.contains("Remove these 6 keys permanently?"), "{message}");
    for kind in ["hash", "set", "zset", "list", "stream"] {
        assert!(message.contains(&format!("big:{kind}")), "it is shown what goes: {message}");
    }
    assert!(!message.contains("holdfast:expiry"), "nor the shop's: {message}");
    assert_eq!(redis_server.count().await, 12, "nothing goes while it asks");
    let output = stdout_of(&asked.answer("delete\n"));
    assert_eq!(output.lines().filter(|line| line.starts_with("removed ")).count(), 6, "{output}");
    assert_eq!(redis_server.count().await, 6, "the small ones and the shop's");
    assert!(redis_server.has(b"holdfast:expiry:{1}").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_input_deletes_nothing() {
    let redis_server = seven_big_keys().await;
    for typed in ["\n", "y\n", "yes\n", "DELETE\n", "delete them\n", END_OF_INPUT] {
        let output = prompt(command(redis_server.url(), &["--delete-big"])).answer(typed);
        assert_eq!(output.status.code(), Some(1), "{typed:?}: {output:?}");
        let message = text(&output.stderr);
        assert_eq!(message.trim(), "Nothing was removed.", "{typed:?}");
        assert!(!text(&output.stdout).contains("removed "), "{typed:?}: {output:?}");
        assert_eq!(redis_server.count().await, 12, "{typed:?}");
    }
    let json = prompt(command(redis_server.url(), &["--delete-big", "--json"])).answer("no\n");
    let output: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(output["top"].as_array().map(Vec::len), Some(6), "{output:#}");
    assert_eq!(output["deleted"], serde_json::json!([]), "{output:#}");
    assert_eq!(redis_server.count().await, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_terminal_is_no_confirmation() {
    let redis_server = seven_big_keys().await;
    let output = prompt(command(redis_server.url(), &["--delete-big"])).close_terminal();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr).to_lowercase();
    assert!(message.contains("nothing was removed"), "{message}");
    assert_eq!(redis_server.count().await, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmation_requires_a_terminal() {
    let redis_server = seven_big_keys().await;
    let mut piped = command(redis_server.url(), &["--delete-big"]);
    piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    // It may have exited before it reads this.
    let _ = piped.stdin.take().unwrap().write_all(b"delete\n");
    let real = command(redis_server.url(), &["--delete-big"]);
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$@\" <&-", "sh"]).arg(real.get_program()).args(real.get_args());
    for (name, value) in real.get_envs() {
        match value {
            Some(value) => closed.env(name, value),
            None => closed.env_remove(name),
        };
    }
    for output in [piped.wait_with_output().unwrap(), closed.output().unwrap()] {
        let why = error_of(&output);
        assert!(why.contains("no terminal") && why.contains("nothing was done"), "{why}");
        assert!(why.contains("--yes"), "what to do: {why}");
        assert_eq!(redis_server.count().await, 12);
    }
}
