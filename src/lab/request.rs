//! One request of a lesson: what it wishes for, on its way, and what came of it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::run::LaneEvent;

/// No request takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The strategy.
    pub lock: &'static str,
    /// `try`, `retry` or `notify`.
    pub wait: Option<&'static str>,
    /// How it is offered to a queue: `add`, `offer`, `put` or `offer-for:250`.
    pub offer: Option<&'static str>,
    /// How many places the queue has.
    pub places: Option<u16>,
    /// Who goes first in it: `high` or `normal`.
    pub priority: Option<&'static str>,
    /// Extra work between read and write.
    pub work_ms: u64,
    /// The lease.
    pub ttl_ms: Option<u64>,
    /// Where it is held: a point's name, or `every`.
    pub pause: Option<&'static str>,
    /// How long the order keeps its units unpaid.
    pub hold_ms: Option<u64>,
}

impl Wish {
    /// Nothing but a strategy.
    pub fn under(lock: &'static str) -> Self {
        Self { lock, ..Self::default() }
    }

    pub(super) fn headers(&self) -> Vec<String> {
        let mut lines = vec![format!("Holdfast-Lock: {}", self.lock), "Holdfast-Trace: on".into()];
        if let Some(wait) = self.wait {
            lines.push(format!("Holdfast-Wait: {wait}"));
        }
        if let Some(offer) = self.offer {
            lines.push(format!("Holdfast-Offer: {offer}"));
        }
        if let Some(places) = self.places {
            lines.push(format!("Holdfast-Places: {places}"));
        }
        if let Some(priority) = self.priority {
            lines.push(format!("Holdfast-Priority: {priority}"));
        }
        if self.work_ms > 0 {
            lines.push(format!("Holdfast-Work-Ms: {}", self.work_ms));
        }
        if let Some(ttl) = self.ttl_ms {
            lines.push(format!("Holdfast-Ttl-Ms: {ttl}"));
        }
        if let Some(pause) = self.pause {
            lines.push(format!("Holdfast-Pause: {pause}"));
        }
        if let Some(hold) = self.hold_ms {
            lines.push(format!("Holdfast-Hold-Ms: {hold}"));
        }
        lines
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct Asking {
    pub id: Uuid,
    pub(super) label: String,
    pub(super) replica: usize,
    pub(super) sent_us: u64,
    pub(super) answer: JoinHandle<std::io::Result<(u16, Vec<u8>)>>,
    pub(super) outside: Vec<LaneEvent>,
}

impl Asking {
    /// What came of it, for a request that nobody looks at.
    pub(super) async fn done(self) -> anyhow::Result<Answer> {
        let (status, body) = tokio::time::timeout(PATIENCE, self.answer).await???;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { status: Some(status), body })
    }
}

#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status; none when its connection broke.
    pub status: Option<u16>,
    pub body: Value,
}

impl Answer {
    pub fn is_done(&self) -> bool {
        matches!(self.status, Some(200 | 201))
    }

    /// What the item's stock was before this order, by its own entry.
    pub fn before(&self) -> Option<i64> {
        self.body.pointer("/lines/0/stock/before").and_then(Value::as_i64)
    }

    pub fn order(&self) -> Option<Uuid> {
        self.body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok())
    }

    /// The problem's name, if it is one: `sold-out`.
    pub fn problem(&self) -> Option<&str> {
        let name = self.body.get("type").and_then(Value::as_str)?;
        name.rsplit('/').next()
    }
}

/// One line of a trace, as the API gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Traced {
    pub(super) t_us: u64,
    pub(super) event: String,
    pub(super) key: String,
    pub(super) value: Option<i64>,
    pub(super) fence: Option<i64>,
}
