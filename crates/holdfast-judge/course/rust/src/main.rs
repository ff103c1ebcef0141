//! What `holdfast course` brings for lock.rs: a Redis, and the judge's protocol.
//!
//! ```ignore
//! redis(&["SET", key, &token, "NX", "PX", "500"])?      // a `Reply`
//! ```
//!
//! It fails if the server is away, with the server's own words if it refuses a command, or with
//! [`Cancelled`]: pass the error on by `?`. Threads may call it at the same time. `sleep(duration)`
//! ends early if the request is cancelled. `database_url()` is the address of a Postgres, for a
//! crate of your choice.
//!
//! There is a sequence `fences` in Postgres. What lock.rs writes to stderr is shown with the check.
//!
//! You need not change this file.

/// In place of the standard library's, for lock.rs: the judge reads answers from stdout.
#[allow(unused_macros)]
macro_rules! print {
    ($($text:tt)*) => { crate::refuse_print(file!(), line!(), &format!($($text)*)) };
}
#[allow(unused_macros)]
macro_rules! println {
    () => { print!("") };
    ($($text:tt)*) => { print!($($text)*) };
}

mod lock;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::iter::Peekable;
use std::process::exit;
use std::str::Chars;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A reply of Redis.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    List(Vec<Reply>),
}

// ---------------------------------------------------------------- requests

/// The caller gave up: an error of the next call of `redis` in that request. Clean up, and pass it
/// on.
#[derive(Debug)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// A call of `acquire`, or of the `release` that follows it in the same thread.
#[derive(Debug, Default)]
struct Request {
    /// `None` for a thread of lock.rs itself.
    id: Option<i64>,
    is_cancelled: Mutex<bool>,
    wake: Condvar,
}

impl Request {
    fn cancel(&self) {
        *self.is_cancelled.lock().unwrap() = true;
        self.wake.notify_all();
    }

    /// Fails once: what cleans up may use the server.
    fn check(&self) -> Result<()> {
        match std::mem::take(&mut *self.is_cancelled.lock().unwrap()) {
            true => Err(Cancelled.into()),
            false => Ok(()),
        }
    }
}

thread_local! {
    /// That of this thread. One of lock.rs itself has a request that nobody cancels.
    static REQUEST: RefCell<Arc<Request>> = RefCell::default();
}

fn request() -> Arc<Request> {
    REQUEST.with_borrow(Arc::clone)
}

#[allow(dead_code)]
pub fn sleep(duration: Duration) {
    let request = request();
    let is_cancelled = request.is_cancelled.lock().unwrap();
    drop(request.wake.wait_timeout_while(is_cancelled, duration, |is_cancelled| !*is_cancelled));
}

// ---------------------------------------------------------------- calls of the server

/// What is in flight. Who holds its lock may write to the judge, which sees calls and cancellations
/// in this order.
#[derive(Debug, Default)]
struct InFlight {
    /// The requests that are not answered yet, by their ids.
    requests: HashMap<i64, Arc<Request>>,
    /// Of each lease, where the request to release it arrives.
    leases: HashMap<String, Sender<Message>>,
    /// Of each call, where its reply arrives.
    calls: HashMap<i64, Sender<Message>>,
    last_call: i64,
}

/// The request `init`.
static SETUP: OnceLock<Message> = OnceLock::new();
static IN_FLIGHT: LazyLock<Mutex<InFlight>> = LazyLock::new(Mutex::default);

fn setup() -> &'static Message {
    SETUP.get().expect("the judge sends `init` first")
}

fn level() -> u32 {
    std::env::var("HOLDFAST_COURSE_LEVEL").ok().and_then(|level| level.parse().ok()).unwrap_or(1)
}

fn in_flight() -> MutexGuard<'static, InFlight> {
    IN_FLIGHT.lock().unwrap()
}

#[allow(dead_code)]
pub fn database_url() -> &'static str {
    setup().text("database_url")
}

/// Lets the judge's worker send a command, by a connection for this call alone. Returns its reply.
pub fn redis(words: &[&str]) -> Result<Reply> {
    let request = request();
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let words = words.join(",");
    let id = request.id.map_or("null".to_owned(), |id| id.to_string());
    let (sender, replies) = channel();

    let mut in_flight = in_flight();
    request.check()?;
    in_flight.last_call += 1;
    let call = in_flight.last_call;
    in_flight.calls.insert(call, sender);
    write(&format!(r#"{{"op":"redis","call":{call},"request":{id},"words":[{words}]}}"#));
    drop(in_flight);

    let mut reply = replies.recv()?;
    if let Some(value) = reply.0.remove("value") {
        return Ok(value);
    }
    if reply.0.contains_key("error") {
        return Err(reply.text("error").into());
    }
    request.check()?;
    Err(io::Error::new(io::ErrorKind::ConnectionAborted, reply.text("away")).into())
}

// ---------------------------------------------------------------- JSON

/// An object of the judge.
#[derive(Debug, Default)]
struct Message(HashMap<String, Reply>);

impl Message {
    fn text(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(Reply::Text(text)) => text,
            other => panic!("{name} is no text: {other:?}"),
        }
    }

    fn number(&self, name: &str) -> i64 {
        match self.0.get(name) {
            Some(Reply::Integer(number)) => *number,
            other => panic!("{name} is no number: {other:?}"),
        }
    }
}

/// Reads what the judge writes: strings, whole numbers, null, and lists of them.
struct Parser<'a>(Peekable<Chars<'a>>);

