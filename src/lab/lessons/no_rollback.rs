//! Lesson `no-rollback`: three `MULTI` sequences on the same keys, each followed by a read of the
//! result.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, cmd};

use super::{Chapter, Lesson, LessonResult, Scenario};

pub(super) const LESSON: Lesson = Lesson {
    name: "no-rollback",
    chapter: Chapter::Redis,
    right: 2,
    load: None,
    shows: &[],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let (redis, stock, sold) =
        (lab.redis().await?, lab.unique_key("stock"), lab.unique_key("sold"));
    let (stock, sold) = (stock.as_str(), sold.as_str());
    let mut connection = DedicatedConnection { redis, stock, sold };

    lab.say("MULTI · SET stock 9 · LPUSH stock x · SET sold 1 · EXEC");
    let (set, push) = (["SET", stock, "9"], ["LPUSH", stock, "x"]);
    let commands: [&[&str]; 5] = [&["MULTI"], &set, &push, &["SET", sold, "1"], &["EXEC"]];
    let (exec_error, half) = connection.run(&commands).await?;
    lab.say(format!("EXEC reports an error for LPUSH. Redis has {}.", describe(&half)));

    lab.say("MULTI · SET stock 9 · SET stock (no value) · EXEC");
    let commands: [&[&str]; 4] = [&["MULTI"], &set, &["SET", stock], &["EXEC"]];
    let (aborted, none) = connection.run(&commands).await?;
    lab.say(format!("The command cannot be queued, and EXEC runs nothing: {}.", describe(&none)));

    lab.say("SET stock 9 · MULTI · SET stock 8 · DISCARD");
    let commands: [&[&str]; 4] = [&set, &["MULTI"], &["SET", stock, "8"], &["DISCARD"]];
    let (_, kept) = connection.run(&commands).await?;
    lab.say(format!(
        "DISCARD drops the queue; the change before MULTI stays: {}.",
        describe(&kept)
    ));
    cmd("DEL").arg(stock).arg(sold).exec_async(&mut connection.redis).await?;

    let half_done = half == (Some(9), Some(1)) && exec_error.contains("wrong kind");
    let is_abort = aborted.contains("EXECABORT") || aborted.contains("discarded");
    let nothing_done = none == (Some(10), None) && is_abort;
    lab.evidence("EXEC after a command of the wrong type", &exec_error, half_done);
    lab.evidence("EXEC after a command that could not be queued", &aborted, nothing_done);
    Ok(LessonResult::new(
        half_done && nothing_done && kept == (Some(9), None),
        format!(
            "after an error in EXEC: {} · after one in the queue: {} · after DISCARD: {}",
            describe(&half),
            describe(&none),
            describe(&kept)
        ),
    ))
}

type StockAndSold = (Option<i64>, Option<i64>);

fn describe((stock, sold): &StockAndSold) -> String {
    let number = |value: &Option<i64>| value.map_or("(none)".to_owned(), |v| v.to_string());
    format!("stock {}, sold {}", number(stock), number(sold))
}

/// A connection with no other user: `MULTI` is a state of the connection.
struct DedicatedConnection<'a> {
    redis: MultiplexedConnection,
    stock: &'a str,
    sold: &'a str,
}

impl DedicatedConnection<'_> {
    /// Executes the commands with a stock of 10 and no sales. Returns the error of the last one, or
    /// the first error among its results, and the stock and the sales afterwards.
    async fn run(&mut self, commands: &[&[&str]]) -> RedisResult<(String, StockAndSold)> {
        let redis = &mut self.redis;
        cmd("DEL").arg(self.sold).exec_async(redis).await?;
        cmd("SET").arg(self.stock).arg(10).arg("EX").arg(60).exec_async(redis).await?;
        let mut error = String::new();
        for command in commands {
            let response = cmd(command[0]).arg(&command[1..]).query_async::<Value>(redis).await;
            error = match response {
                Err(error) => error.to_string(),
                Ok(Value::Array(results)) => results.iter().find_map(error_of).unwrap_or_default(),
                Ok(_) => String::new(),
            };
        }
        let values = cmd("MGET").arg(self.stock).arg(self.sold).query_async(redis).await?;
        Ok((error, values))
    }
}

fn error_of(result: &Value) -> Option<String> {
    match result {
        Value::ServerError(error) => Some(format!("{error:?}")),
        _ => None,
    }
}
