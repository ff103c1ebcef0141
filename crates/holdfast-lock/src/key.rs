//! Keys of locks.

use std::fmt;

use crate::Error;

/// The name of a lock. Never blank. Ordered bytewise, which is the order of acquisition.
///
/// All Redis keys of one lock must lie in one slot of a Cluster, so a key has a hash tag:
/// `{sku:tea}`. A key without a tag receives it in Redis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(String);

impl LockKey {
    /// Creates a key of that name.
    ///
    /// # Errors
    /// [`Error::BlankKey`] for a name of white space only: a lock that all callers share by mistake
    /// is worse than none, because it appears to work.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        if name.trim().is_empty() { Err(Error::BlankKey) } else { Ok(Self(name)) }
    }

    /// Returns the name.
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
    fn blank_key_is_rejected() {
        assert!(LockKey::new("").is_err());
        assert!(LockKey::new(" \t\n").is_err());
        assert!(LockKey::new("{sku:tea}").is_ok());
    }
}
