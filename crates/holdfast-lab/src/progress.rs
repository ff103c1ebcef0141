//! What each visitor did in the lab: the first answer to each lesson, the end of a run that was
//! seen, the stars of each level of the game. A visitor is a signed-in user, or a browser without a
//! session, of which a cookie knows the id.
//!
//! Guarantee: nothing is stored of a user who has been disabled, as a student is who leaves the
//! class. A replica may know the session for some seconds more.

use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use holdfast_shop::db::{Pool, Transaction};
use holdfast_shop::{Error, UserId};

/// Number of answers to the question of a lesson.
pub const GUESSES: usize = 4;
/// Lifetime of the cookie that identifies a browser.
const COOKIE_DAYS: i32 = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// That of the user, or of the browser's cookie.
    pub id: Uuid,
    pub user: Option<UserId>,
}

/// The work of a visitor in one activity.
#[derive(Debug, Clone)]
pub struct VisitorActivity {
    /// The name of a lesson, or that of a level as [`level_activity`] returns it.
    pub name: String,
    /// The first answer, from 0.
    pub guess: Option<usize>,
    pub answered_at: Option<OffsetDateTime>,
    /// When the visitor last saw the end of a run that was new to them.
    pub done_at: Option<OffsetDateTime>,
}

pub fn level_activity(level: &str) -> String {
    format!("level-{level}")
}

/// The result of handing in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandInResult {
    Stored,
    /// It is not one of the lesson, or not done.
    NoSuchRun,
    VisitorLeft,
}

/// Keeps the visitor's user until the end of the transaction: who disables it waits, and then finds
/// what was stored. Returns `false` if it is disabled already; a browser is always there.
pub(super) async fn keep_user(
    connection: &mut PgConnection,
    user: Option<UserId>,
) -> Result<bool, Error> {
    let Some(user) = user else { return Ok(true) };
    // `for key share` would not do: disabling a user changes no key.
    let kept = sqlx::query_scalar!(
        "select id from users where id = $1 and disabled_at is null for share",
        user.0,
    );
    Ok(kept.fetch_optional(connection).await?.is_some())
}

/// Begins a transaction that keeps the visitor's user ([`keep_user`]); `None` if it is disabled.
async fn begin_as(pool: &Pool, visitor: Visitor) -> Result<Option<Transaction>, Error> {
    let mut tx = pool.begin().await?;
    let is_kept = keep_user(&mut tx, visitor.user).await?;
    Ok(is_kept.then_some(tx))
}

/// Stores an answer to a lesson, unless the visitor has answered before, or has seen the end of a
/// run of it, and so the right answer. Returns `false` if the visitor has left.
pub async fn answer(
    pool: &Pool,
    lesson: &str,
    visitor: Visitor,
    guess: usize,
) -> Result<bool, Error> {
    let guess = i16::try_from(guess).map_err(|_| Error::Bug(format!("no answer: {guess}")))?;
    let Some(mut tx) = begin_as(pool, visitor).await? else { return Ok(false) };

    sqlx::query!(
        "insert into lab_progress as known (activity, visitor, user_id, guess, answered_at)
         values ($1, $2, $3, $4, now())
         on conflict (activity, visitor) do update
            set guess = excluded.guess, answered_at = excluded.answered_at
          where known.guess is null and known.done_at is null",
        lesson,
        visitor.id,
        visitor.user.map(|user| user.0),
        guess,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(true)
}

/// Number of visitors who gave an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCount {
    pub all: i64,
    /// Those who could have seen the votes of the others.
    pub late: i64,
}

