//! One lock in the memory of the stand-in for Redis: the outcomes of the five scripts, without the
//! commands they are made of. Only their order against the messages matters here; that the scripts
//! do this is tested on real servers (`tests/lock/differential.rs`).

use std::collections::HashMap;

use crate::fenced::FENCES_PER_GRANT;

/// A message to the process of an id.
pub(super) type Notice = (String, String);

#[derive(Debug, Default)]
pub(super) struct ModelLock {
    held: Option<ModelLease>,
    /// In the order of their tickets.
    queue: Vec<String>,
    /// When each was last seen.
    seen_us: HashMap<String, u64>,
    last_fence: i64,
}

#[derive(Debug, Clone)]
struct ModelLease {
    id: String,
    fence: i64,
    ends_us: u64,
}

/// The arguments of a script, and the time of the server.
pub(super) struct ScriptCall<'a> {
    pub now_us: u64,
    pub id: &'a str,
    pub ttl_us: u64,
    pub grant_us: u64,
    pub waiter_timeout_us: u64,
}

/// The response of a script, and the messages it sends.
#[derive(Default)]
pub(super) struct ScriptResult {
    pub response: Vec<String>,
    pub notices: Vec<Notice>,
}

impl ModelLock {
    pub(super) fn value(&mut self, now_us: u64) -> Option<(String, u64)> {
        let held = self.held_at(now_us)?;
        Some((format!("{} {}@1", held.id, held.fence), held.ends_us - now_us))
    }

    pub(super) fn is_untouched(&mut self, now_us: u64) -> bool {
        self.held_at(now_us).is_none() && self.queue.is_empty()
    }

    /// As if the server had lost the key.
    pub(super) fn lose(&mut self) {
        self.held = None;
    }

    pub(super) fn acquire(&mut self, call: &ScriptCall<'_>, waits: bool) -> ScriptResult {
        let mut outcome = ScriptResult::default();
        let held = self.held_at(call.now_us);
        if held.as_ref().is_some_and(|held| held.id == call.id) {
            let fence = self.prolong(call);
            outcome.response = self.granted("acquired", fence);
            return outcome;
        }

        let first = self.first_live_waiter(call);
        if held.is_none() && first.is_none() {
            let fence = self.grant(call.id, call.now_us + call.ttl_us);
            outcome.response = self.granted("acquired", fence);
            return outcome;
        }
        let fence = held.as_ref().map_or(0, |held| held.fence);
        if !waits {
            outcome.response = busy(fence, false);
            return outcome;
        }

        let is_new = self.enqueue(call.id, call.now_us);
        match held {
            None if self.first_live_waiter(call).as_deref() == Some(call.id) => {
                let fence = self.grant(call.id, call.now_us + call.ttl_us);
                outcome.response = self.granted("acquired", fence);
            }
            None => {
                let fence = self.grant_to_first(call, &mut outcome);
                outcome.response = busy(fence.unwrap_or(0), is_new);
            }
            Some(held) => {
                if is_new {
                    outcome.notices.push((held.id, "waiting".to_owned()));
                }
                outcome.response = busy(fence, is_new);
            }
        }
        outcome
    }

    pub(super) fn confirm(&mut self, call: &ScriptCall<'_>) -> ScriptResult {
        let is_held = self.held_at(call.now_us).is_some_and(|held| held.id == call.id);
        let response = if is_held {
            let fence = self.prolong(call);
            self.granted("held", fence)
        } else {
            vec!["lost".to_owned()]
        };
        ScriptResult { response, ..ScriptResult::default() }
    }

