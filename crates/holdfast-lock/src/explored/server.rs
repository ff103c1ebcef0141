//! The stand-in for Redis: streams in memory, on which commands and their responses take a random
//! time. Each connection is served in its order, as Redis does; connections overtake each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::model::{ModelLock, Notice, ScriptCall, ScriptResult};
use crate::clock::monotonic_us;
use crate::fenced::script_of;
use crate::time::sleep;
use crate::time::virtual_clock::{once_in, shuffled, up_to};

/// Failures, each once in this number of times; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// A response is late.
    pub late: u32,
    /// By as much as this.
    pub max_lateness: Duration,
    /// The connection ends at a command, before or after it is executed.
    pub cut: u32,
    /// A message is lost.
    pub lost_message: u32,
    /// The lock is lost.
    pub lost_lock: u32,
}

const USUAL_LATENCY: Duration = Duration::from_millis(2);

type Replies = mpsc::UnboundedSender<String>;

#[derive(Clone, Default)]
pub(super) struct RedisStandIn(Arc<Mutex<StandInState>>);

#[derive(Default)]
struct StandInState {
    locks: HashMap<String, ModelLock>,
    subscribers: HashMap<String, Vec<Replies>>,
    faults: Faults,
}

impl RedisStandIn {
    pub(super) fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Returns whether no lock is held or waited for.
    pub(super) fn is_untouched(&self) -> bool {
        let now_us = monotonic_us();
        self.0.lock().locks.values_mut().all(|lock| lock.is_untouched(now_us))
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.0.lock().subscribers.values().flatten().filter(|one| !one.is_closed()).count()
    }

    pub(super) fn connect(&self) -> DuplexStream {
        let (client, stream) = tokio::io::duplex(1 << 16);
        tokio::spawn(shuffled(self.clone().serve(stream)));
        client
    }

    async fn serve(self, stream: DuplexStream) {
        let (read, write) = tokio::io::split(stream);
        let mut read = BufReader::new(read);
        let (replies, queue) = mpsc::unbounded_channel();
        let cut = CancellationToken::new();
        let writing = write_replies(self.clone(), queue, write);
        let _writer = tokio::spawn(shuffled(cut.clone().run_until_cancelled_owned(writing)));
        let _cut_at_the_end = cut.drop_guard();

        while let Some(command) = read_command(&mut read).await {
            sleep(up_to(USUAL_LATENCY)).await;
            let faults = self.0.lock().faults;
            if once_in(faults.cut) {
                return;
            }
            let reply = self.execute(&command, &replies);
            let _ = replies.send(reply);
            if once_in(faults.cut) {
                return;
            }
        }
    }

    fn execute(&self, command: &[String], replies: &Replies) -> String {
        let name = command[0].to_ascii_uppercase();
        let mut state = self.0.lock();
        match name.as_str() {
            "HELLO" => "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_owned(),
            "GET" | "PTTL" => {
                let value = state.lock_of(&command[1]).value(monotonic_us());
                match (name.as_str(), value) {
                    ("GET", Some((value, _))) => bulk(&value),
                    ("GET", None) => "$-1\r\n".to_owned(),
                    (_, Some((_, left_us))) => format!(":{}\r\n", left_us / 1_000),
                    (_, None) => ":-2\r\n".to_owned(),
                }
            }
            "SUBSCRIBE" => {
                let subscribers = state.subscribers.entry(command[1].clone()).or_default();
                subscribers.push(replies.clone());
                format!("*3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(&command[1]))
            }
            "PING" if state.subscribers.values().flatten().any(|one| one.same_channel(replies)) => {
                format!("*2\r\n{}{}", bulk("pong"), bulk(""))
            }
            "EVAL" | "EVALSHA" => state.run_script(command),
            // PING, CLIENT SETINFO
            _ => "+OK\r\n".to_owned(),
        }
    }
}

impl StandInState {
    fn lock_of(&mut self, key: &str) -> &mut ModelLock {
        self.locks.entry(key.to_owned()).or_default()
    }

    fn run_script(&mut self, command: &[String]) -> String {
        let script = script_of(&command[1]);
        let (key, arguments) = (command[3].clone(), &command[7..]);
        let us = |at: usize| arguments[at].parse::<u64>().expect("milliseconds") * 1_000;
        let call = |ttl: Option<usize>, grant: Option<usize>| ScriptCall {
            now_us: monotonic_us(),
            id: &arguments[0],
            ttl_us: ttl.map_or(0, us),
            grant_us: grant.map_or(0, us),
            waiter_timeout_us: grant.map_or(0, |at| us(at + 1)),
        };

        if once_in(self.faults.lost_lock) {
            self.lock_of(&key).lose();
        }
        let lock = self.lock_of(&key);
        let (outcome, channels) = match script {
            "acquire" => {
                let outcome = lock.acquire(&call(Some(1), Some(2)), arguments[5] == "1");
                (outcome, Some(&arguments[4]))
            }
            "confirm" => (lock.confirm(&call(Some(1), None)), None),
            "release" => {
                let outcome = lock.release(&call(Some(1), Some(2)), &arguments[5]);
                (outcome, Some(&arguments[4]))
            }
            "leave" => (lock.leave(&call(None, Some(1))), Some(&arguments[3])),
            _ => {
                let floor = arguments[1].parse().expect("a fence");
                (lock.raise_fence(&call(None, None), floor), None)
            }
        };

        let ScriptResult { response, notices } = outcome;
        for notice in notices {
            self.publish(channels.map_or("", String::as_str), &key, &notice);
        }
        let mut reply = format!("*{}\r\n", response.len());
        response.iter().for_each(|text| reply += &bulk(text));
        reply
    }

    fn publish(&mut self, channels: &str, key: &str, (id, message): &Notice) {
        let process = id.split_once('.').map_or("", |(process, _)| process);
        let channel = format!("{channels}{process}");
        if once_in(self.faults.lost_message) {
            return;
        }
        let text = bulk(&format!("{message} {key}"));
        let message = format!("*3\r\n{}{}{text}", bulk("message"), bulk(&channel));
        for subscriber in self.subscribers.get(&channel).into_iter().flatten() {
            let _ = subscriber.send(message.clone());
        }
    }
}

async fn write_replies(
    server: RedisStandIn,
    mut queue: mpsc::UnboundedReceiver<String>,
    mut stream: WriteHalf<DuplexStream>,
) {
    while let Some(reply) = queue.recv().await {
        let faults = server.0.lock().faults;
        let latency = if once_in(faults.late) { faults.max_lateness } else { USUAL_LATENCY };
        sleep(up_to(latency)).await;
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads an array of bulk strings; `None` at the end of the stream.
async fn read_command(read: &mut BufReader<ReadHalf<DuplexStream>>) -> Option<Vec<String>> {
    let count = read_number(read).await?;
    let mut command = Vec::with_capacity(count);
    for _ in 0..count {
        let length = read_number(read).await?;
        let mut text = vec![0; length + 2];
        read.read_exact(&mut text).await.ok()?;
        text.truncate(length);
        command.push(String::from_utf8(text).ok()?);
    }
    Some(command)
}

/// Reads the number behind the sign of a line.
async fn read_number(read: &mut BufReader<ReadHalf<DuplexStream>>) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
