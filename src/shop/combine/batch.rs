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
#[derive(Debug)]
pub(super) enum End {
    /// As before.
    Held,
    /// It was lost on the way.
    Lost,
    /// A commit may still be on its way, so nobody else may have it before the lease ends.
    MayStillRun,
    /// As before, but Postgres can't be reached: nobody who waits need wait for that again.
    Away(Error),
}

/// What came of one member.
pub(super) type Told = Result<Outcome, Error>;

/// Carries a batch out; of each member what it is to be told.
pub(super) async fn carry_out<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: Vec<Member<W>>,
    tokens: &mut Tokens,
) -> (Vec<(Member<W>, Told)>, End) {
    let members = open(shop, members, tokens).await;
    pass(&members, Point::Held, |_| None).await;
    let (told, end) = in_parts(shop, guards, &members).await;
    let committed = |at: usize| matches!(told[at], Ok(Outcome::Done(_)));
    let done = members.iter().enumerate().filter(|(at, _)| committed(*at));
    pass(done.map(|(_, member)| member), Point::Committed, |_| None).await;
    pass(&members, Point::Release, |_| None).await;

    (members.into_iter().zip(told).collect(), end)
}

/// Tells the members of a batch what came of them.
pub(super) async fn answer<W: Work>(told: Vec<(Member<W>, Told)>, tokens: &mut Tokens) {
    for (member, _) in &told {
        tokens.finish(&member.work.claim().token_name());
    }
    let (settled, open): (Vec<_>, Vec<_>) = told
        .into_iter()
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
}

/// Tells members why they are not served; their tokens are free by then.
pub(super) async fn dismiss<W: Work>(
    members: Vec<Member<W>>,
    why: &Result<Refusal, Error>,
    tokens: &mut Tokens,
) {
    let mut any = false;
    for member in members.iter().filter(|member| member.has_token) {
        tokens.finish(&member.work.claim().token_name());
        any = true;
    }
    if any {
        tokens.flush().await;
    }
    for member in members {
        member.answer(why.clone().map(Outcome::Refused));
    }
}

/// Answers those whose keys are finished; the others. When Postgres does not tell, all.
pub(super) async fn replay<W: Work>(
    shop: &Shop,
    members: Vec<Member<W>>,
    tokens: &mut Tokens,
) -> Vec<Member<W>> {
    let claims: Vec<&Claim> = members.iter().map(|member| member.work.claim()).collect();
    let Ok(stored) = shop.look(&claims).await else { return members };
    let asked = members.len();
    let mut rest = Vec::with_capacity(members.len());
    for (member, stored) in members.into_iter().zip(stored) {
        match stored {
            Some(stored) => {
                tokens.finish(&member.work.claim().token_name());
                member.answer(Ok(stored.into()));
            }
            None => rest.push(member),
        }
    }
    if rest.len() < asked {
        tokens.flush().await;
    }
    rest
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
            dismiss(fresh, &Err(error.into()), tokens).await;
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
        // By a task of its own: those who have their tokens don't wait for it.
        let (shop_there, runtime) = (shop.clone(), shop.runtime.clone());
        shop.running.spawn_on(async move { answer_taken(&shop_there, theirs).await }, &runtime);
    }
    ours
}

/// Somebody else has their tokens: what was done with them by now, or that it is being done.
async fn answer_taken<W: Work>(shop: &Shop, theirs: Vec<(Member<W>, Refusal)>) {
    let claims: Vec<&Claim> = theirs.iter().map(|(member, _)| member.work.claim()).collect();
    match shop.look(&claims).await {
        Ok(stored) => {
            for ((member, refusal), stored) in theirs.into_iter().zip(stored) {
                let told = stored.map_or(Outcome::Refused(refusal), Outcome::from);
                member.answer(Ok(told));
            }
        }
        Err(error) => {
            for (member, _) in theirs {
                member.answer(Err(error.clone()));
            }
        }
    }
}

/// Carries the members out, in one transaction if that goes. One that fails by a mistake of ours
/// must not take the others with it: then each half is tried for itself.
async fn in_parts<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: &[Member<W>],
) -> (Vec<Told>, End) {
    let error = match attempt_until_done(shop, guards, members).await {
        Ok(ended) => return ended,
        Err(error) if members.len() > 1 => error,
        Err(error) => return (all(members, &error), End::Held),
    };
    tracing::warn!(%error, members = members.len(), "a batch failed; its halves are tried");
    let (front, back) = members.split_at(members.len() / 2);
    let (mut told, end) = Box::pin(in_parts(shop, guards, front)).await;
    if !matches!(end, End::Held) {
        told.extend(all(back, &Error::Overloaded("the batch before it failed".to_owned())));
        return (told, end);
    }
    let (more, end) = Box::pin(in_parts(shop, guards, back)).await;
    told.extend(more);
    (told, end)
}

