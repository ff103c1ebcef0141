//! One event of a timeline: what it concerned, and its words.

use std::fmt;

use crate::kind::EventKind;
use holdfast_base::messages::{Language, Message, is_chinese};
use holdfast_base::output::{format_cents, grouped};

/// Something that happened to one of several, at a time of their common clock. `L` says to whom: in
/// a timeline the index of a lane; nothing where a lane has its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEvent<L = usize> {
    pub lane: L,
    pub at_us: u64,
    pub kind: EventKind,
    /// Key of the lock that it concerns; empty without one.
    pub key: String,
    pub detail: Detail,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// The value that was read, written or answered.
    pub value: Option<Value>,
    pub fence: Option<i64>,
    /// Name of what the event concerns, if the timeline concerns several things.
    pub key: Option<String>,
    /// Name of the lane whose lock it deleted, or that deleted its lock.
    pub other: Option<String>,
    /// Name of the idempotency key that it shares with other requests: `K`.
    pub shared_key: Option<String>,
    /// Name of the problem type of a response.
    pub problem: Option<String>,
    pub statement: Option<String>,
    /// True for a write that lost an update, or sold a unit again.
    pub is_loss: bool,
    /// True for a write that should not have happened, as an update was lost by it: it is red.
    pub is_wrong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Units(i64),
    Cents(i64),
    Status(u16),
    Ms(u64),
}

impl Value {
    /// Returns the number of an event with the unit that follows from what happened, and to what.
    pub fn of(kind: &EventKind, key: &str, number: i64) -> Self {
        match kind {
            EventKind::Expired => Self::Ms(number.unsigned_abs()),
            EventKind::Stale | EventKind::Committed => Self::Units(number),
            EventKind::Price => Self::Cents(number),
            _ if key.starts_with("{user:") => Self::Cents(number),
            _ => Self::Units(number),
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Self::Units(number) | Self::Cents(number) => number,
            Self::Status(status) => status.into(),
            Self::Ms(ms) => i64::try_from(ms).unwrap_or(i64::MAX),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => {
                let sign = if *units < 0 { "−" } else { "" };
                write!(f, "{sign}{}", grouped(units.unsigned_abs()))
            }
            Self::Cents(cents) => f.write_str(&format_cents(*cents)),
            Self::Status(status) => status.fmt(f),
            Self::Ms(ms) => write!(f, "{} ms", grouped(*ms)),
        }
    }
}

impl<L> TimelineEvent<L> {
    pub fn new(lane: L, at_us: u64, kind: EventKind) -> Self {
        Self { lane, at_us, kind, key: String::new(), detail: Detail::default() }
    }

    /// Returns the event in another lane.
    pub fn on<M>(self, lane: M) -> TimelineEvent<M> {
        let Self { at_us, kind, key, detail, .. } = self;
        TimelineEvent { lane, at_us, kind, key, detail }
    }

    #[must_use]
    pub fn with_number(mut self, number: Option<i64>) -> Self {
        self.detail.value = number.map(|number| Value::of(&self.kind, &self.key, number));
        self
    }

    /// Returns what was read, written or answered, without its unit.
    pub fn number(&self) -> Option<i64> {
        self.detail.value.map(Value::number)
    }

    pub fn at(&self) -> String {
        format_ms(self.at_us)
    }

