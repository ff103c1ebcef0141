//! The files that show the strategies, in the program: what a page shows is what runs.

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)))),+]
    };
}

static FILES: [(&str, &str); 20] = files![
    "src/lock/ladder/check_then_del.rs",
    "src/lock/ladder/expire_only.rs",
    "src/lock/ladder/local.rs",
    "src/lock/ladder/owner.rs",
    "src/lock/ladder/queue.rs",
    "src/lock/ladder/quorum.rs",
    "src/lock/ladder/setnx.rs",
    "src/lock/ladder/setnx_expire.rs",
    "src/lock/ladder/ttl.rs",
    "src/lock/ladder/watchdog.rs",
    "src/shop/stock/advisory.rs",
    "src/shop/stock/atomic.rs",
    "src/shop/stock/batched.rs",
    "src/shop/stock/early_release.rs",
    "src/shop/stock/fenced.rs",
    "src/shop/stock/read_then_update.rs",
    "src/shop/stock/row_lock.rs",
    "src/shop/stock/serializable.rs",
    "src/shop/stock/version.rs",
    "src/shop/stock/wrong_key.rs",
];

/// The text of that file; empty for one that shows no strategy.
pub(super) fn text(path: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text)
}