fn all<W>(members: &[Member<W>], error: &Error) -> Vec<Told> {
    members.iter().map(|_| Err(error.clone())).collect()
}

/// An error is a mistake of ours, in one of the members at least; nothing was done then.
async fn attempt_until_done<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: &[Member<W>],
) -> Result<(Vec<Told>, End), Error> {
    if members.is_empty() {
        return Ok((Vec::new(), End::Held));
    }
    let (mut attempt, mut healings) = (1, 0);
    let (error, end) = loop {
        match in_one_transaction(shop, guards, members, attempt > 1).await {
            Step::Over(told) => return Ok((told, End::Held)),
            Step::Unacknowledged(error, told) => {
                return Ok(settle(shop, members, error, told).await);
            }
            Step::Away(error) => break (error.clone(), End::Away(error)),
            Step::Failed(Error::Conflict(_)) if attempt < ATTEMPTS => {
                let pause = rand::rng().random_range(2..=20 * attempt);
                sleep(Duration::from_millis(pause.into())).await;
                attempt += 1;
            }
            Step::Failed(Error::Conflict(cause)) => {
                let cause = format!("given up after {ATTEMPTS} attempts: {cause}");
                break (Error::Overloaded(cause), End::Held);
            }
            Step::Failed(Error::Stale(stale)) => {
                healings += 1;
                match heal(guards, stale, healings).await {
                    Ok(()) => {}
                    Err(error @ Error::LockLost(_)) => break (error, End::Lost),
                    Err(error) => break (error, End::Held),
                }
            }
            Step::Failed(error @ Error::Bug(_)) => return Err(error),
            Step::Failed(error) => break (error, End::Held),
        }
    };
    Ok((all(members, &error), end))
}

/// How one transaction ended.
enum Step {
    /// It is over, and this came of each member.
    Over(Vec<Told>),
    /// It was rolled back.
    Failed(Error),
    /// It never began: there was no connection.
    Away(Error),
    /// The commit was sent, and nobody said that it was done. What each would have been told.
    Unacknowledged(Error, Vec<Told>),
}

async fn in_one_transaction<W: Work>(
    shop: &Shop,
    guards: &Guards,
    members: &[Member<W>],
    thorough: bool,
) -> Step {
    let mut connection = match shop.connection().await {
        Ok(connection) => connection,
        Err(error) => return Step::Away(error),
    };
    let deadline = members.iter().map(|member| member.conditions.deadline).max();
    let deadline = deadline.unwrap_or_else(Instant::now);
    let step = transaction(&mut connection, guards, members, deadline, thorough).await;
    match step {
        Ok(step @ Step::Unacknowledged(..)) => {
            drop(connection.detach());
            step
        }
        Ok(step) => step,
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
    let error = match timeout(COMMIT_LIMIT, tx.commit()).await {
        Ok(Ok(())) => return Ok(Step::Over(told)),
        Ok(Err(error)) => error.into(),
        Err(_) => Error::Overloaded("the commit took too long".to_owned()),
    };
    Ok(match error {
        error @ Error::Conflict(_) => Step::Failed(error),
        error => Step::Unacknowledged(error, told),
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
            told[at] = Some(stored.into());
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

/// The commit was sent and no answer came: the key of each whose work was in it tells what became
/// of it. Who was refused for want of what the others took was refused rightly if they have it;
/// otherwise nobody knows.
async fn settle<W: Work>(
    shop: &Shop,
    members: &[Member<W>],
    error: Error,
    mut told: Vec<Told>,
) -> (Vec<Told>, End) {
    tracing::warn!(%error, members = members.len(), "a commit was not acknowledged");
    let asked: Vec<usize> = told
        .iter()
        .enumerate()
        .filter(|(_, told)| matches!(told, Ok(Outcome::Done(_))))
        .map(|(at, _)| at)
        .collect();
    let claims: Vec<&Claim> = asked.iter().map(|at| members[*at].work.claim()).collect();
    let (settled, end) = match timeout(COMMIT_LIMIT, idempotency::settle_all(shop, &claims)).await {
        Ok(Ok(settled)) => (settled, End::Held),
        Ok(Err(_)) | Err(_) => (Vec::new(), End::MayStillRun),
    };
    let committed = settled.len() == asked.len() && settled.iter().all(Option::is_some);
    for told in told.iter_mut().filter(|told| matches!(told, Ok(Outcome::Refused(_)))) {
        if !committed {
            *told = Err(error.clone());
        }
    }
    let mut settled = settled.into_iter();
    for at in asked {
        told[at] = match settled.next() {
            Some(Some(Stored::Finished(answer))) => Ok(Outcome::Done(answer)),
            Some(Some(Stored::Refused(refusal))) => Ok(Outcome::Refused(refusal)),
            Some(None) => Err(error.clone()),
            None => Err(Error::Unavailable {
                what: "Postgres",
                cause: error.to_string(),
                outcome_unknown: true,
            }),
        };
    }
    (told, end)
}
