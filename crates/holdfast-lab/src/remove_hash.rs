//! Removes a large hash in batches, for a server without `UNLINK`.
//!
//! A command with a thousand times the fields blocks all clients a thousand times as long, so each
//! command removes few of them, and a pause after it lets other clients in.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::time::{Instant, sleep};

/// Fields per command: about half a millisecond of Redis's time for a hash that is in no cache.
pub(super) const BATCH_SIZE: u32 = 500;

/// Removes every field that the hash has during the whole call, and with the last one the hash.
pub(super) async fn remove_in_batches(
    redis: &mut MultiplexedConnection,
    hash: &str,
) -> RedisResult<()> {
    let mut cursor = 0_u64;

    loop {
        let began = Instant::now();
        let mut scan = cmd("HSCAN");
        scan.arg(hash).arg(cursor).arg("COUNT").arg(BATCH_SIZE);
        let (next, page): (u64, Vec<Vec<u8>>) = scan.query_async(redis).await?;

        // A page alternates fields and values; an empty one is no error.
        let fields: Vec<&Vec<u8>> = page.iter().step_by(2).collect();
        if !fields.is_empty() {
            cmd("HDEL").arg(hash).arg(fields).exec_async(redis).await?;
        }

        if next == 0 {
            return Ok(());
        }
        cursor = next;
        sleep(began.elapsed() / 2).await;
    }
}
