//! One event of a timeline: its kind, what it concerned, and its words.

use std::fmt;

use strum::{EnumString, IntoStaticStr};

use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_shop::Cents;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub lane: usize,
    pub at_us: u64,
    pub kind: EventKind,
    pub detail: Detail,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// What was read, written or answered.
    pub value: Option<Value>,
    pub fence: Option<i64>,
    /// Name of what the event concerns, if the timeline concerns several things.
    pub key: Option<String>,
    pub statement: Option<String>,
    /// True for a write that lost an update, or sold a unit again.
    pub is_loss: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Units(i64),
    Money(Cents),
    Status(u16),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => {
                let sign = if *units < 0 { "−" } else { "" };
                write!(f, "{sign}{}", grouped(units.unsigned_abs()))
            }
            Self::Money(cents) => cents.fmt(f),
            Self::Status(status) => status.fmt(f),
        }
    }
}

/// A kind of event; its text is its name in a trace, in messages and in the style of a drawing.
#[derive(Debug, Clone, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum EventKind {
    Sent,
    /// Without a lock, like `End`.
    Begin,
    Wait,
    /// It is about to set the expiry of its lock's key.
    Expire,
    Held,
    Read,
    Write,
    /// It is about to send one statement that writes and commits.
    Autocommit,
    Commit,
    Committed,
    Refused,
    /// It is about to delete its lock's key.
    Delete,
    Release,
    /// It released its lock, and learned that it had lost it.
    Lost,
    End,
    Paused,
    Resumed,
    Killed,
    Answered,
    Broken,
    /// An event that this version does not know, by its name.
    #[strum(default, to_string = "other")]
    Other(String),
}

impl EventKind {
    /// Returns the kind of an event in a trace. `has_lock` tells whether the request asks for a
    /// lock, `is_autocommit` whether its write is one statement that commits itself.
    pub fn of_trace(name: &str, has_lock: bool, is_autocommit: bool) -> Self {
        match name.parse().unwrap_or_else(|_| Self::Other(name.to_owned())) {
            Self::Wait if !has_lock => Self::Begin,
            Self::Release if !has_lock => Self::End,
            Self::Commit if is_autocommit => Self::Autocommit,
            kind => kind,
        }
    }

    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl Event {
    pub(super) fn without_detail(lane: usize, at_us: u64, kind: EventKind) -> Self {
        Self { lane, at_us, kind, detail: Detail::default() }
    }

    pub fn at(&self) -> String {
        format_ms(self.at_us)
    }

    /// Describes the event without its lane: `reads 57, fence 3`.
    pub fn text(&self, language: Language) -> String {
        let mut text = match &self.kind {
            EventKind::Other(name) => name.clone(),
            kind => self.format(&format!("swimlane-event-{}", kind.name()), language),
        };
        if let Some(fence) = self.detail.fence {
            let variables = [("text", text.into()), ("fence", fence.to_string().into())];
            text = language.text_with("swimlane-with-fence", &variables);
        }

        match &self.detail.key {
            Some(key) => {
                let variables = [("text", text.into()), ("key", key.as_str().into())];
                language.text_with("swimlane-with-key", &variables)
            }
            None => text,
        }
    }

    /// Returns the label in a drawing; empty if the mark says enough. The whole label includes the
    /// fence of a lock and the loss of a write.
    pub fn label(&self, is_whole: bool, language: Language) -> String {
        let message = match (&self.kind, self.detail.value) {
            (EventKind::Held, _) if is_whole && self.detail.fence.is_some() => "held-fence",
            (EventKind::Write, _) if is_whole && self.detail.is_loss => "loss",
            (EventKind::Answered, Some(Value::Status(400..=499))) => "rejected",
            (EventKind::Answered, Some(Value::Status(500..))) => "answered",
            (
                EventKind::Held
                | EventKind::Read
                | EventKind::Write
                | EventKind::Committed
                | EventKind::Refused
                | EventKind::Release
                | EventKind::Lost
                | EventKind::Paused
                | EventKind::Resumed
                | EventKind::Killed,
                _,
            ) => self.kind.name(),
            (EventKind::Other(name), _) if is_whole => return name.clone(),
            _ => return String::new(),
        };

        self.format(&format!("swimlane-label-{message}"), language)
    }

    fn format(&self, message: &str, language: Language) -> String {
        let value = self.detail.value.map(|value| value.to_string()).unwrap_or_default();
        let fence = self.detail.fence.map(|fence| fence.to_string()).unwrap_or_default();
        language.text_with(message, &[("value", value.into()), ("fence", fence.into())])
    }
}

/// Formats a time in milliseconds, without the unit.
pub fn format_ms(us: u64) -> String {
    let tenths = us.saturating_add(50) / 100;
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_in_brackets_of_the_language() {
        let mut event = Event::without_detail(0, 0, EventKind::Held);
        event.detail.key = Some("lab-1".to_owned());
        assert_eq!(event.text(Language::English), "has the lock (lab-1)");
        assert_eq!(event.text(Language::Chinese), "获得锁（lab-1）");
    }
}
