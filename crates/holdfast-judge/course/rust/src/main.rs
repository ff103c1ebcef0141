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
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::exit;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
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
    state: Mutex<RequestState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct RequestState {
    is_cancelled: bool,
    /// On which it waits for a reply.
    connection: Option<TcpStream>,
}

impl Request {
    fn cancel(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cancelled = true;
        if let Some(connection) = &state.connection {
            // Its reply is not waited for.
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.wake.notify_all();
    }

    /// Fails once: what cleans up may use the server.
    fn begin(&self, connection: Option<TcpStream>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.is_cancelled) {
            return Err(Cancelled.into());
        }
        state.connection = connection;
        Ok(())
    }

    fn end(&self) {
        self.state.lock().unwrap().connection = None;
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
    let state = request.state.lock().unwrap();
    drop(request.wake.wait_timeout_while(state, duration, |state| !state.is_cancelled));
}

// ---------------------------------------------------------------- servers

#[derive(Debug)]
struct Setup {
    redis_host: String,
    redis_password: String,
    database_url: String,
    ttl_ms: u64,
    level: u32,
}

static SETUP: OnceLock<Setup> = OnceLock::new();
static IDLE: Mutex<Vec<BufReader<TcpStream>>> = Mutex::new(Vec::new());
static LEASES: Mutex<Option<HashMap<String, Sender<Message>>>> = Mutex::new(None);
/// The requests that are not answered yet, by their ids.
static REQUESTS: Mutex<Option<HashMap<String, Arc<Request>>>> = Mutex::new(None);

fn setup() -> &'static Setup {
    SETUP.get().expect("the judge sends `init` first")
}

#[allow(dead_code)]
pub fn database_url() -> &'static str {
    &setup().database_url
}

/// Sends a command and returns its reply. A connection serves one call at a time.
pub fn redis(words: &[&str]) -> Result<Reply> {
    let request = request();
    request.begin(None)?;
    let idle = IDLE.lock().unwrap().pop();
    let mut connection = match idle {
        Some(connection) => connection,
        None => connect()?,
    };
    request.begin(Some(connection.get_ref().try_clone()?))?;
    let reply = call(&mut connection, words);
    request.end();
    match &reply {
        Err(error) if error.is::<io::Error>() => {
            request.begin(None)?;
            // The other idle connections are of the same server.
            IDLE.lock().unwrap().clear();
        }
        _ => IDLE.lock().unwrap().push(connection),
    }
    reply
}

fn connect() -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(&setup().redis_host)?;
    stream.set_nodelay(true)?;
    let mut connection = BufReader::new(stream);
    call(&mut connection, &["AUTH", &setup().redis_password])?;
    Ok(connection)
}

fn call(connection: &mut BufReader<TcpStream>, words: &[&str]) -> Result<Reply> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    connection.get_mut().write_all(request.as_bytes())?;
    read_reply(connection)
}

fn read_reply(connection: &mut BufReader<TcpStream>) -> Result<Reply> {
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let rest = line[1..].trim_end();
    match line.as_bytes()[0] {
        b'-' => Err(rest.into()),
        b':' => Ok(Reply::Integer(rest.parse()?)),
        b'+' => Ok(Reply::Text(rest.to_owned())),
        _ if rest == "-1" => Ok(Reply::Nil),
        b'$' => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => {
            let replies = (0..rest.parse::<usize>()?).map(|_| read_reply(connection));
            Ok(Reply::List(replies.collect::<Result<_>>()?))
        }
    }
}

// ---------------------------------------------------------------- the judge's protocol

/// A request of the judge: a flat object of strings and numbers.
type Message = HashMap<String, String>;

fn parse(line: &str) -> Message {
    let mut message = Message::new();
    let mut chars = line.trim().trim_start_matches('{').chars().peekable();
    let mut words = Vec::new();
    while let Some(c) = chars.next() {
        let mut word = String::new();
        if c == '"' {
            while let Some(c) = chars.next() {
                match c {
                    '"' => break,
                    '\\' => word.extend(chars.next()),
                    c => word.push(c),
                }
            }
        } else if c.is_ascii_digit() || c == '-' {
            word.push(c);
            while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || *c == '.') {
                word.push(c);
            }
        } else {
            continue;
        }
        words.push(word);
    }
    for pair in words.chunks(2) {
        if let [name, value] = pair {
            message.insert(name.clone(), value.clone());
        }
    }
    message
}

