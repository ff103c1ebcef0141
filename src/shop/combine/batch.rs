//! One batch: its tokens, its transaction, and what becomes of each member.

use std::time::Duration;

use rand::RngExt as _;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Member, Work, pass};
use crate::lock::{Guards, TokenTaken, Tokens};
use crate::probe::Point;
use crate::shop::errand::{ATTEMPTS, COMMIT_LIMIT, heal};
use crate::shop::idempotency::{self, Claim, Claimed, Place, Stored};
use crate::shop::stock::BATCHED;
use crate::shop::{Answer, Error, Outcome, Refusal, Shop};

/// How the lock stands after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As before.
    Held,
    /// It was lost on the way.
    Lost,
    /// A commit may still be on its way, so nobody else may have it before the lease ends.
    MayStillRun,
}

/// What came of one member.
type Told = Result<Outcome, Error>;

/// Carries a batch out and answers each of its members.
pub(super) async fn carry_out<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: Vec<Member<W>>,
    tokens: &mut Tokens,
) -> End {
    let members = open(shop, members, tokens).await;
    pass(&members, Point::Held, |_| None).await;
    let (told, end) = in_parts(shop, guards, &members).await;
    let committed = |at: usize| matches!(told[at], Ok(Outcome::Done(_)));
    let done = members.iter().enumerate().filter(|(at, _)| committed(*at));
    pass(done.map(|(_, member)| member), Point::Committed, |_| None).await;
    pass(&members, Point::Release, |_| None).await;

    for member in &members {
        tokens.finish(&member.work.claim().token_name());
    }
    let (settled, open): (Vec<_>, Vec<_>) = members
        .into_iter()
        .zip(told)
        .partition(|(_, told)| matches!(told, Ok(Outcome::Done(_) | Outcome::Replayed(_))));
    for (member, told) in settled {
        member.answer(told);
    }
    if !open.is_empty() {
        // Their keys may be used again, so their tokens are free before they hear of it.
        tokens.flush().await;
    }
    for (member, told) in open {
        member.answer(told);
    }
    end
}

fn answer_all<W>(members: Vec<Member<W>>, error: &Error) {
    for member in members {
        member.answer(Err(error.clone()));
    }
}

/// Takes the tokens' locks of those who have none yet, all in one round trip. Whoever's token
/// somebody else has is answered: with what is stored by now, or with a no. The others.
pub(super) async fn open<W: Work>(
    shop: &Shop,
    members: Vec<Member<W>>,
    tokens: &mut Tokens,
) -> Vec<Member<W>> {
    let (mut ours, fresh): (Vec<_>, Vec<_>) = members.into_iter().partition(|m| m.has_token);
    if fresh.is_empty() {
        return ours;
    }
    let names: Vec<(String, String)> = fresh
        .iter()
        .map(|member| member.work.claim())
        .map(|claim| (claim.token_name(), claim.fingerprint_hex()))
        .collect();
    let taken = match tokens.take(&names).await {
        Ok(taken) => taken,
        Err(error) => {
            answer_all(fresh, &error.into());
            return ours;
        }
    };
    let mut theirs = Vec::new();
    for (mut member, taken) in fresh.into_iter().zip(taken) {
        match taken {
            TokenTaken::Taken => {
                member.has_token = true;
                ours.push(member);
            }
            TokenTaken::InFlight => theirs.push((member, Refusal::KeyInFlight)),
            TokenTaken::Mismatch => theirs.push((member, Refusal::KeyMismatch)),
        }
    }
    if !theirs.is_empty() {
        answer_taken(shop, theirs).await;
    }
    ours
}

/// Somebody else has their tokens: what was done with them by now, or that it is being done.
async fn answer_taken<W: Work>(shop: &Shop, theirs: Vec<(Member<W>, Refusal)>) {
    let claims: Vec<&Claim> = theirs.iter().map(|(member, _)| member.work.claim()).collect();
    let stored = async { idempotency::look_up_all(&mut *shop.connection().await?, &claims).await };
    match stored.await {
        Ok(stored) => {
            for ((member, refusal), stored) in theirs.into_iter().zip(stored) {
                member.answer(Ok(outcome_of(stored.unwrap_or(Stored::Refused(refusal)))));
            }
        }
        Err(error) => answer_all(theirs.into_iter().map(|(member, _)| member).collect(), &error),
    }
}