    pub(super) fn release(&mut self, call: &ScriptCall<'_>, next_id: &str) -> ScriptResult {
        let mut outcome = ScriptResult::default();
        let held = self.held_at(call.now_us);
        let is_held = held.as_ref().is_some_and(|held| held.id == call.id);
        if !is_held {
            self.dequeue(call.id);
        }
        if let Some(held) = held.filter(|_| !is_held) {
            if !next_id.is_empty() {
                self.enqueue(next_id, call.now_us);
                outcome.notices.push((held.id, "waiting".to_owned()));
            }
            outcome.response = released("lost", "other", held.fence);
            return outcome;
        }

        let state = if is_held { "held" } else { "expired" };
        self.held = None;
        if self.first_live_waiter(call).is_some() {
            if !next_id.is_empty() {
                self.enqueue(next_id, call.now_us);
            }
            let fence = self.grant_to_first(call, &mut outcome);
            outcome.response = released(state, "other", fence.unwrap_or(0));
        } else if next_id.is_empty() {
            outcome.response = released(state, "none", 0);
        } else {
            let fence = self.grant(next_id, call.now_us + call.ttl_us);
            outcome.response = released(state, "next", fence);
        }
        outcome
    }

    pub(super) fn leave(&mut self, call: &ScriptCall<'_>) -> ScriptResult {
        let mut outcome =
            ScriptResult { response: vec!["1".to_owned()], ..ScriptResult::default() };
        self.dequeue(call.id);
        let held = self.held_at(call.now_us);
        if held.is_none_or(|held| held.id == call.id) {
            self.held = None;
            let _ = self.grant_to_first(call, &mut outcome);
        }
        outcome
    }

    pub(super) fn raise_fence(&mut self, call: &ScriptCall<'_>, floor: i64) -> ScriptResult {
        let Some(held) = self.held_at(call.now_us).filter(|held| held.id == call.id) else {
            return ScriptResult { response: vec!["lost".to_owned()], ..ScriptResult::default() };
        };
        self.last_fence = self.last_fence.max(floor);
        let fence = self.grant(&held.id, held.ends_us);
        ScriptResult { response: self.granted("held", fence), ..ScriptResult::default() }
    }

    fn held_at(&mut self, now_us: u64) -> Option<ModelLease> {
        self.held = self.held.take().filter(|held| now_us < held.ends_us);
        self.held.clone()
    }

    fn prolong(&mut self, call: &ScriptCall<'_>) -> i64 {
        let Some(held) = &mut self.held else { return 0 };
        held.ends_us = call.now_us + call.ttl_us;
        held.fence
    }

    fn grant(&mut self, id: &str, ends_us: u64) -> i64 {
        self.dequeue(id);
        let fence = self.last_fence + 1;
        self.last_fence += FENCES_PER_GRANT;
        self.held = Some(ModelLease { id: id.to_owned(), fence, ends_us });
        fence
    }

    fn grant_to_first(&mut self, call: &ScriptCall<'_>, outcome: &mut ScriptResult) -> Option<i64> {
        let first = self.first_live_waiter(call)?;
        let fence = self.grant(&first, call.now_us + call.grant_us);
        let text = format!("granted {first} {fence} {}", self.queue.len());
        outcome.notices.push((first, text));
        Some(fence)
    }

    fn granted(&self, word: &str, fence: i64) -> Vec<String> {
        vec![word.to_owned(), fence.to_string(), self.queue.len().to_string()]
    }

    /// Returns whether it is new.
    fn enqueue(&mut self, id: &str, now_us: u64) -> bool {
        self.seen_us.insert(id.to_owned(), now_us);
        let is_new = !self.queue.iter().any(|waiter| waiter == id);
        if is_new {
            self.queue.push(id.to_owned());
        }
        is_new
    }

    fn dequeue(&mut self, id: &str) {
        self.queue.retain(|waiter| waiter != id);
        self.seen_us.remove(id);
    }

    fn first_live_waiter(&mut self, call: &ScriptCall<'_>) -> Option<String> {
        loop {
            let first = self.queue.first()?.clone();
            let seen_us = self.seen_us.get(&first).copied().unwrap_or(0);
            if seen_us + call.waiter_timeout_us >= call.now_us {
                return Some(first);
            }
            self.dequeue(&first);
        }
    }
}

fn busy(fence: i64, is_new: bool) -> Vec<String> {
    vec!["busy".to_owned(), fence.to_string(), u8::from(is_new).to_string()]
}

fn released(state: &str, holder: &str, fence: i64) -> Vec<String> {
    [state, holder, &fence.to_string()].map(str::to_owned).to_vec()
}
