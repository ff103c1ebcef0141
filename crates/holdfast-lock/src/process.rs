//! The identity of a process in the values of its locks.
//!
//! Every value in Redis begins with `<name>~` (an idempotency lock's, after its fingerprint). The
//! name decides nothing: the UUID behind it distinguishes two processes of one name.

use std::sync::Arc;

use uuid::Uuid;

use crate::clock::unix_ms;

/// Ends a name; no name contains it.
const NAME_SEPARATOR: char = '~';
/// Maximum length of a name, which is sent with every lock; longer names are cut off.
const MAX_NAME_LENGTH: usize = 32;

/// The identity of one process. New with every start. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ProcessIdentity {
    name: Arc<str>,
    number: Uuid,
}

impl ProcessIdentity {
    /// Creates an identity. Characters other than ASCII letters, digits, `-` and `_` become `-`.
    #[must_use]
    pub(crate) fn new(name: Option<&str>) -> Self {
        let number = Uuid::new_v4();
        let name: String = match name.unwrap_or_default() {
            "" => number.simple().to_string().chars().take(8).collect(),
            name => name
                .chars()
                .map(|c| if is_plain(c) { c } else { '-' })
                .take(MAX_NAME_LENGTH)
                .collect(),
        };
        Self { name: name.into(), number }
    }

    /// Returns the name, as shown in [`crate::Holder`] and [`crate::inspect::HeldLock`].
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name and the UUID, which no other process has.
    pub(crate) fn id(&self) -> String {
        format!("{}{NAME_SEPARATOR}{}", self.name, self.number.simple())
    }

    /// Returns a value that is unique to one acquisition.
    #[must_use]
    pub(crate) fn new_owner(&self) -> String {
        format!("{}{NAME_SEPARATOR}{}@{}", self.name, Uuid::new_v4(), unix_ms())
    }
}

/// Returns the name of the process in a lock's value, if there is one.
pub(crate) fn name_in(value: &str) -> Option<&str> {
    let (front, _) = value.split_once(NAME_SEPARATOR)?;
    let name = front.rsplit('/').next()?;
    (!name.is_empty() && name.chars().all(is_plain)).then_some(name)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::{ProcessIdentity, name_in};

    #[test]
    fn process_name_is_read_from_values() {
        let process = ProcessIdentity::new(Some("8081"));
        assert_eq!(name_in(&process.new_owner()), Some("8081"));
        assert_eq!(name_in(&format!("{}.lease 65@1700000000000", process.id())), Some("8081"));
        assert_eq!(name_in(&format!("af00/{}", process.new_owner())), Some("8081"));
    }

    #[test]
    fn unsafe_characters_of_names_are_replaced() {
        assert_eq!(ProcessIdentity::new(Some("eu~1 b@c.d/e")).name(), "eu-1-b-c-d-e");
        let nameless = ProcessIdentity::new(None);
        assert_eq!(nameless.name().len(), 8);
        assert!(nameless.id().contains(&format!("~{}", nameless.name())));
        assert_eq!(name_in("somebody else's value"), None);
        assert_eq!(name_in("not a name~1@2"), None);
    }
}