fn outcome_of(stored: Stored) -> Outcome {
    match stored {
        Stored::Finished(answer) => Outcome::Replayed(answer),
        Stored::Refused(refusal) => Outcome::Refused(refusal),
    }
}

/// Carries the members out, in one transaction if that goes. One that fails by a mistake of ours
/// must not take the others with it: then each half is tried for itself.
async fn in_parts<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: &[Member<W>],
) -> (Vec<Told>, End) {
    if members.is_empty() {
        return (Vec::new(), End::Held);
    }
    let (told, end) = attempt_until_done(shop, guards, members).await;
    let bug = matches!(told.first(), Some(Err(Error::Bug(_))));
    if !bug || members.len() == 1 {
        return (told, end);
    }
    tracing::warn!(members = members.len(), "a batch failed; its halves are tried");
    let (front, back) = members.split_at(members.len() / 2);
    let (mut told, first) = Box::pin(in_parts(shop, guards, front)).await;
    if first != End::Held {
        let lost = || Err(Error::LockLost(members[0].work.key()));
        told.extend(back.iter().map(|_| lost()));
        return (told, first);
    }
    let (more, end) = Box::pin(in_parts(shop, guards, back)).await;
    told.extend(more);
    (told, end)
}

async fn attempt_until_done<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: &[Member<W>],
) -> (Vec<Told>, End) {
    let all = |error: &Error| members.iter().map(|_| Err(error.clone())).collect();
    let (mut attempt, mut healings) = (1, 0);
    loop {
        match in_one_transaction(shop, guards, members, attempt > 1).await {
            Step::Over(told) => return (told, End::Held),
            Step::Failed(Error::Conflict(_)) if attempt < ATTEMPTS => {
                let pause = rand::rng().random_range(2..=20 * attempt);
                sleep(Duration::from_millis(pause.into())).await;
                attempt += 1;
            }
            Step::Failed(Error::Conflict(cause)) => {
                let cause = format!("given up after {ATTEMPTS} attempts: {cause}");
                return (all(&Error::Overloaded(cause)), End::Held);
            }
            Step::Failed(Error::Stale(stale)) => {
                healings += 1;
                match heal(guards, stale, healings).await {
                    Ok(()) => {}
                    Err(error @ Error::LockLost(_)) => return (all(&error), End::Lost),
                    Err(error) => return (all(&error), End::Held),
                }
            }
            Step::Failed(error) => return (all(&error), End::Held),
            Step::Unacknowledged(error) => return settle(shop, members, error).await,
        }
    }
}

/// How one transaction ended.
enum Step {
    /// It is over, and this came of each member.
    Over(Vec<Told>),
    /// It was rolled back, or never began.
    Failed(Error),
    /// The commit was sent, and nobody said that it was done.
    Unacknowledged(Error),
}

async fn in_one_transaction<W: Work>(
    shop: &Shop,
    guards: &Guards,
    members: &[Member<W>],
    thorough: bool,
) -> Step {
    let mut connection = match shop.connection().await {
        Ok(connection) => connection,
        Err(error) => return Step::Failed(error),
    };
    let deadline = members.iter().map(|member| member.conditions.deadline).max();
    let deadline = deadline.unwrap_or_else(Instant::now);
    let step = transaction(&mut connection, guards, members, deadline, thorough).await;
    match step {
        Ok(step @ (Step::Over(_) | Step::Failed(_))) => step,
        Ok(step @ Step::Unacknowledged(_)) => {
            drop(connection.detach());
            step
        }
        Err(TimeUp) => {
            // Whatever it was doing, Postgres undoes it when the connection ends.
            drop(connection.detach());
            Step::Failed(Error::Overloaded("the requests' time is up".to_owned()))
        }
    }
}

/// The time of all members ran out before the commit was sent.
struct TimeUp;

