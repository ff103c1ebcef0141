//! Compares the Lua scripts with their model after every step of random traces.
//!
//! `tests/model` proves its invariants of `scripts.rs`; this test ties that model to the scripts.
//! Compared are every response, every *granted* message, and the visible state: the holder with its
//! fence and remaining lease, and the queue with the time since each owner was last seen.
//!
//! A tick ages what Redis stores, instead of waiting: a server's own clock moves by less than half
//! a tick during a trace. Owners that get in line in a release are new, as in the product.
//! A failure prints its seed; `HOLDFAST_TEST_SEED` repeats that one trace.
//! Not compared: what `tests/model/scripts.rs` says it does not model, and `raise_fence`.

use std::time::{Duration, Instant};

use redis::{Connection, Script};

use crate::scripts::{
    CURRENT_RULES, FENCES_PER_GRANT, NO_OWNER, Owner, Redis, Reply, Rules, Times, Verb, Waiter,
};
use crate::server::{Server, run};
use crate::topology::Topology;

const TICK_MS: u64 = 1_000_000;
const STEPS: usize = 60;
/// The fences of a grant, as in `constants.lua`. The model has fewer.
const FENCES_PER_GRANT_IN_REDIS: u64 = 64;
/// As in `constants.lua`.
const GRANTS_PER_SWEEP: usize = 64;
/// Fewer grants per trace: the last of them sweeps, which the model leaves out.
const _: () = assert!(STEPS < GRANTS_PER_SWEEP);
const DURATION: Duration = Duration::from_secs(3);
const MIN_TRACES: u64 = 20;
const KEYS: [&str; 4] = ["{a}", "{a}:queue", "{a}:seen", "{a}:fence"];
const CHANNELS: &str = "differential:";
/// Follows the messages of a step on their channel.
const END: &str = "end";

const RULES: Rules =
    Rules { times: Times { ttl: 3, grant: 2, waiter_timeout: 1 }, ..CURRENT_RULES };

const AGE: &str = "
    for key, unit in pairs({[KEYS[2]] = 1000, [KEYS[3]] = 1}) do
        for _, owner in ipairs(redis.call('zrange', key, 0, -1)) do
            redis.call('zincrby', key, -ARGV[1] * unit, owner)
        end
    end
    local left = redis.call('pttl', KEYS[1])
    if left > 0 then redis.call('pexpire', KEYS[1], left - ARGV[1]) end";

/// The state that other clients of Redis can observe, in the model's terms.
#[derive(Debug, PartialEq, Eq)]
struct Visible {
    /// Owner, fence, ticks left.
    lock: Option<(String, u64, u64)>,
    /// In order: the owner, ticks since it was last seen, and whether its last poll is recorded.
    queue: Vec<(String, u64, bool)>,
    grants: u64,
}

/// `xorshift64*`, so that a seed means the same trace each_topology.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % end
    }
}

struct Scripts {
    connection: Connection,
    acquire: Script,
    confirm: Script,
    release: Script,
    leave: Script,
    age: Script,
}

impl Scripts {
    /// Composed as in `src/fenced/protocol.rs`.
    fn new(url: &str) -> Self {
        macro_rules! script {
            ($($file:literal),+) => {
                Script::new(concat!(
                    include_str!("../../src/fenced/constants.lua"),
                    include_str!("../../src/fenced/publish.lua"),
                    $(include_str!(concat!("../../src/fenced/", $file))),+
                ))
            };
        }
        Self {
            connection: redis::Client::open(url).unwrap().get_connection().unwrap(),
            acquire: script!("prelude.lua", "acquire.lua"),
            confirm: script!("prelude.lua", "confirm.lua"),
            release: script!("handoff.lua", "prelude.lua", "release.lua"),
            leave: script!("prelude.lua", "leave.lua"),
            age: Script::new(AGE),
        }
    }

    fn run(&mut self, verb: Verb, owner: Owner) -> Vec<String> {
        let Times { ttl, grant, waiter_timeout } = RULES.times;
        // A lease of n ticks ends within the n-th; an owner is dead within the tick after the
        // timeout of waiters.
        let [ttl, grant] = [ttl, grant].map(|ticks| u64::from(ticks) * TICK_MS - TICK_MS / 2);
        let waiter_timeout = u64::from(waiter_timeout) * TICK_MS + TICK_MS / 2;
        let script = match verb {
            Verb::Try | Verb::Acquire => &self.acquire,
            Verb::Confirm => &self.confirm,
            Verb::Release { .. } => &self.release,
            Verb::Leave => &self.leave,
        };
        let mut call = script.prepare_invoke();
        KEYS.iter().for_each(|key| {
            call.key(key);
        });
        call.arg(name(owner));
        match verb {
            Verb::Confirm => call.arg(ttl),
            Verb::Leave => call.arg(grant).arg(waiter_timeout).arg(CHANNELS),
            _ => call.arg(ttl).arg(grant).arg(waiter_timeout).arg(CHANNELS),
        };
        match verb {
            Verb::Try => call.arg("0"),
            Verb::Acquire => call.arg("1"),
            Verb::Release { again } => call.arg(name(again)),
            Verb::Confirm | Verb::Leave => &mut call,
        };
        if verb == Verb::Leave {
            return vec![call.invoke::<String>(&mut self.connection).unwrap()];
        }
        call.invoke(&mut self.connection).unwrap()
    }

