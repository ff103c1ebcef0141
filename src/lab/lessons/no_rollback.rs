//! Lesson `no-rollback`: three `MULTI` sequences on the same keys, each followed by a read of the
//! result.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value, cmd};

use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;

pub(super) const LESSON: Lesson = Lesson {
    number: 21,
    name: "no-rollback",
    claim: "MULTI/EXEC does not roll back what went before an error; a command that can't even be \
            queued aborts everything; DISCARD only drops the queue.",
    question: "MULTI, SET stock 9, LPUSH stock x (stock is no list), SET sold 1, EXEC. What is in \
               Redis afterwards?",
    guesses: &[
        "nothing: one failed, so all are rolled back",
        "stock 9 and sold 1: the error undoes nothing",
        "stock 9 alone: it stops at the error",
    ],
    right: 1,
    load: None,
    shows: &[],
    takeaway: [
        "EXEC runs a queue without anybody in between, and that is all: it isolates, and does not \
         undo.",
        "An error of form (a wrong number of arguments) is seen when the command is queued and ends \
         everything; an error of meaning is seen when it is too late.",
        "What must happen as a whole belongs into Postgres, or into a script that checks before its \
         first write.",
    ],
    play: |lab| Box::pin(play(lab)),
};

async fn play(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let mut connection = DedicatedConnection {
        redis: lab.redis().await?,
        stock: lab.unique_key("stock"),
        sold: lab.unique_key("sold"),
    };
    let (stock, sold) = (connection.stock.clone(), connection.sold.clone());

    connection.reset().await?;
    lab.say("MULTI · SET stock 9 · LPUSH stock x · SET sold 1 · EXEC").await;
    connection.run(cmd("MULTI")).await?;
    connection.run(cmd("SET").arg(&stock).arg(9).clone()).await?;
    connection.run(cmd("LPUSH").arg(&stock).arg("x").clone()).await?;
    connection.run(cmd("SET").arg(&sold).arg(1).clone()).await?;
    let exec_error = connection.error_of(cmd("EXEC")).await;
    let half = connection.values().await?;
    lab.say(format!("EXEC complains of LPUSH. Redis has {}.", describe(&half))).await;

    connection.reset().await?;
    lab.say("MULTI · SET stock 9 · SET stock (no value) · EXEC").await;
    connection.run(cmd("MULTI")).await?;
    connection.run(cmd("SET").arg(&stock).arg(9).clone()).await?;
    let unqueued = connection.error_of(cmd("SET").arg(&stock).clone()).await;
    let aborted = connection.error_of(cmd("EXEC")).await;
    let none = connection.values().await?;
    lab.say(format!("It can't be queued, and EXEC runs nothing: {}.", describe(&none))).await;

    connection.reset().await?;
    lab.say("SET stock 9 · MULTI · SET stock 8 · DISCARD").await;
    connection.run(cmd("SET").arg(&stock).arg(9).clone()).await?;
    connection.run(cmd("MULTI")).await?;
    connection.run(cmd("SET").arg(&stock).arg(8).clone()).await?;
    connection.run(cmd("DISCARD")).await?;
    let kept = connection.values().await?;
    lab.say(format!("The queue is gone; what was done before MULTI stays: {}.", describe(&kept)))
        .await;
    cmd("DEL").arg(&stock).arg(&sold).exec_async(&mut connection.redis).await?;

    let mentions =
        |said: &Option<String>, word: &str| said.as_ref().is_some_and(|s| s.contains(word));
    lab.fact("EXEC after a command of the wrong type", exec_error.clone().unwrap_or_default());
    lab.fact("EXEC after one that could not be queued", aborted.clone().unwrap_or_default());
    let shown = half == (Some(9), Some(1))
        && none == (Some(10), None)
        && kept == (Some(9), None)
        && mentions(&exec_error, "wrong kind")
        && unqueued.is_some()
        && (mentions(&aborted, "EXECABORT") || mentions(&aborted, "discarded"));
    Ok(LessonResult::new(
        shown,
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
    let number = |value: &Option<i64>| value.map_or("nothing".to_owned(), |v| v.to_string());
    format!("stock {}, sold {}", number(stock), number(sold))
}

/// A connection with no other user: `MULTI` is a state of the connection.
struct DedicatedConnection {
    redis: MultiplexedConnection,
    stock: String,
    sold: String,
}

impl DedicatedConnection {
    /// Resets the keys to a stock of 10 and no sales.
    async fn reset(&mut self) -> RedisResult<()> {
        cmd("DEL").arg(&self.sold).exec_async(&mut self.redis).await?;
        cmd("SET").arg(&self.stock).arg(10).arg("EX").arg(60).exec_async(&mut self.redis).await
    }

    async fn run(&mut self, command: Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.redis).await
    }

    /// Returns the error of a command, or the first error among the results of an `EXEC`.
    async fn error_of(&mut self, command: Cmd) -> Option<String> {
        match command.query_async::<Value>(&mut self.redis).await {
            Err(error) => Some(error.to_string()),
            Ok(Value::Array(answers)) => answers.into_iter().find_map(|response| match response {
                Value::ServerError(error) => Some(format!("{error:?}")),
                _ => None,
            }),
            Ok(_) => None,
        }
    }

    async fn values(&mut self) -> RedisResult<StockAndSold> {
        cmd("MGET").arg(&self.stock).arg(&self.sold).query_async(&mut self.redis).await
    }
}