fn quote(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            c if c.is_control() => " ".to_owned(),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn answer(message: &Message, fields: &str) {
    REQUESTS.lock().unwrap().get_or_insert_default().remove(&message["id"]);
    let line = format!("{{\"id\":{},{fields}}}\n", message["id"]);
    let _ = io::stdout().lock().write_all(line.as_bytes());
    let _ = io::stdout().flush();
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

fn initialize(message: &Message) {
    let (credentials, host) = message["redis_url"]
        .trim_start_matches("redis://:")
        .split_once('@')
        .expect("an address with a password");
    let level = std::env::var("HOLDFAST_COURSE_LEVEL").ok().and_then(|level| level.parse().ok());
    let level = level.unwrap_or(1);
    SETUP
        .set(Setup {
            redis_host: host.split('/').next().unwrap_or_default().to_owned(),
            redis_password: credentials.to_owned(),
            database_url: message["database_url"].clone(),
            ttl_ms: message["ttl_ms"].parse().expect("a number"),
            level,
        })
        .expect("one `init`");
    let fencing = level >= 5;
    let renews = level >= 4;
    let fields = format!("\"fencing\":{fencing},\"renews\":{renews},\"cancels\":true");
    answer(message, &format!("\"ok\":true,\"name\":\"lock.rs\",{fields}"));
}

/// Makes a request one that can be cancelled, until it is answered.
fn register(message: &Message, request: &Arc<Request>) {
    let mut requests = REQUESTS.lock().unwrap();
    requests.get_or_insert_default().insert(message["id"].clone(), Arc::clone(request));
}

fn cancel(message: &Message) {
    let request = REQUESTS.lock().unwrap().get_or_insert_default().remove(&message["request"]);
    if let Some(request) = request {
        request.cancel();
    }
    answer(message, "\"ok\":true");
}

/// Acquires, answers, and serves the request to release.
fn serve_lock(message: Message, request: Arc<Request>) {
    REQUEST.set(request);
    let key = message["key"].clone();
    let wait = Duration::from_millis(message["wait_ms"].parse().expect("a number"));
    let (token, fence) = match lock::acquire(&key, wait, setup().ttl_ms) {
        Ok(Some(held)) => held,
        Ok(None) => return answer(&message, "\"ok\":false,\"reason\":\"timeout\""),
        Err(error) => return answer_error(&message, &*error),
    };
    let fence = match (setup().level >= 5, fence) {
        (true, Some(fence)) => format!(",\"fence\":{fence}"),
        (true, None) => stop("acquire returned no fence: from level 5 on, it returns Some(fence)"),
        (false, _) => String::new(),
    };

    let lease = format!("{}-{}", std::process::id(), message["id"]);
    let (sender, releases) = channel();
    LEASES.lock().unwrap().get_or_insert_default().insert(lease.clone(), sender);
    answer(&message, &format!("\"ok\":true,\"lease\":\"{lease}\"{fence}"));
    let Ok(message) = releases.recv() else { return };
    // Another one: a late cancellation of `acquire` has come to nothing.
    let request = Arc::default();
    register(&message, &request);
    REQUEST.set(request);
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
        let message = parse(&line);
        match message.get("op").map(String::as_str) {
            Some("init") => initialize(&message),
            Some("acquire") => {
                let request = Arc::default();
                register(&message, &request);
                thread::spawn(|| serve_lock(message, request));
            }
            Some("cancel") => cancel(&message),
            Some("release") => {
                let mut leases = LEASES.lock().unwrap();
                let lease = leases.get_or_insert_default().remove(&message["lease"]);
                if let Some(lease) = lease {
                    let _ = lease.send(message);
                }
            }
            _ => {}
        }
    }
    // Also what waits for the lock.
    exit(0);
}
