//! The buyers of a run: each attempt to buy one unit has a key of its own, and its answers are
//! kept.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream;
use holdfast_lock::clock::monotonic_us;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use uuid::{Builder, Uuid};

use super::file::{OrderSettings, Values};
use super::http::HttpRequest;
use super::pass::{Load, Pass};
use super::program::BuyerProgram;

/// Pause before an attempt is sent again to an instance that does not listen.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The longest time between a request and the cut of its connection, in milliseconds.
const MAX_CUT_MS: u64 = 20;

/// Pause of a buyer after an error while Redis is away: the orders must last for longer.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive orders without an answer after which the run is given up.
const SILENT_ORDERS: usize = 3;

/// How orders are placed.
#[derive(Debug)]
pub(super) struct Buyers {
    pub(super) order: OrderSettings,
    /// The URLs of the instances.
    pub(super) bases: Vec<String>,
    pub(super) program: Option<BuyerProgram>,
    /// Time for an answer.
    pub(super) answer_timeout: Duration,
    /// Attempts of this run that are over.
    pub(super) ended: AtomicUsize,
    /// Connections that were cut in this run.
    pub(super) cuts: AtomicUsize,
}

/// An order of one unit by one buyer, at an instance.
#[derive(Debug, Clone)]
pub(super) struct OrderAttempt {
    pub(super) buyer: u64,
    pub(super) key: Uuid,
    pub(super) instance: usize,
}

/// The result of an attempt.
#[derive(Debug, Clone)]
pub(super) struct AttemptOutcome {
    pub(super) attempt: OrderAttempt,
    /// Of each time it was sent.
    pub(super) answers: Vec<Answered>,
}

#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) instance: usize,
    pub(super) answer: BuyerAnswer,
    pub(super) sent_us: u64,
    pub(super) answered_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BuyerAnswer {
    Sold,
    SoldOut,
    /// Neither of these.
    Error(String),
    /// There was none.
    Unknown(String),
}

/// The steps before an order have failed.
#[derive(Debug)]
pub(super) struct NotPrepared;

impl Display for NotPrepared {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("[order] command: a buyer can't prepare its order")
    }
}

impl AttemptOutcome {
    /// Returns the answer that counts: a sale if there is one among them.
    pub(super) fn answer(&self) -> &BuyerAnswer {
        let answers = || self.answers.iter().map(|answered| &answered.answer);
        let sold = answers().find(|answer| **answer == BuyerAnswer::Sold);
        let refused = answers().find(|answer| **answer == BuyerAnswer::SoldOut);
        let none = const { &BuyerAnswer::Unknown(String::new()) };
        sold.or(refused).or(answers().next_back()).unwrap_or(none)
    }
}

/// Returns the attempts of a run, over all instances.
pub(super) fn attempts(load: Load, instances: usize, seed: u64) -> Vec<OrderAttempt> {
    let mut random = StdRng::seed_from_u64(seed);
    let numbers = (1..).take(load.attempts);
    numbers
        .map(|buyer| OrderAttempt {
            buyer,
            key: Builder::from_random_bytes(random.random()).into_uuid(),
            instance: random.random_range(0..instances),
        })
        .collect()
}

