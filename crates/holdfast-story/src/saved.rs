//! An event as files and the API have it: `{"t_us": 90, "event": "read", "value": 10}`. Its lane is
//! the one that it stands in.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Detail, TimelineEvent, Value};
use crate::kind::EventKind;

#[derive(Serialize, Deserialize)]
struct SavedEvent {
    t_us: u64,
    event: EventKind,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    key: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    value: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    fence: Option<i64>,
}

impl Serialize for TimelineEvent<()> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let saved = SavedEvent {
            t_us: self.at_us,
            event: self.kind.clone(),
            key: self.key.clone(),
            value: self.number(),
            fence: self.detail.fence,
        };
        saved.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TimelineEvent<()> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SavedEvent { t_us, event, key, value, fence } = SavedEvent::deserialize(deserializer)?;
        let value = value.map(|value| Value::of(&event, &key, value));
        let detail = Detail { value, fence, ..Detail::default() };
        Ok(Self { lane: (), at_us: t_us, kind: event, key, detail })
    }
}