    fn tick(&mut self) {
        let mut call = self.age.prepare_invoke();
        KEYS.iter().for_each(|key| {
            call.key(key);
        });
        let () = call.arg(TICK_MS).invoke(&mut self.connection).unwrap();
    }

    fn visible(&mut self) -> Visible {
        type Read = (Option<String>, i64, Vec<(String, f64)>, Vec<(String, f64)>, Option<u64>);
        let mut pipe = redis::pipe();
        pipe.get(KEYS[0]).pttl(KEYS[0]);
        pipe.zrange_withscores(KEYS[1], 0, -1).zrange_withscores(KEYS[2], 0, -1).get(KEYS[3]);
        let (value, left, queue, seen, fences): Read = pipe.query(&mut self.connection).unwrap();
        let now: (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        let now_ms = now.0 * 1_000 + now.1 / 1_000;
        let lock = value.map(|value| {
            let (owner, rest) = value.split_once(' ').unwrap();
            let fence = rest.split_once('@').unwrap().0.parse().unwrap();
            (owner.to_owned(), fence, u64::try_from(left).unwrap().div_ceil(TICK_MS))
        });
        let queue = queue.into_iter().map(|(owner, ticket_us)| {
            let poll = seen.iter().find(|(other, _)| *other == owner);
            let last_ms = poll.map_or(0.0, |(_, ms)| *ms).max(ticket_us / 1_000.0).floor();
            let ticks = (now_ms - u64::try_from(last_ms as i64).unwrap()) / TICK_MS;
            (owner, ticks.min(u64::from(RULES.times.waiter_timeout) + 1), poll.is_some())
        });
        Visible {
            lock,
            queue: queue.collect(),
            grants: fences.unwrap_or(0) / FENCES_PER_GRANT_IN_REDIS,
        }
    }
}

fn name(owner: Owner) -> String {
    if owner == NO_OWNER { String::new() } else { format!("p{}.{owner}", owner % 3) }
}

/// The first fence of a grant, in Redis.
fn fence(of_model: u8) -> u64 {
    (u64::from(of_model / FENCES_PER_GRANT) - 1) * FENCES_PER_GRANT_IN_REDIS + 1
}

fn visible(model: &Redis) -> Visible {
    let lock = model.lock.map(|lock| (name(lock.owner), fence(lock.fence), u64::from(lock.left)));
    let queue = model.queue.iter();
    let queue =
        queue.map(|w| (name(w.owner), u64::from(w.ticks_since_poll), w.poll_is_recorded)).collect();
    Visible { lock, queue, grants: u64::from(model.grants) }
}

/// The response that the script must give, from the model's reply and its states around it.
fn response(verb: Verb, owner: Owner, before: &Redis, after: &Redis, reply: Reply) -> Vec<String> {
    let current = after.lock.map_or(0, |lock| fence(lock.fence)).to_string();
    let waiting = after.queue.len().to_string();
    let words = match (verb, reply) {
        (Verb::Release { again }, _) => {
            let was = match before.lock.map(|lock| lock.owner) {
                Some(holder) if holder == owner || holder == again => "held",
                Some(_) => "lost",
                None => "expired",
            };
            let whose = match (reply, after.lock) {
                (Reply::Held(_), _) => "next",
                (Reply::NotHeld, Some(_)) => "other",
                (Reply::NotHeld, None) => "none",
            };
            vec![was, whose, &current]
        }
        (Verb::Leave, _) => vec!["1"],
        (Verb::Confirm, Reply::Held(_)) => vec!["held", &current, &waiting],
        (_, Reply::Held(_)) => vec!["acquired", &current, &waiting],
        (Verb::Confirm, Reply::NotHeld) => vec!["lost"],
        (Verb::Try, Reply::NotHeld) => vec!["busy", &current, "0"],
        (Verb::Acquire, Reply::NotHeld) => {
            // A free lock drops the dead owners at the head of the queue first.
            let is_dead = |w: &&Waiter| w.ticks_since_poll > RULES.times.waiter_timeout;
            let dead = before.queue.iter().take_while(is_dead).count();
            let kept = &before.queue[if before.lock.is_none() { dead } else { 0 }..];
            let queued = !kept.iter().any(|waiting| waiting.owner == owner);
            vec!["busy", &current, if queued { "1" } else { "0" }]
        }
    };
    words.into_iter().map(str::to_owned).collect()
}

/// The next call: of an owner that is new, of one that was there, or once more the last one.
fn next_call(random: &mut Random, owners: &mut Vec<Owner>, last: (Verb, Owner)) -> (Verb, Owner) {
    if random.below(6) == 0 {
        return last;
    }
    let mut fresh = || {
        let owner = Owner::try_from(owners.len() + 1).unwrap();
        owners.push(owner);
        owner
    };
    let known = match random.below(4) {
        0 => fresh(),
        back => owners[owners.len().saturating_sub(back + 1)],
    };
    match random.below(8) {
        0 => (Verb::Try, known),
        1..=3 => (Verb::Acquire, known),
        4 => (Verb::Confirm, known),
        5 => (Verb::Release { again: NO_OWNER }, known),
        6 => {
            let again = Owner::try_from(owners.len() + 1).unwrap();
            owners.push(again);
            (Verb::Release { again }, known)
        }
        _ => (Verb::Leave, known),
    }
}

fn trace(scripts: &mut Scripts, messages: &mut redis::PubSub<'_>, seed: u64) {
    let () = redis::cmd("FLUSHALL").query(&mut scripts.connection).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Redis { lock: None, queue: Vec::new(), grants: 0, message: None };
    let (mut owners, mut last) = (vec![1], (Verb::Acquire, 1));
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        if random.below(5) == 0 {
            steps.push("tick".to_owned());
            model.tick(RULES);
            scripts.tick();
        } else {
            // Half of the calls come from the holder, or most would be of no effect.
            last = next_call(&mut random, &mut owners, last);
            if let Some(lock) = model.lock
                && !matches!(last.0, Verb::Acquire | Verb::Try)
                && random.below(2) == 0
            {
                last.1 = lock.owner;
            }
            let (verb, owner) = last;
            steps.push(format!("{verb:?} by {}", name(owner)));
            let before = model.clone();
            let reply = model.run(verb, owner, RULES).unwrap();
            let expected = response(verb, owner, &before, &model, reply);
            let found = scripts.run(verb, owner);
            assert_eq!(found, expected, "seed {seed}, response after {steps:#?}\n{before:#?}");
        }
        let granted = model.message.take().map(|(owner, first)| {
            let others_wait = !model.queue.is_empty();
            format!("granted {} {} {others_wait} {}", name(owner), fence(first), KEYS[0])
        });
        let found = granted_message(scripts, messages);
        assert_eq!(found, granted, "seed {seed}, message after {steps:#?}");
        assert_eq!(scripts.visible(), visible(&model), "seed {seed}, state after {steps:#?}");
    }
}

