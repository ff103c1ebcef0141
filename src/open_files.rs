//! The limit of open files: every client of a replica is one, and so is every connection to
//! Postgres and Redis. Tests: `tests/it/connections.rs`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that are kept for Redis, the connections beside the pool, connections that are being
/// refused, and other files.
const RESERVED: usize = 128;
/// Clients for which there should be files: the browsers of a class, with their pages and events.
const FEW_CLIENTS: usize = 1_000;

/// Raises the limit to its maximum and returns it: the usual 1,024 are fewer than may wait for two
/// items. (That default is for `select`, which is not used.) Child processes inherit it.
pub fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };

    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "no more than {:?} files can be open at once", limit.current);
            limit.current
        }
    };

    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// Returns how many clients a replica with a pool of that size can serve at a time.
pub fn for_clients(files: usize, pool_size: u32) -> usize {
    files.saturating_sub(reserved(pool_size))
}

/// Returns what to do about a limit that leaves few files for clients.
pub fn describe_shortage(files: usize, pool_size: u32) -> Option<String> {
    let clients = for_clients(files, pool_size);
    if clients >= FEW_CLIENTS {
        return None;
    }

    let reserved = reserved(pool_size);
    Some(format!(
        "a process may open {files} files, and a replica needs {reserved} for Postgres (a pool of \
         {pool_size}), Redis and itself: {clients} are left for the connections of clients, and \
         further ones are refused. Raise the hard limit to {} or more: `ulimit -Hn`, LimitNOFILE= of \
         systemd, --ulimit nofile= of Docker",
        reserved + FEW_CLIENTS
    ))
}

fn reserved(pool_size: u32) -> usize {
    RESERVED.saturating_add(usize::try_from(pool_size).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_described_with_their_numbers() {
        for (files, left) in [(64, "0 are left"), (128, "0 are left"), (1_024, "880 are left")] {
            let text = describe_shortage(files, 16).expect("few are left");
            let limit = format!("may open {files} files");
            let numbers = [limit.as_str(), left, "a pool of 16", "needs 144", "to 1144 or more"];
            assert!(numbers.iter().all(|number| text.contains(number)), "{numbers:?}: {text}");
        }
        assert_eq!(describe_shortage(1_144, 16), None);
        assert_eq!(describe_shortage(usize::MAX, 500), None);
    }
}
