//! The code that a lesson shows: the file of a strategy, as it was compiled.

use crate::shop::Strategy;

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Where it is.
    pub path: &'static str,
    text: &'static str,
}

/// The file of that strategy.
#[must_use]
pub fn of(strategy: &str) -> Option<Source> {
    let strategy = Strategy::named(strategy)?;
    Some(Source { path: strategy.source, text: strategy.code() })
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
            assert!(lines.len() > 15 && lines[0].starts_with("//!"), "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
        }
    }
}
