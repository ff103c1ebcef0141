//! The code that a lesson shows: the file of a strategy, or another one, as it was compiled.

use crate::shop::Strategy;

/// A file.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// What it is called: the strategy's name, or the file's.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Where it is.
    pub path: &'static str,
    text: &'static str,
}

/// What is shown beside strategies.
const FILES: [Source; 4] = [
    Source {
        name: "claim.lua",
        about: "how a worker gets what is due: put off, not taken out",
        path: "src/jobs/unpaid/claim.lua",
        text: include_str!("../jobs/unpaid/claim.lua"),
    },
    Source {
        name: "unpaid.rs",
        about: "how an order is given back, once",
        path: "src/shop/orders/unpaid.rs",
        text: include_str!("../shop/orders/unpaid.rs"),
    },
    Source {
        name: "priority.rs",
        about: "who goes first, and why nobody waits for ever",
        path: "src/lock/ladder/priority.rs",
        text: include_str!("../lock/ladder/priority.rs"),
    },
    Source {
        name: "remove.rs",
        about: "how a big key is removed without a stall",
        path: "src/jobs/keys/remove.rs",
        text: include_str!("../jobs/keys/remove.rs"),
    },
];

/// The file of that strategy, or of that name.
#[must_use]
pub fn of(name: &str) -> Option<Source> {
    let file = FILES.into_iter().find(|file| file.name == name);
    file.or_else(|| Strategy::named(name).map(of_strategy))
}

fn of_strategy(strategy: &'static Strategy) -> Source {
    let Strategy { name, about, source: path, .. } = *strategy;
    Source { name, about, path, text: strategy.code() }
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
    use super::*;
    use crate::shop::stock::STRATEGIES;

    #[test]
    fn whatever_is_shown_is_there_and_says_what_it_is() {
        for source in FILES.into_iter().chain(STRATEGIES.iter().map(of_strategy)) {
            let lines = source.lines();
            let says = lines[0].starts_with("//!") || lines[0].starts_with("--");
            assert!(lines.len() > 15 && says, "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
            assert!(std::path::Path::new(source.path).exists(), "{}", source.path);
        }
    }
}
