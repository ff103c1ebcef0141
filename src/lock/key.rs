//! What a lock is on.

use std::fmt;

use super::Error;

/// The name of a lock. Never blank. Sorted bytewise, which is the order of taking.
///
/// Everything that one lock keeps in Redis must land in one slot of a Cluster, so a key carries its
/// own hash tag: `{sku:tea}`. One that has none is given one in Redis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(String);

impl LockKey {
    /// A key of that name.
    ///
    /// # Errors
    /// [`Error::BlankKey`] for a name of nothing but white space: a lock that everybody shares by
    /// mistake is worse than none, because it looks as if it worked.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        if name.trim().is_empty() { Err(Error::BlankKey) } else { Ok(Self(name)) }
    }

    /// Its name.
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

#[cfg(test)]
mod tests {
    use super::LockKey;

    #[test]
    fn a_blank_key_is_refused() {
        assert!(LockKey::new("").is_err());
        assert!(LockKey::new(" \t\n").is_err());
        assert!(LockKey::new("{sku:tea}").is_ok());
    }
}
