//! What an errand knows of its circumstances while it is performed.

use time::OffsetDateTime;

use super::stock::{Exclusion, Strategy};
use crate::lock::LockKey;
use crate::probe::{Probe, Seen};

/// Under what an errand is performed.
#[derive(Debug)]
pub struct Held<'a> {
    /// How values are read and written.
    pub strategy: &'static Strategy,
    /// What keeps others out.
    pub exclusion: Exclusion<'a>,
    /// The request's points.
    pub probe: &'a Probe,
    /// The request's name.
    pub request_id: uuid::Uuid,
    /// When the transaction began, by Postgres's clock, where it has claimed a key.
    pub claimed_at: Option<OffsetDateTime>,
}

impl Held<'_> {
    /// A value that was read or written, under the fence of its lock.
    #[must_use]
    pub fn seen(&self, key: &LockKey, value: i64) -> Seen {
        Seen::value(key.as_str(), value).under(self.exclusion.fence_of(key))
    }
}