impl Buyers {
    /// Goes through the steps before the orders, if a program has to.
    pub(super) async fn prepare(
        &self,
        attempts: &[OrderAttempt],
        item: &Value,
    ) -> anyhow::Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        let preparing = attempts.iter().map(async |attempt| {
            let key = attempt.key.to_string();
            program.prepare(attempt.buyer, &key, item, &self.bases[attempt.instance]).await
        });
        let mut prepared = stream::iter(preparing).buffer_unordered(16);
        while let Some(outcome) = prepared.next().await {
            outcome.context(NotPrepared)?;
        }
        Ok(())
    }

    /// Places the orders, a number of them at a time.
    pub(super) async fn order(
        &self,
        pass: Pass,
        attempts: Vec<OrderAttempt>,
        at_once: usize,
        values: &Values,
    ) -> Vec<AttemptOutcome> {
        self.ended.store(0, Ordering::Relaxed);
        self.cuts.store(0, Ordering::Relaxed);
        let ordering = attempts.into_iter().map(async |attempt| {
            let answers = self.attempt(pass, &attempt, values).await;
            self.ended.fetch_add(1, Ordering::Relaxed);
            AttemptOutcome { attempt, answers }
        });
        let mut ordering = stream::iter(ordering).buffer_unordered(at_once);
        let is_silent = |it: &AttemptOutcome| matches!(it.answer(), BuyerAnswer::Unknown(_));
        let mut outcomes = Vec::new();
        while let Some(outcome) = ordering.next().await {
            outcomes.push(outcome);
            let is_given_up = outcomes.len() == SILENT_ORDERS && outcomes.iter().all(is_silent);
            if pass == Pass::Control && is_given_up {
                break;
            }
        }
        outcomes
    }

    async fn attempt(&self, pass: Pass, attempt: &OrderAttempt, values: &Values) -> Vec<Answered> {
        let values = values.with("buyer", attempt.buyer).with("key", attempt.key.to_string());
        let elsewhere = (attempt.instance + 1) % self.bases.len();
        match pass {
            Pass::Retry => {
                let (first, second) = join(
                    self.send(attempt, attempt.instance, &values),
                    self.send(attempt, elsewhere, &values),
                )
                .await;
                let third = self.send(attempt, attempt.instance, &values).await;
                vec![first, second, third]
            }
            // Every other one, also one alone: the rest keeps the service busy.
            Pass::LostAnswer if !attempt.buyer.is_multiple_of(2) => {
                let cut = self.send_and_cut(attempt, &values).await;
                vec![cut, self.send(attempt, elsewhere, &values).await]
            }
            _ => {
                let answered = self.send(attempt, attempt.instance, &values).await;
                if pass.strikes_redis() && matches!(answered.answer, BuyerAnswer::Error(_)) {
                    sleep(ERROR_PAUSE).await;
                }
                vec![answered]
            }
        }
    }

    async fn send(&self, attempt: &OrderAttempt, mut instance: usize, values: &Values) -> Answered {
        let sent_us = monotonic_us();
        let sending = timeout(self.answer_timeout, async {
            match &self.program {
                Some(program) => self.send_by(program, attempt, instance).await,
                None => self.send_by_http(&mut instance, values).await,
            }
        });
        let answer = sending.await.unwrap_or_else(|_| {
            BuyerAnswer::Unknown(format!("no answer within {:?}", self.answer_timeout))
        });
        Answered { instance, answer, sent_us, answered_us: monotonic_us() }
    }

    async fn send_by(
        &self,
        program: &BuyerProgram,
        attempt: &OrderAttempt,
        instance: usize,
    ) -> BuyerAnswer {
        let answer = match program.order(attempt.buyer, &self.bases[instance]).await {
            Ok(answer) => answer,
            Err(error) => return BuyerAnswer::Unknown(format!("{error:#}")),
        };
        match (answer.answer.as_deref(), answer.error) {
            (Some("sold"), _) => BuyerAnswer::Sold,
            (Some("sold-out"), _) => BuyerAnswer::SoldOut,
            (Some("unknown"), error) => BuyerAnswer::Unknown(
                error.unwrap_or_else(|| "the program had no answer".to_owned()),
            ),
            (Some(other), _) => BuyerAnswer::Error(other.to_owned()),
            (None, Some(error)) => BuyerAnswer::Error(error),
            (None, None) => BuyerAnswer::Error("an answer without `answer` or `error`".to_owned()),
        }
    }

    /// Sends a request to an instance; to another one, which then is `instance`, if no process
    /// listens there.
    async fn send_by_http(&self, instance: &mut usize, values: &Values) -> BuyerAnswer {
        let OrderSettings { sold, sold_out, .. } = &self.order;
        let is_expected = |status: u16| sold.contains(&status) || sold_out.contains(&status);
        loop {
            let request = match self.request(&self.bases[*instance], values) {
                Ok(request) => request,
                Err(error) => return BuyerAnswer::Error(error.to_string()),
            };
            match request.send(is_expected).await {
                Ok(answer) if sold.contains(&answer.status) => return BuyerAnswer::Sold,
                Ok(answer) if sold_out.contains(&answer.status) => return BuyerAnswer::SoldOut,
                Ok(answer) => return BuyerAnswer::Error(answer.describe()),
                // Nothing was sent.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    sleep(RECONNECT_DELAY).await;
                    *instance = (*instance + 1) % self.bases.len();
                }
                Err(error) => return BuyerAnswer::Unknown(error.to_string()),
            }
        }
    }

    /// Sends a request, and cuts its connection before the answer.
    async fn send_and_cut(&self, attempt: &OrderAttempt, values: &Values) -> Answered {
        let sent_us = monotonic_us();
        let after = attempt.key.as_u64_pair().0 % (MAX_CUT_MS + 1);
        let cut = async {
            let request = self.request(&self.bases[attempt.instance], values).ok()?;
            request.send_and_cut(Duration::from_millis(after)).await.ok()
        };
        if let Ok(Some(())) = timeout(self.answer_timeout, cut).await {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        let answer = BuyerAnswer::Unknown("the connection was cut".to_owned());
        Answered { instance: attempt.instance, answer, sent_us, answered_us: monotonic_us() }
    }

    fn request(&self, base: &str, values: &Values) -> anyhow::Result<HttpRequest> {
        let values = values.with("base", base);
        HttpRequest::order(&self.order, base, &values)
    }
}