/// The message of the last step that grants the lock. Of the number of those who wait, only zero
/// means something: a handoff does not count them.
fn granted_message(scripts: &mut Scripts, messages: &mut redis::PubSub<'_>) -> Option<String> {
    let mut publish = redis::cmd("PUBLISH");
    let _: i64 =
        publish.arg(format!("{CHANNELS}p0")).arg(END).query(&mut scripts.connection).unwrap();
    let mut granted = None;
    loop {
        let message: String = messages.get_message().unwrap().get_payload().unwrap();
        if message == END {
            return granted;
        }
        if message.starts_with("granted ") {
            let [word, owner, fence, waiting, key] = message.split(' ').collect::<Vec<_>>()[..]
            else {
                panic!("{message}")
            };
            let message = format!("{word} {owner} {fence} {} {key}", waiting != "0");
            assert_eq!(granted.replace(message), None, "two grants in one step");
        }
    }
}

fn compare(server: &Server) {
    let mut scripts = Scripts::new(server.url());
    let mut subscriber = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut messages = subscriber.as_pubsub();
    messages.psubscribe(format!("{CHANNELS}*")).unwrap();
    messages.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let named = std::env::var("HOLDFAST_TEST_SEED").ok();
    let first: u64 = named.as_ref().map_or_else(rand::random, |seed| seed.parse().unwrap());
    let (started, mut traces) = (Instant::now(), 0);
    while traces < MIN_TRACES || started.elapsed() < DURATION {
        trace(&mut scripts, &mut messages, first.wrapping_add(traces));
        traces += 1;
        if named.is_some() {
            break;
        }
    }
    println!("{traces} traces of {STEPS} steps from seed {first}");
}

#[test]
fn scripts_match_their_model() {
    run(Topology::Redis, async |server| compare(server));
}

#[test]
fn scripts_match_their_model_on_valkey() {
    run(Topology::Valkey, async |server| compare(server));
}
