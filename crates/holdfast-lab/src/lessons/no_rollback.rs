//! Lesson `no-rollback`: three `MULTI` sequences on the same keys, each followed by a read of the
//! result.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, cmd};

use super::{LessonResult, Scenario};
use holdfast_base::messages::{Message, message};

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let mut redis = lab.redis().await?;
    let keys = [lab.unique_key("stock"), lab.unique_key("sold")];
    let [stock, sold] = keys.each_ref().map(String::as_str);

    lab.say(message!("run-no-rollback-step-1"));
    let set = ["SET", stock, "9"];
    let push = ["LPUSH", stock, "x"];
    let failing: [&[&str]; 5] = [&["MULTI"], &set, &push, &["SET", sold, "1"], &["EXEC"]];
    let (exec_error, half) = execute(&mut redis, &keys, &failing).await?;
    lab.say(message!("run-no-rollback-step-2", half = describe(&half)));

    lab.say(message!("run-no-rollback-step-3"));
    let invalid: [&[&str]; 4] = [&["MULTI"], &set, &["SET", stock], &["EXEC"]];
    let (aborted, none) = execute(&mut redis, &keys, &invalid).await?;
    lab.say(message!("run-no-rollback-step-4", none = describe(&none)));

    lab.say(message!("run-no-rollback-step-5"));
    let discarded: [&[&str]; 4] = [&set, &["MULTI"], &["SET", stock, "8"], &["DISCARD"]];
    let (_, kept) = execute(&mut redis, &keys, &discarded).await?;
    lab.say(message!("run-no-rollback-step-6", kept = describe(&kept)));
    cmd("DEL").arg(stock).arg(sold).exec_async(&mut redis).await?;

    let half_done = half == (9, Some(1)) && exec_error.contains("wrong kind");
    let is_abort = aborted.contains("EXECABORT") || aborted.contains("discarded");
    let nothing_done = none == (10, None) && is_abort;
    lab.evidence(message!("run-no-rollback-fact-1"), &exec_error, half_done);
    lab.evidence(message!("run-no-rollback-fact-2"), &aborted, nothing_done);

    let verdict = message!("run-no-rollback-verdict", half = describe(&half));
    Ok(LessonResult::of_scenes(half_done && nothing_done && kept == (9, None), verdict))
}

type StockAndSold = (i64, Option<i64>);

fn describe((stock, sold): &StockAndSold) -> Message {
    match sold {
        Some(sold) => message!("run-stock-and-sold", stock, sold),
        None => message!("run-stock-unsold", stock),
    }
}

/// Executes the commands with a stock of 10 and no sales, on a connection with no other user:
/// `MULTI` is a state of the connection. Returns the error of the last one, or the first error
/// among its results, and the stock and the sales afterwards.
async fn execute(
    redis: &mut MultiplexedConnection,
    [stock, sold]: &[String; 2],
    commands: &[&[&str]],
) -> RedisResult<(String, StockAndSold)> {
    cmd("DEL").arg(sold).exec_async(redis).await?;
    cmd("SET").arg(stock).arg(10).arg("EX").arg(60).exec_async(redis).await?;

    let mut error = String::new();
    for command in commands {
        let response = cmd(command[0]).arg(&command[1..]).query_async::<Value>(redis).await;
        error = match response {
            Err(error) => error.to_string(),
            Ok(Value::Array(results)) => results.iter().find_map(error_of).unwrap_or_default(),
            Ok(_) => String::new(),
        };
    }

    Ok((error, cmd("MGET").arg(stock).arg(sold).query_async(redis).await?))
}

fn error_of(result: &Value) -> Option<String> {
    match result {
        Value::ServerError(error) => Some(format!("{error:?}")),
        _ => None,
    }
}