async fn transaction<W: Work>(
    connection: &mut PgConnection,
    guards: &Guards,
    members: &[Member<W>],
    deadline: Instant,
    thorough: bool,
) -> Result<Step, TimeUp> {
    let statements = async {
        let mut tx = connection.begin().await?;
        let told = body(&mut tx, guards, members, thorough).await?;
        if told.iter().any(|told| matches!(told, Outcome::Done(_))) {
            pass(members, Point::Commit, |_| None).await;
            Ok((Some(tx), told))
        } else {
            tx.rollback().await?;
            Ok((None, told))
        }
    };
    let (tx, told) = match timeout_at(deadline, statements).await {
        Ok(Ok(ready)) => ready,
        Ok(Err(error)) => return Ok(Step::Failed(error)),
        Err(_) => return Err(TimeUp),
    };
    let told = told.into_iter().map(Ok).collect();
    let Some(tx) = tx else { return Ok(Step::Over(told)) };
    Ok(match timeout(COMMIT_LIMIT, tx.commit()).await {
        Ok(Ok(())) => Step::Over(told),
        Ok(Err(error)) => match error.into() {
            error @ Error::Conflict(_) => Step::Failed(error),
            error => Step::Unacknowledged(error),
        },
        Err(_) => Step::Unacknowledged(Error::Overloaded("the commit took too long".to_owned())),
    })
}

/// The statements of a batch: claims, the work of those whose claim is theirs, their answers.
async fn body<W: Work>(
    tx: &mut PgConnection,
    guards: &Guards,
    members: &[Member<W>],
    thorough: bool,
) -> Result<Vec<Outcome>, Error> {
    let claims: Vec<&Claim> = members.iter().map(|member| member.work.claim()).collect();
    let claimed = idempotency::claim_all(tx, &claims, thorough).await?;
    let mut told: Vec<Option<Outcome>> = members.iter().map(|_| None).collect();
    let (mut ours, mut theirs, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
    for (at, claimed) in claimed.into_iter().enumerate() {
        match claimed {
            Claimed::Ours(place) => ours.push((at, place)),
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
            told[at] = Some(outcome_of(stored));
        }
    }
    let mut answers: Vec<(Place, Answer)> = Vec::with_capacity(ours.len());
    if !ours.is_empty() {
        let working: Vec<&Member<W>> = ours.iter().map(|(at, _)| &members[*at]).collect();
        let performed = W::perform(tx, &BATCHED.exclusion(guards), &working).await?;
        for ((at, place), performed) in ours.into_iter().zip(performed) {
            told[at] = Some(match performed {
                Ok(answer) => {
                    answers.push((place, answer.clone()));
                    Outcome::Done(answer)
                }
                Err(refusal) => {
                    given_up.push(claims[at]);
                    Outcome::Refused(refusal)
                }
            });
        }
    }
    if !answers.is_empty() {
        if !given_up.is_empty() {
            idempotency::unclaim(tx, &given_up).await?;
        }
        idempotency::store_all(tx, &answers).await?;
    }
    let missing = || Error::Bug("a member of a batch was told nothing".to_owned());
    told.into_iter().map(|told| told.ok_or_else(missing)).collect()
}

/// The commit was sent and no answer came: each member's key tells what became of it.
async fn settle<W: Work>(shop: &Shop, members: &[Member<W>], error: Error) -> (Vec<Told>, End) {
    let failed = |error: &Error| members.iter().map(|_| Err(error.clone())).collect();
    tracing::warn!(%error, members = members.len(), "a commit was not acknowledged");
    let claims: Vec<&Claim> = members.iter().map(|member| member.work.claim()).collect();
    match idempotency::settle_all(shop, &claims).await {
        Ok(settled) => {
            let told = settled.into_iter().map(|stored| match stored {
                Some(Stored::Finished(answer)) => Ok(Outcome::Done(answer)),
                Some(Stored::Refused(refusal)) => Ok(Outcome::Refused(refusal)),
                None => Err(error.clone()),
            });
            (told.collect(), End::Held)
        }
        Err(_) => {
            let unknown = Error::Unavailable {
                what: "Postgres",
                cause: error.to_string(),
                outcome_unknown: true,
            };
            (failed(&unknown), End::MayStillRun)
        }
    }
}
