//! An environment variable that is optional.

use std::env::VarError;

use anyhow::bail;

/// Returns the value of a variable; `None` if it is not set, or blank.
pub(super) fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("{name} is not valid UTF-8"),
    }
}