    /// Describes the event without its lane: `reads 57, fence 3`.
    pub fn text(&self, language: Language) -> String {
        let mut text = match (&self.kind, self.problem(language)) {
            (EventKind::Other(name), _) => name.clone(),
            (EventKind::Answered, Some(problem)) => {
                let value = self.detail.value.map(|value| value.to_string()).unwrap_or_default();
                let variables = [("value", value.into()), ("problem", problem.into())];
                language.text_with("swimlane-event-answered-problem", &variables)
            }
            (kind, _) => {
                let name = format!("{}{}", kind.name(), self.variant());
                self.format(&format!("swimlane-event-{name}"), language)
            }
        };

        let is_told = matches!(self.kind, EventKind::Stale | EventKind::Refused);
        if let Some(fence) = self.detail.fence.filter(|_| !is_told) {
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

    /// Returns the title of the problem type that a response names.
    fn problem(&self, language: Language) -> Option<String> {
        let name = self.detail.problem.as_ref()?;
        Message::new(&format!("problem-{name}-title")).format(language)
    }

    /// Returns in two or three words why a response is a rejection, if its problem type has them.
    fn reason(&self, language: Language) -> Option<String> {
        let name = self.detail.problem.as_ref()?;
        Message::new(&format!("swimlane-reason-{name}")).format(language)
    }

    /// Returns the labels in a drawing, the longest first; none if the mark says enough. The longer
    /// ones include the fence of a lock or a write, and the loss of a write.
    pub fn labels(&self, language: Language) -> Vec<String> {
        let detail = &self.detail;
        if let Some(reason) = self.reason(language) {
            let variables = [("reason", reason.as_str().into())];
            return vec![language.text_with("swimlane-label-rejected-for", &variables), reason];
        }
        let has_fence = detail.fence.is_some();
        let has_key = detail.shared_key.is_some();
        let names: &[&str] = match (&self.kind, detail.value) {
            (EventKind::Other(name), _) => return vec![name.clone()],
            (EventKind::Held, _) if has_fence => &["held-fence", "held"],
            (EventKind::Held, _) if detail.key.is_some() => &["held-item", "held"],
            (EventKind::Wait, _) if detail.key.is_some() => &["wait-item"],
            (EventKind::Read, _) if has_fence => &["read-fence", "read"],
            // It overwrites nothing, and sells what does not exist.
            (EventKind::Write, Some(Value::Units(..0))) => &["below-zero", "write"],
            (EventKind::Write, _) if detail.is_wrong && !detail.is_loss => {
                &["write-unlocked", "unlocked"]
            }
            (EventKind::Write, _) if detail.is_wrong && has_fence => {
                &["loss-fence", "loss", "lost-update"]
            }
            (EventKind::Write, _) if detail.is_wrong => &["loss", "lost-update"],
            (EventKind::Write, _) if has_fence => &["write-fence", "write"],
            (EventKind::Foreign, _) if detail.other.is_none() => &["foreign-unknown"],
            (EventKind::Foreign, _) => &["foreign-long", "foreign"],
            (EventKind::Gone, _) if detail.other.is_some() => &["gone-by", "gone"],
            (EventKind::Delete, _) => &["delete-long", "delete"],
            (EventKind::Expired, Some(_)) => &["expired-long", "expired"],
            (EventKind::Paused, Some(_)) => &["paused-long", "paused"],
            (EventKind::Works, Some(_)) => &["works-long", "works"],
            (EventKind::Sent, _) if has_key => &["sent-key"],
            (EventKind::Committed, _) if has_key => &["committed-key", "committed"],
            (EventKind::Committed, Some(_)) => &["committed-orders"],
            (EventKind::Replayed, _) if has_key => &["replayed-key", "replayed-found"],
            (EventKind::Answered, Some(Value::Status(400..=499))) => &["rejected"],
            (EventKind::Answered, Some(Value::Status(500..))) => &["answered"],
            (kind, _) if kind.has_label() => &[kind.name()],
            _ => &[],
        };

        let label = |name: &&str| self.format(&format!("swimlane-label-{name}"), language);
        names.iter().map(label).collect()
    }

    fn format(&self, message: &str, language: Language) -> String {
        let detail = &self.detail;
        let value = detail.value.map(|value| value.to_string()).unwrap_or_default();
        let fence = detail.fence.map(|fence| fence.to_string()).unwrap_or_default();
        let other = detail.other.clone().unwrap_or_default();
        let key = detail.shared_key.clone().unwrap_or_default();
        let item = detail.key.clone().unwrap_or_default();
        let variables = [
            ("value", value.into()),
            ("fence", fence.into()),
            ("other", other.into()),
            ("key", key.into()),
            ("item", item.into()),
        ];
        join_chinese(&language.text_with(message, &variables))
    }

    /// Returns the end of the id of its sentence, which may say more or less than that of its kind.
    fn variant(&self) -> &'static str {
        let Detail { value, other, shared_key, .. } = &self.detail;
        match self.kind {
            EventKind::Foreign if other.is_none() => "-unknown",
            EventKind::Gone if other.is_some() => "-by",
            EventKind::Paused | EventKind::Works if value.is_some() => "-long",
            EventKind::Committed if value.is_some() => "-orders",
            EventKind::Sent | EventKind::Committed | EventKind::Replayed
                if shared_key.is_some() =>
            {
                "-key"
            }
            _ => "",
        }
    }
}

/// Removes the spaces between Chinese characters, which only Latin names need around them.
fn join_chinese(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_between = |at: usize| {
        at > 0 && is_chinese(chars[at - 1]) && chars.get(at + 1).copied().is_some_and(is_chinese)
    };
    let kept = chars.iter().enumerate().filter(|(at, c)| **c != ' ' || !is_between(*at));
    kept.map(|(_, c)| *c).collect()
}

/// Formats a time in milliseconds, without the unit.
pub fn format_ms(us: u64) -> String {
    let tenths = us.saturating_add(50) / 100;
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    fn event(kind: EventKind) -> TimelineEvent {
        let detail = Detail { value: Some(Value::Units(9)), fence: Some(2), ..Detail::default() };
        TimelineEvent { detail, ..TimelineEvent::new(0, 0, kind) }
    }

    #[test]
    fn key_is_in_brackets_of_the_language() {
        let mut event = TimelineEvent::new(0, 0, EventKind::Held);
        event.detail.key = Some("lab-1".to_owned());
        assert_eq!(event.text(Language::English), "has the lock (lab-1)");
        assert_eq!(event.text(Language::Chinese), "获得锁（lab-1）");
        assert_eq!(event.labels(Language::English), ["lock lab-1", "lock"]);
        event.kind = EventKind::Wait;
        assert_eq!(event.labels(Language::English), ["wants lab-1"]);
    }

    /// A text that is missing is shown by its id.
    #[test]
    fn every_kind_has_words_in_every_language() {
        let is_missing = |text: &str| text.is_empty() || text.contains("swimlane-");
        for language in Language::ALL {
            for kind in EventKind::iter().filter(|kind| kind.name() != "other") {
                let event = event(kind);
                let labels = event.labels(language);
                let texts = [vec![event.text(language)], labels].concat();
                assert!(!texts.iter().any(|text| is_missing(text)), "{texts:?}");
            }
            for kind in EventKind::iter() {
                let (_, legend) = kind.legend(language);
                assert!(!is_missing(&legend), "{legend}");
                assert!(!legend.contains(['{', '9', '2']), "{legend} says nothing of one event");
            }
        }
    }

    #[test]
    fn longer_labels_have_fence_and_loss() {
        let mut write = event(EventKind::Write);
        assert_eq!(write.labels(Language::English), ["write 9, fence 2", "write 9"]);
        (write.detail.is_loss, write.detail.is_wrong) = (true, true);
        let labels = write.labels(Language::English);
        let expected = ["write 9, fence 2, lost update", "write 9, lost update", "lost update"];
        assert_eq!(labels, expected);
        assert_eq!(write.text(Language::English), "writes 9, fence 2");
        write.detail.is_loss = false;
        assert_eq!(write.labels(Language::English), ["write 9 without lock", "without lock"]);
        write.detail.value = Some(Value::Units(-1));
        assert_eq!(write.labels(Language::English), ["write −1, below zero", "write −1"]);
    }

    #[test]
    fn names_of_problems_and_holders_are_words() {
        let mut event = event(EventKind::Answered);
        event.detail = Detail {
            value: Some(Value::Status(503)),
            problem: Some("lock-lost".to_owned()),
            ..Detail::default()
        };
        let text = event.text(Language::English);
        assert!(text.starts_with("is answered 503: ") && !text.contains("lock-lost"), "{text}");
        assert_eq!(event.labels(Language::English), ["rejected: lock lost", "lock lost"]);
        assert_eq!(event.labels(Language::Chinese)[0], "被拒绝：锁已丢失");
        event.detail.problem = Some("of-a-later-version".to_owned());
        assert_eq!(event.text(Language::English), "is answered 503");
        assert_eq!(event.labels(Language::English), ["answer 503"]);

        event.kind = EventKind::Foreign;
        assert_eq!(event.text(Language::English), "deletes another holder’s lock");
        event.detail.other = Some("B".to_owned());
        assert_eq!(event.text(Language::English), "deletes B’s lock");
        event.kind = EventKind::Gone;
        assert_eq!(event.labels(Language::English), ["deleted by B", "lock deleted"]);
        assert_eq!(event.labels(Language::Chinese)[0], "被 B 删除");
        event.detail.other = Some("运维".to_owned());
        assert_eq!(event.labels(Language::Chinese)[0], "被运维删除");
        assert_eq!("hung up".parse(), Ok(EventKind::Disconnected));
        assert_eq!(EventKind::Disconnected.name(), "disconnected");
    }
}