/// Counts the answers of all visitors to a lesson, whose votes were shown at that time, if they
/// were.
pub async fn counts(
    pool: &Pool,
    lesson: &str,
    shown_at: Option<OffsetDateTime>,
) -> Result<[AnswerCount; GUESSES], Error> {
    let rows = sqlx::query!(
        r#"select guess as "guess!", count(*) as "count!",
                  count(*) filter (where answered_at > $2) as "late!"
             from lab_progress
            where activity = $1 and guess is not null group by guess"#,
        lesson,
        shown_at,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    let mut counts = [AnswerCount::default(); GUESSES];
    for row in rows {
        if let Some(count) = place(row.guess).and_then(|place| counts.get_mut(place)) {
            *count = AnswerCount { all: row.count, late: row.late };
        }
    }
    Ok(counts)
}

/// Returns everything that a visitor did, in no order.
pub async fn of_visitor(pool: &Pool, visitor: Visitor) -> Result<Vec<VisitorActivity>, Error> {
    let rows = sqlx::query!(
        "select activity, guess, answered_at, done_at from lab_progress where visitor = $1",
        visitor.id,
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    let activities = rows.into_iter().map(|row| VisitorActivity {
        name: row.activity,
        guess: row.guess.and_then(place),
        answered_at: row.answered_at,
        done_at: row.done_at,
    });
    Ok(activities.collect())
}

/// Records that the visitor sees the end of a run of a lesson. A run that was handed in stays the
/// one of the lesson. Returns `false` if the visitor has left.
pub async fn mark_done(
    pool: &Pool,
    lesson: &str,
    visitor: Visitor,
    run: Uuid,
) -> Result<bool, Error> {
    let Some(mut tx) = begin_as(pool, visitor).await? else { return Ok(false) };

    sqlx::query!(
        "insert into lab_progress as known (activity, visitor, user_id, done_at, run_id)
         select $1::text, $2::uuid, $3::uuid, now(), id from lab_runs where id = $4
         on conflict (activity, visitor) do update
            set done_at = excluded.done_at,
                run_id = case when known.handed_in_at is null
                              then excluded.run_id else known.run_id end
          where known.done_at is null
             or known.done_at < (select ended_at from lab_runs where id = $4)",
        lesson,
        visitor.id,
        visitor.user.map(|user| user.0),
        run,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(true)
}

/// Stores the stars of a level, unless the visitor has as many. Returns `false` if the visitor has
/// left.
pub async fn set_stars(
    pool: &Pool,
    level: &str,
    visitor: Visitor,
    stars: usize,
) -> Result<bool, Error> {
    let stars = i16::try_from(stars).map_err(|_| Error::Bug(format!("no stars: {stars}")))?;
    let Some(mut tx) = begin_as(pool, visitor).await? else { return Ok(false) };

    sqlx::query!(
        "insert into lab_progress as known (activity, visitor, user_id, stars)
         values ($1, $2, $3, $4)
         on conflict (activity, visitor) do update set stars = greatest(known.stars, excluded.stars)",
        level_activity(level),
        visitor.id,
        visitor.user.map(|user| user.0),
        stars,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(true)
}

/// Hands in a run of a lesson, in place of an earlier one.
pub async fn hand_in(
    pool: &Pool,
    lesson: &str,
    visitor: Visitor,
    run: Uuid,
    note: &str,
) -> Result<HandInResult, Error> {
    let Some(mut tx) = begin_as(pool, visitor).await? else {
        return Ok(HandInResult::VisitorLeft);
    };

    let handed_in = sqlx::query!(
        "insert into lab_progress
             (activity, visitor, user_id, done_at, run_id, note, handed_in_at)
         select $1::text, $2::uuid, $3::uuid, now(), id, $5::text, now()
           from lab_runs where id = $4 and wanted ->> 'lesson' = $1 and state = 'done'
         on conflict (activity, visitor) do update
            set run_id = excluded.run_id, note = excluded.note,
                handed_in_at = excluded.handed_in_at",
        lesson,
        visitor.id,
        visitor.user.map(|user| user.0),
        run,
        note,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;

    match handed_in.rows_affected() {
        0 => Ok(HandInResult::NoSuchRun),
        _ => Ok(HandInResult::Stored),
    }
}

/// Returns what a visitor handed in about a lesson: the run, unless it was deleted, and the note.
pub async fn handed_in(
    pool: &Pool,
    lesson: &str,
    visitor: Visitor,
) -> Result<Option<(Option<Uuid>, String)>, Error> {
    let row = sqlx::query!(
        r#"select run_id, coalesce(note, '') as "note!" from lab_progress
            where activity = $1 and visitor = $2 and handed_in_at is not null"#,
        lesson,
        visitor.id,
    )
    .fetch_optional(&mut *pool.acquire().await?)
    .await?;
    Ok(row.map(|row| (row.run_id, row.note)))
}

/// Deletes what browsers without a session did, once their cookies have expired.
pub(super) async fn prune(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "delete from lab_progress
          where user_id is null
            and greatest(created_at, answered_at, done_at) < now() - make_interval(days => $1)",
        COOKIE_DAYS,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) fn place(guess: i16) -> Option<usize> {
    usize::try_from(guess).ok().filter(|place| *place < GUESSES)
}
