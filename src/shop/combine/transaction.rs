//! The transaction of one batch: claims, work, answers, commit.

use sqlx::PgConnection;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Told;
use super::{Member, Work, pass};
use crate::db::Transaction;
use crate::lock::Guards;
use crate::probe::Point;
use crate::shop::errand::{COMMIT_LIMIT, undone};
use crate::shop::idempotency::{self, Claim, Claimed};
use crate::shop::stock::BATCHED;
use crate::shop::{Error, Outcome, Refusal};

/// How one transaction ended.
pub(super) enum Step {
    /// It is over, and this came of each member.
    Over(Vec<Told>),
    /// It was rolled back.
    Failed(Error),
    /// The commit was sent, and nobody said that it was done. What each would have been told.
    Unacknowledged(Error, Vec<Told>),
}

/// A transaction in which the keys of a batch are claimed, and nothing else was done.
#[derive(Debug)]
pub(super) struct Begun {
    tx: Transaction,
    claimed: Vec<Claimed>,
}

impl Begun {
    /// Claims the keys of those members, until then. For `thorough` see
    /// [`idempotency::claim_all`].
    pub(super) async fn claim<W: Work>(
        mut tx: Transaction,
        members: &[Member<W>],
        thorough: bool,
        until: Instant,
    ) -> Result<Self, Error> {
        let claims: Vec<&Claim> = members.iter().map(|member| member.work.claim()).collect();
        let statements = async {
            match idempotency::claim_all(&mut tx, &claims, thorough).await {
                Ok(claimed) => Ok(Self { tx, claimed }),
                Err(error) => Err(undone(tx, error).await),
            }
        };
        timeout_at(until, statements).await.unwrap_or_else(|_| Err(Error::time_is_up()))
    }

    /// Does the work of the members it was begun for, under their lock.
    pub(super) async fn finish<W: Work>(self, guards: &Guards, members: &[Member<W>]) -> Step {
        let Self { mut tx, claimed } = self;
        let statements = async {
            match body(&mut tx, guards, members, claimed).await {
                Ok(told) if told.iter().any(|told| matches!(told, Outcome::Done(_))) => {
                    pass(members, Point::Commit, &BATCHED.exclusion(guards), |_| None).await;
                    Ok((Some(tx), told))
                }
                Ok(told) => {
                    tx.rollback().await?;
                    Ok((None, told))
                }
                Err(error) => Err(undone(tx, error).await),
            }
        };
        let (tx, told) = match timeout_at(deadline(members), statements).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(error)) => return Step::Failed(error),
            Err(_) => return Step::Failed(Error::time_is_up()),
        };
        let told = told.into_iter().map(Ok).collect();
        let Some(tx) = tx else { return Step::Over(told) };
        let error = match timeout(COMMIT_LIMIT, tx.commit()).await {
            Ok(Ok(())) => return Step::Over(told),
            Ok(Err(error)) => error.into(),
            Err(_) => Error::Overloaded("the commit took too long".to_owned()),
        };
        match error {
            error @ Error::Conflict(_) => Step::Failed(error),
            error => Step::Unacknowledged(error, told),
        }
    }
}

/// What a batch may find done when its lock is had.
#[derive(Debug)]
pub(super) enum Ready {
    /// Nothing.
    No,
    /// Its transaction has begun.
    Open(Transaction),
    /// And its keys are claimed.
    Claimed(Begun),
}

impl Ready {
    /// Undoes it.
    pub(super) async fn give_up(self) {
        match self {
            Ready::No => {}
            Ready::Open(tx) | Ready::Claimed(Begun { tx, .. }) => {
                let _ = timeout(COMMIT_LIMIT, tx.rollback()).await;
            }
        }
    }
}

/// The last of the members' deadlines.
pub(super) fn deadline<W>(members: &[Member<W>]) -> Instant {
    let last = members.iter().map(|member| member.conditions.deadline).max();
    last.unwrap_or_else(Instant::now)
}

/// What follows the claims: the work of those whose claim is theirs, and the answers of the others.
async fn body<W: Work>(
    tx: &mut PgConnection,
    guards: &Guards,
    members: &[Member<W>],
    claimed: Vec<Claimed>,
) -> Result<Vec<Outcome>, Error> {
    let claims: Vec<&Claim> = members.iter().map(|member| member.work.claim()).collect();
    let mut told: Vec<Option<Outcome>> = members.iter().map(|_| None).collect();
    let (mut ours, mut theirs, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
    for (at, claimed) in claimed.into_iter().enumerate() {
        match claimed {
            Claimed::Ours(row) => ours.push((at, row)),
            Claimed::Theirs => theirs.push(at),
            Claimed::Used(order) => {
                given_up.push(claims[at]);
                told[at] = Some(Outcome::Refused(Refusal::KeyUsed { order_id: Some(order) }));
            }
        }
    }
    if !theirs.is_empty() {
        let asked: Vec<&Claim> = theirs.iter().map(|at| claims[*at]).collect();
        for (at, stored) in theirs.into_iter().zip(idempotency::look_up_all(tx, &asked).await?) {
            // Not claimed and not there: forgotten in this moment, and tried again.
            let stored =
                stored.ok_or_else(|| Error::Conflict("a key was forgotten just now".to_owned()))?;
            told[at] = Some(stored.into());
        }
    }
    if !ours.is_empty() {
        let (places, working): (Vec<usize>, Vec<_>) =
            ours.into_iter().map(|(at, row)| (at, (&members[at], row))).unzip();
        let performed = W::perform(tx, &BATCHED.exclusion(guards), &working).await?;
        for (at, performed) in places.into_iter().zip(performed) {
            told[at] = Some(match performed {
                Ok(answer) => Outcome::Done(answer),
                Err(refusal) => {
                    given_up.push(claims[at]);
                    Outcome::Refused(refusal)
                }
            });
        }
    }
    let any_done = told.iter().any(|told| matches!(told, Some(Outcome::Done(_))));
    if any_done && !given_up.is_empty() {
        idempotency::unclaim(tx, &given_up).await?;
    }
    let missing = || Error::Bug("a member of a batch was told nothing".to_owned());
    told.into_iter().map(|told| told.ok_or_else(missing)).collect()
}
