//! Keys of locks.

use std::fmt;

use crate::Error;

/// Suffix of the Redis key of a fenced lock's queue.
pub(crate) const QUEUE_SUFFIX: &str = ":queue";
/// Suffixes of the Redis keys that a fenced lock keeps beside its own.
const RESERVED_SUFFIXES: [&str; 3] = [QUEUE_SUFFIX, ":seen", ":fence"];

/// The name of a lock. Ordered bytewise, which is the order of acquisition.
///
/// All Redis keys of one lock must lie in one slot of a Cluster, so a key has a hash tag:
/// `{sku:tea}`. A name without a tag is put into braces: `sku:tea` is the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(String);

impl LockKey {
    /// Creates a key of that name.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] for a name of white space only, one that cannot have a hash tag, and
    /// one whose Redis key is that of another lock's queue.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        let tagged =
            if hash_tag(name.as_bytes()).is_some() { name.clone() } else { format!("{{{name}}}") };

        let reason = if name.trim().is_empty() {
            "it is blank"
        } else if hash_tag(tagged.as_bytes()).is_none() {
            "a name without a hash tag must not begin with }"
        } else if !is_lock(&tagged) {
            "it ends with :queue, :seen or :fence after its hash tag"
        } else {
            return Ok(Self(tagged));
        };

        Err(Error::InvalidKey { name, reason })
    }

    /// Returns the name, with its hash tag.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a Redis key is that of a lock, not one that a fenced lock keeps beside its own.
pub(crate) fn is_lock(redis_key: &str) -> bool {
    !RESERVED_SUFFIXES.iter().any(|suffix| redis_key.ends_with(suffix))
}

/// Returns the hash tag: the bytes between the first `{` and the first `}` after it, if any.
pub(crate) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

#[cfg(test)]
mod tests {
    use super::LockKey;

    #[test]
    fn invalid_keys_are_rejected() {
        for name in ["", " \t\n", "}tea", "{a}:queue", "{a}:seen", "{a}b:fence"] {
            assert!(LockKey::new(name).is_err(), "{name:?}");
        }
        for name in ["{sku:tea}", "a:queue", "{a}:queue:1", "{}", "a{b"] {
            assert!(LockKey::new(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn name_without_hash_tag_is_the_same_key() {
        assert_eq!(LockKey::new("tea").unwrap(), LockKey::new("{tea}").unwrap());
        assert_ne!(LockKey::new("a:queue").unwrap(), LockKey::new("a").unwrap());
        assert_eq!(LockKey::new("x{tea}").unwrap().as_str(), "x{tea}");
    }
}
