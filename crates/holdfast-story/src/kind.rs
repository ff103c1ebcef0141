//! The kinds of events: their names in traces and files, their marks, and what follows from them.

use holdfast_base::messages::{Language, Message};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, EnumString, IntoStaticStr};

/// The mark of all events that have none of their own.
pub const DOT: &str = "dot";

/// A kind of event; its text is its name in a trace, in messages and in the style of a drawing.
#[derive(
    Debug, Clone, PartialEq, Eq, EnumIter, EnumString, IntoStaticStr, Serialize, Deserialize,
)]
#[strum(serialize_all = "lowercase")]
#[serde(from = "String", into = "String")]
pub enum EventKind {
    Sent,
    /// Without a lock, like `End`.
    Begin,
    Wait,
    /// It asked again, and the lock was taken.
    Tries,
    /// It did not get the lock.
    Busy,
    /// Postgres aborted it, because each of several waited for another.
    Deadlock,
    /// It is about to set the expiry of its lock's key.
    Expire,
    Held,
    /// A node of several has granted it the lock; its value is the node, from 1 on.
    Granted,
    /// Its units left the counter in Redis.
    Deducted,
    /// A person or a page says what something costs.
    Price,
    Renewed,
    /// Its lease is over; Redis has deleted the key.
    Expired,
    /// Its lease is over by its length, unless it was renewed.
    #[strum(serialize = "lease-ends")]
    LeaseEnds,
    /// Another client has deleted the key of its lock.
    Gone,
    Read,
    Write,
    /// It is about to send one statement that writes and commits.
    Autocommit,
    Commit,
    Committed,
    Refused,
    /// Its fence is smaller than the one that the row stores.
    Stale,
    /// It is about to delete its lock's key.
    Delete,
    Release,
    /// It deleted the key of another holder's lock.
    Foreign,
    /// It is done, and leaves its lock to expire.
    Left,
    /// It released its lock, and learned that it had lost it.
    Lost,
    /// It deleted its lock's key without looking at it, and there was none.
    Absent,
    End,
    /// It does something that takes long, which a lesson puts in place of a pause.
    Works,
    Worked,
    Paused,
    Resumed,
    /// Its process was stopped, unlike `Paused`, which pauses the request at a probe point.
    Stopped,
    Continued,
    Killed,
    /// It was killed, and with it its lock, which was in the memory of its process.
    Died,
    /// The client's connection broke.
    #[strum(serialize = "hung up", to_string = "disconnected")]
    Disconnected,
    /// The response is the stored one of an earlier request with the same key.
    Replayed,
    /// Redis lost its keys.
    Flushed,
    /// Redis deleted keys, as its memory was full.
    Evicted,
    /// Redis closed all its connections.
    Closed,
    /// A replica of Redis lost the link to its primary.
    Cut,
    Promoted,
    /// A server that was killed runs again, without its data.
    Restarted,
    /// An operator deleted the key.
    Removed,
    Answered,
    Broken,
    /// An event that this version does not know, by its name.
    #[strum(default, to_string = "other")]
    Other(String),
}

impl EventKind {
    /// Those that a lesson is about: they are labelled first.
    pub const KEY: [Self; 26] = [
        Self::Deducted,
        Self::Price,
        Self::Delete,
        Self::Expired,
        Self::Renewed,
        Self::Foreign,
        Self::Gone,
        Self::Left,
        Self::Lost,
        Self::Absent,
        Self::Refused,
        Self::Stale,
        Self::Stopped,
        Self::Killed,
        Self::Died,
        Self::Disconnected,
        Self::Replayed,
        Self::Flushed,
        Self::Evicted,
        Self::Closed,
        Self::Cut,
        Self::Promoted,
        Self::Removed,
        Self::Busy,
        Self::Deadlock,
        Self::Tries,
    ];

    /// Returns the kind of a name in a trace or a file.
    pub fn named(name: &str) -> Self {
        name.parse().unwrap_or_else(|_| Self::Other(name.to_owned()))
    }

    /// Returns its name in a trace or a file.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            kind => kind.name(),
        }
    }

    /// Returns what an event of a trace means. `has_lock` says whether the request asks for a
    /// lock, `is_autocommit` whether its write is one statement that commits itself.
    #[must_use]
    pub fn in_request(&self, has_lock: bool, is_autocommit: bool) -> Self {
        match self {
            Self::Wait if !has_lock => Self::Begin,
            Self::Release if !has_lock => Self::End,
            Self::Commit if is_autocommit => Self::Autocommit,
            kind => kind.clone(),
        }
    }

    /// Returns its name in messages and styles.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the id of a mark's shape (`timeline_marks.svg`), so that color is never the only
    /// sign.
    pub fn shape(&self) -> &'static str {
        match self {
            Self::Killed | Self::Broken | Self::Busy | Self::Deadlock => "cross",
            Self::Gone | Self::Absent => Self::Lost.name(),
            Self::Left | Self::Removed => Self::Release.name(),
            Self::Continued | Self::Restarted => Self::Resumed.name(),
            Self::Cut | Self::Closed => Self::Disconnected.name(),
            Self::Evicted => Self::Flushed.name(),
            Self::LeaseEnds => Self::Expired.name(),
            Self::Tries | Self::Autocommit => Self::Commit.name(),
            Self::Sent
            | Self::Begin
            | Self::Wait
            | Self::Expire
            | Self::End
            | Self::Works
            | Self::Worked
            | Self::Answered
            | Self::Other(_) => DOT,
            kind => kind.name(),
        }
    }

    /// Returns the name of its mark in a legend, in which all dots are one, and what it means, in a
    /// word or two: as its label says, if that says it.
    pub fn legend(&self, language: Language) -> (&'static str, String) {
        let name = if self.shape() == DOT { DOT } else { self.name() };
        let legend = Message::new(&format!("swimlane-legend-{name}"));
        let label = || language.text(&format!("swimlane-label-{name}"));
        (name, legend.format(language).unwrap_or_else(label))
    }

    /// Returns whether nothing that a lane did goes on after an event.
    pub(crate) fn ends_lane(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Deadlock
                | Self::Release
                | Self::Foreign
                | Self::Lost
                | Self::Absent
                | Self::End
                | Self::Killed
                | Self::Died
                | Self::Disconnected
                | Self::Answered
                | Self::Broken
        )
    }

    /// Returns whether a mark of this kind has a label of its own, besides responses.
    pub(crate) fn has_label(&self) -> bool {
        let is_step = matches!(
            self,
            Self::Held
                | Self::Read
                | Self::Write
                | Self::Committed
                | Self::Release
                | Self::Tries
                | Self::Works
                | Self::Paused
                | Self::Resumed
                | Self::Continued
                | Self::Restarted
        );
        is_step || Self::KEY.contains(self)
    }
}

impl From<String> for EventKind {
    fn from(name: String) -> Self {
        Self::named(&name)
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> Self {
        kind.as_str().to_owned()
    }
}
