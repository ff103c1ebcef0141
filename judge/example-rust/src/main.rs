use std::time::Duration;

use anyhow::Context;
use redis::{Script, aio::ConnectionManager};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::{Instant, sleep};

/// The fence is the time of the server in microseconds, which must not be set back.
const ACQUIRE: &str = "
    if not redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return false end
    local time = redis.call('time')
    return time[1] * 1000000 + time[2]";
const RELEASE: &str = "
    return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0";

#[derive(Clone)]
struct Lock {
    redis: ConnectionManager,
    ttl_ms: u64,
}

impl Lock {
    async fn acquire(&mut self, key: &str, wait: Duration) -> anyhow::Result<Value> {
        let lease = uuid::Uuid::new_v4().to_string();
        let until = Instant::now() + wait;
        loop {
            let fence: Option<i64> = Script::new(ACQUIRE)
                .key(key)
                .arg((&lease, self.ttl_ms))
                .invoke_async(&mut self.redis)
                .await?;
            if let Some(fence) = fence {
                return Ok(json!({"ok": true, "lease": lease, "fence": fence}));
            }
            if Instant::now() > until {
                return Ok(json!({"ok": false, "reason": "timeout"}));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn release(&mut self, key: &str, lease: &str) -> anyhow::Result<Value> {
        let released: bool =
            Script::new(RELEASE).key(key).arg(lease).invoke_async(&mut self.redis).await?;
        Ok(if released { json!({"ok": true}) } else { json!({"ok": false, "reason": "lost"}) })
    }

    async fn answer(mut self, request: Value) {
        let key = request["key"].as_str().unwrap_or_default();
        let wait = Duration::from_millis(request["wait_ms"].as_u64().unwrap_or_default());
        let lease = request["lease"].as_str().unwrap_or_default();
        let answer = match request["op"].as_str() {
            Some("acquire") => self.acquire(key, wait).await,
            _ => self.release(key, lease).await,
        };
        send(
            &request,
            answer.unwrap_or_else(
                |error| json!({"ok": false, "reason": "error", "detail": error.to_string()}),
            ),
        );
    }
}

fn send(request: &Value, mut answer: Value) {
    answer["id"] = request["id"].clone();
    println!("{answer}");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut lines = BufReader::new(stdin()).lines();
    let init: Value = serde_json::from_str(&lines.next_line().await?.context("no request")?)?;
    let client = redis::Client::open(init["redis_url"].as_str().context("no redis_url")?)?;
    let redis = client.get_connection_manager().await?;
    let lock = Lock { redis, ttl_ms: init["ttl_ms"].as_u64().context("no ttl_ms")? };
    send(&init, json!({"ok": true, "name": "my fenced lock", "fencing": true}));
    while let Some(line) = lines.next_line().await? {
        tokio::spawn(lock.clone().answer(serde_json::from_str(&line)?));
    }
    Ok(())
}
