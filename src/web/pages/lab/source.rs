//! The code that a lesson shows: the file of a strategy, as it was compiled.

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Where it is.
    pub path: &'static str,
    text: &'static str,
}

macro_rules! source {
    ($path:literal) => {
        Source { path: $path, text: include_str!(concat!("../../../../", $path)) }
    };
}

/// The file of that strategy.
#[must_use]
pub fn of(strategy: &str) -> Option<Source> {
    Some(match strategy {
        "none" => source!("src/shop/stock/read_then_update.rs"),
        "local" => source!("src/lock/ladder/local.rs"),
        "owner" => source!("src/lock/ladder/owner.rs"),
        "watchdog" => source!("src/lock/ladder/watchdog.rs"),
        "redlock" => source!("src/lock/ladder/quorum.rs"),
        "fenced" => source!("src/shop/stock/fenced.rs"),
        "row-lock" => source!("src/shop/stock/row_lock.rs"),
        "atomic" => source!("src/shop/stock/atomic.rs"),
        "batched" => source!("src/shop/stock/batched.rs"),
        _ => return None,
    })
}

impl Source {
    /// Its lines, without its tests.
    #[must_use]
    pub fn lines(&self) -> Vec<&'static str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]").collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::shop::stock::STRATEGIES;

    #[test]
    fn every_strategy_has_code_to_show() {
        for strategy in &STRATEGIES {
            let source = super::of(strategy.name).expect(strategy.name);
            let lines = source.lines();
            assert!(lines.len() > 30 && lines[0].starts_with("//!"), "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
        }
    }
}
