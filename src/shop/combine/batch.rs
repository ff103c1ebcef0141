//! One batch: its tokens, its attempts, and what becomes of each member.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{sleep, timeout};

use super::transaction::{Begun, Ready, Step, deadline};
use super::{Member, Work, pass};
use crate::lock::{Guards, TokenTaken, Tokens};
use crate::probe::Point;
use crate::shop::errand::{COMMIT_LIMIT, heal};
use crate::shop::idempotency::{self, Claim, Stored};
use crate::shop::stock::{ATTEMPTS, BATCHED};
use crate::shop::{Error, Outcome, Refusal, Shop};

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

/// Carries a batch out, whose tokens are had and whose transaction may have begun; of each member
/// what it is to be told.
pub(super) async fn carry_out<W: Work>(
    shop: &Shop,
    guards: &mut Guards,
    members: Vec<Member<W>>,
    ready: Ready,
) -> (Vec<(Member<W>, Told)>, End) {
    pass(&members, Point::Held, &BATCHED.exclusion(guards), |_| None).await;
    let (told, end) = in_parts(shop, guards, &members, ready).await;
    let committed = |at: usize| matches!(told[at], Ok(Outcome::Done(_)));
    let done: Vec<&Member<W>> =
        (0..told.len()).filter(|at| committed(*at)).map(|at| &members[at]).collect();
    for member in &done {
        member.work.done(shop);
    }
    let held = BATCHED.exclusion(guards);
    pass(done, Point::Committed, &held, |_| None).await;
    pass(&members, Point::Release, &held, |_| None).await;
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
    ready: Ready,
) -> (Vec<Told>, End) {
    let error = match attempt_until_done(shop, guards, members, ready).await {
        Ok(ended) => return ended,
        Err(error) if members.len() > 1 => error,
        Err(error) => return (all(members, &error), End::Held),
    };
    tracing::warn!(%error, members = members.len(), "a batch failed; its halves are tried");
    let (front, back) = members.split_at(members.len() / 2);
    let (mut told, end) = Box::pin(in_parts(shop, guards, front, Ready::No)).await;
    if !matches!(end, End::Held) {
        told.extend(all(back, &Error::Overloaded("the batch before it failed".to_owned())));
        return (told, end);
    }
    let (more, end) = Box::pin(in_parts(shop, guards, back, Ready::No)).await;
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
    mut ready: Ready,
) -> Result<(Vec<Told>, End), Error> {
    if members.is_empty() {
        ready.give_up().await;
        return Ok((Vec::new(), End::Held));
    }
    let (mut attempt, mut healings) = (1, 0);
    let (error, end) = loop {
        let until = deadline(members);
        let early = !matches!(ready, Ready::No);
        let begun = match std::mem::replace(&mut ready, Ready::No) {
            Ready::Claimed(begun) => Ok(begun),
            Ready::Open(tx) => Begun::claim(tx, members, false, until).await,
            Ready::No => match shop.begin().await {
                Ok(tx) => Begun::claim(tx, members, attempt > 1, until).await,
                Err(error) => break (error.clone(), End::Away(error)),
            },
        };
        let step = match begun {
            Ok(begun) => begun.finish(guards, members).await,
            Err(error) => Step::Failed(error),
        };
        match step {
            // Its session died while it waited for the lock.
            Step::Failed(Error::Unavailable { .. }) if early => {}
            Step::Over(told) => return Ok((told, End::Held)),
            Step::Unacknowledged(error, told) => {
                return Ok(settle(shop, members, error, told).await);
            }
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
