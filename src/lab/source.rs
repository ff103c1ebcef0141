//! Source files that a lesson shows, as compiled: a strategy's or another one.

use crate::shop::Strategy;

#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Name of the strategy or of the file.
    pub name: &'static str,
    pub about: &'static str,
    pub path: &'static str,
    text: &'static str,
}

/// Declares [`FILES`]: a file's name, its path below `src`, and what it shows.
macro_rules! files {
    ($($name:literal: $path:literal, $about:literal;)*) => {
        const FILES: &[Source] = &[$(Source {
            name: $name,
            about: $about,
            path: concat!("src/", $path),
            text: include_str!(concat!("../", $path)),
        }),*];
    };
}

files! {
    "claim.lua": "jobs/order_expiry/claim.lua",
        "how a worker gets what is due: put off, not taken out";
    "conditional_update.rs": "shop/store/conditional_update.rs",
        "the conditional update, in place of a read";
    "expire_orders.rs": "shop/command/expire_orders.rs",
        "how the units of an unpaid order are returned, once";
    "place.rs": "shop/store/place.rs",
        "the write of an order: one statement, which stores the value that was computed";
    "priority.rs": "locks/priority.rs",
        "who goes first, and why nobody waits for ever";
    "read.rs": "shop/store/read.rs",
        "the read that the new value is computed from";
    "remove.rs": "big_keys/remove.rs",
        "how a big key is removed without a stall";
}

/// Returns the file called `name`, or the source of the strategy called `name`.
pub fn of(name: &str) -> Option<Source> {
    let file = FILES.iter().copied().find(|file| file.name == name);
    file.or_else(|| Strategy::named(name).map(of_strategy))
}

fn of_strategy(strategy: &'static Strategy) -> Source {
    let Strategy { name, about, source: path, .. } = *strategy;
    Source { name, about, path, text: strategy.code }
}

impl Source {
    pub fn lines(&self) -> Vec<&'static str> {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shop::strategy::STRATEGIES;

    #[test]
    fn shown_sources_exist_and_have_headers() {
        for source in FILES.iter().copied().chain(STRATEGIES.iter().map(of_strategy)) {
            let lines = source.lines();
            let says = lines[0].starts_with("//!") || lines[0].starts_with("--");
            assert!(lines.len() > 15 && says, "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
            assert!(std::path::Path::new(source.path).exists(), "{}", source.path);
        }
    }
}
