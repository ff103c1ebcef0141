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

const FILES: [Source; 7] = [
    Source {
        name: "claim.lua",
        about: "how a worker gets what is due: put off, not taken out",
        path: "src/jobs/order_expiry/claim.lua",
        text: include_str!("../jobs/order_expiry/claim.lua"),
    },
    Source {
        name: "conditional_update.rs",
        about: "the conditional update, in place of a read",
        path: "src/shop/store/conditional_update.rs",
        text: include_str!("../shop/store/conditional_update.rs"),
    },
    Source {
        name: "expire_orders.rs",
        about: "how the units of an unpaid order are returned, once",
        path: "src/shop/command/expire_orders.rs",
        text: include_str!("../shop/command/expire_orders.rs"),
    },
    Source {
        name: "place.rs",
        about: "the write of an order: one statement, which stores the value that was computed",
        path: "src/shop/store/place.rs",
        text: include_str!("../shop/store/place.rs"),
    },
    Source {
        name: "priority.rs",
        about: "who goes first, and why nobody waits for ever",
        path: "src/ladder/priority.rs",
        text: include_str!("../ladder/priority.rs"),
    },
    Source {
        name: "read.rs",
        about: "the read that the new value is computed from",
        path: "src/shop/store/read.rs",
        text: include_str!("../shop/store/read.rs"),
    },
    Source {
        name: "remove.rs",
        about: "how a big key is removed without a stall",
        path: "src/big_keys/remove.rs",
        text: include_str!("../big_keys/remove.rs"),
    },
];

/// Returns the file called `name`, or the source of the strategy called `name`.
pub fn of(name: &str) -> Option<Source> {
    let file = FILES.into_iter().find(|file| file.name == name);
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
        for source in FILES.into_iter().chain(STRATEGIES.iter().map(of_strategy)) {
            let lines = source.lines();
            let says = lines[0].starts_with("//!") || lines[0].starts_with("--");
            assert!(lines.len() > 15 && says, "{}", source.path);
            assert!(!lines.contains(&"#[cfg(test)]"));
            assert!(std::path::Path::new(source.path).exists(), "{}", source.path);
        }
    }
}