impl Parser<'_> {
    fn message(mut self) -> Message {
        let mut message = Message::default();
        while self.0.find(|c| *c == '"').is_some() {
            let name = self.text();
            self.0.next(); // the colon
            let value = self.value();
            message.0.insert(name, value);
        }
        message
    }

    fn value(&mut self) -> Reply {
        match self.0.next() {
            Some('"') => Reply::Text(self.text()),
            Some('[') => {
                let mut list = Vec::new();
                while self.0.next_if_eq(&']').is_none() {
                    list.push(self.value());
                    self.0.next_if_eq(&',');
                }
                Reply::List(list)
            }
            Some('n') => {
                self.0.by_ref().take(3).for_each(drop); // of `null`
                Reply::Nil
            }
            first => {
                let mut digits: String = first.into_iter().collect();
                while let Some(digit) = self.0.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                Reply::Integer(digits.parse().expect("a number"))
            }
        }
    }

    /// Reads a text to its end, after the first quotation mark.
    fn text(&mut self) -> String {
        let mut text = String::new();
        loop {
            let c = match self.0.next().expect("a closed string") {
                '"' => return text,
                '\\' => self.escaped(),
                c => c,
            };
            text.push(c);
        }
    }

    fn escaped(&mut self) -> char {
        match self.0.next().expect("an escaped character") {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits: String = self.0.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).expect("four digits");
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            c => c,
        }
    }
}

fn quote(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

// ---------------------------------------------------------------- the judge's protocol

fn write(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

fn answer(message: &Message, fields: &str) {
    let id = message.number("id");
    let mut in_flight = in_flight();
    in_flight.requests.remove(&id);
    write(&format!("{{\"id\":{id},{fields}}}"));
}

#[allow(dead_code)]
fn refuse_print(file: &str, line: u32, text: &str) {
    stop(&format!(
        "{file}, line {line}: it prints {text:?} to stdout, which belongs to the judge. Use eprintln!"
    ))
}

/// Ends the check, and says why.
fn stop(why: &str) -> ! {
    eprintln!("{why}");
    exit(3)
}

fn initialize(message: Message) {
    let (fencing, renews) = (level() >= 5, level() >= 4);
    let fields = format!("\"fencing\":{fencing},\"renews\":{renews},\"cancels\":true");
    answer(&message, &format!("\"ok\":true,\"name\":\"lock.rs\",{fields}"));
    SETUP.set(message).expect("one `init`");
}

/// Makes a request one that can be cancelled, until it is answered.
fn register(message: &Message) -> Arc<Request> {
    let id = message.number("id");
    let request = Arc::new(Request { id: Some(id), ..Request::default() });
    in_flight().requests.insert(id, Arc::clone(&request));
    request
}

fn cancel(message: &Message) {
    let id = message.number("id");
    let mut in_flight = in_flight();
    if let Some(request) = in_flight.requests.remove(&message.number("request")) {
        request.cancel();
    }
    // With this answer, the judge closes the connection on which the request waits.
    write(&format!("{{\"id\":{id},\"ok\":true}}"));
}

/// Acquires, answers, and serves the request to release.
fn serve_lock(message: Message, request: Arc<Request>) {
    REQUEST.set(request);
    let key = message.text("key").to_owned();
    let wait = Duration::from_millis(message.number("wait_ms").unsigned_abs());
    let ttl_ms = setup().number("ttl_ms").unsigned_abs();
    let (token, fence) = match lock::acquire(&key, wait, ttl_ms) {
        Ok(Some(held)) => held,
        Ok(None) => return answer(&message, "\"ok\":false,\"reason\":\"timeout\""),
        Err(error) => return answer_error(&message, &*error),
    };
    let fence = match (level() >= 5, fence) {
        (true, Some(fence)) => format!(",\"fence\":{fence}"),
        (true, None) => stop("acquire returned no fence: from level 5 on, it returns Some(fence)"),
        (false, _) => String::new(),
    };

    let lease = format!("{}-{}", std::process::id(), message.number("id"));
    let (sender, releases) = channel();
    in_flight().leases.insert(lease.clone(), sender);
    answer(&message, &format!("\"ok\":true,\"lease\":\"{lease}\"{fence}"));
    let Ok(message) = releases.recv() else { return };
    // Another one: a late cancellation of `acquire` has come to nothing.
    REQUEST.set(register(&message));
    match lock::release(&key, &token) {
        Ok(true) => answer(&message, "\"ok\":true"),
        Ok(false) => answer(&message, "\"ok\":false,\"reason\":\"lost\""),
        Err(error) => answer_error(&message, &*error),
    }
}

fn answer_error(message: &Message, error: &(dyn std::error::Error + 'static)) {
    if error.is::<Cancelled>() {
        return answer(message, "\"ok\":false,\"reason\":\"cancelled\"");
    }
    // A server that is away is no fault of the lock.
    let detail = quote(&error.to_string());
    answer(message, &format!("\"ok\":false,\"reason\":\"error\",\"detail\":{detail}"));
}

fn main() {
    std::panic::set_hook(Box::new(|panic| stop(&panic.to_string())));
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        let message = Parser(line.chars().peekable()).message();
        match message.text("op") {
            "init" => initialize(message),
            "acquire" => {
                let request = register(&message);
                thread::spawn(|| serve_lock(message, request));
            }
            "cancel" => cancel(&message),
            "release" => pass_on(in_flight().leases.remove(message.text("lease")), message),
            "reply" => pass_on(in_flight().calls.remove(&message.number("call")), message),
            _ => {}
        }
    }
    // Also what waits for the lock.
    exit(0);
}

fn pass_on(waiting: Option<Sender<Message>>, message: Message) {
    if let Some(waiting) = waiting {
        let _ = waiting.send(message);
    }
}
