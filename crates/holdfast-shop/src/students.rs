//! Students of a class: users without a password, who join under a nickname.
//!
//! Guarantees: a nickname is one student's, in any of its forms ([`names::folded`]), until its
//! sessions have ended; who joins under it then goes on with its orders and answers. When the
//! class ends, the nicknames are erased; orders, accounts and ledgers stay. Joins, removals and the
//! end of a class are serialized, also across replicas. Tests: `tests/pages/join.rs`.

use sqlx::PgConnection;
use unicode_normalization::UnicodeNormalization as _;
use uuid::Uuid;

use super::failure::Error;
use super::sessions::{self, SessionToken};
use super::{UserId, names, users};
use crate::db::Pool;

/// Longest nickname, in characters; the table has the same.
pub const MAX_NICKNAME: usize = 24;
/// Upper bound of the students of a class: a class on its own devices, and some who join twice.
pub const MAX_STUDENTS: i64 = 200;

#[derive(Debug, Clone)]
pub enum JoinResult {
    Joined(SessionToken),
    /// Another device has a session under this nickname, which its student typed like that.
    Taken(String),
    Full,
}

/// Returns a nickname in NFC with single spaces, as it is stored; `None` if it is empty or too
/// long, or has characters that cannot be seen: two names that look the same would be two students,
/// and one that reverses its line would be hard to read.
pub fn clean(nickname: &str) -> Option<String> {
    let composed: String = nickname.nfc().collect();
    let words: Vec<&str> = composed.split_whitespace().collect();
    let name = words.join(" ");
    let length = name.chars().count();
    let is_valid = (1..=MAX_NICKNAME).contains(&length) && !name.contains(is_invisible);
    is_valid.then_some(name)
}

/// Control and format characters, and letters that are drawn as blanks.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Begins a session under a clean nickname, whose student is created unless there is one; that of a
/// student whom an admin has disabled stays taken. Within the caller's transaction, which has the
/// [`lock`].
pub async fn join(connection: &mut PgConnection, nickname: &str) -> Result<JoinResult, Error> {
    let known = sqlx::query!(
        r#"select u.id, u.nickname as "nickname!", u.disabled_at is not null or exists (
                  select from sessions s where s.user_id = u.id and s.expires_at > clock_timestamp()
              ) as "is_taken!"
             from users u where u.folded_nickname = $1"#,
        names::folded(nickname),
    )
    .fetch_optional(&mut *connection)
    .await?;

    let student = match known {
        Some(known) if known.is_taken => return Ok(JoinResult::Taken(known.nickname)),
        Some(known) => UserId(known.id),
        None if count(connection).await? >= MAX_STUDENTS => return Ok(JoinResult::Full),
        None => create(connection, nickname).await?,
    };
    Ok(JoinResult::Joined(sessions::begin(connection, student).await?))
}

/// Locks out other joins and removals until the end of the transaction. A statement of its own: the
/// next one then sees what the holder before has committed.
pub async fn lock(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("select pg_advisory_xact_lock(hashtext('students'))").execute(connection).await?;
    Ok(())
}

async fn count(connection: &mut PgConnection) -> Result<i64, Error> {
    let count =
        sqlx::query_scalar!(r#"select count(*) as "count!" from users where nickname is not null"#);
    Ok(count.fetch_one(connection).await?)
}

async fn create(connection: &mut PgConnection, nickname: &str) -> Result<UserId, Error> {
    let hash = users::unknown_password_hash().await?;
    let random = Uuid::new_v4().simple().to_string();
    let name = format!("{}{}", users::CLASS_NAME_PREFIX, &random[..12]);

    let inserted = users::insert(connection, &name, hash, false).await?;
    let id = inserted.ok_or_else(|| Error::Bug(format!("there already is a user {name}")))?;
    sqlx::query!(
        "update users set nickname = $2, folded_nickname = $3 where id = $1",
        id.0,
        nickname,
        names::folded(nickname),
    )
    .execute(connection)
    .await?;
    Ok(id)
}

/// Frees the nickname of that student, or of all, by ending the sessions: who joins under it next
/// goes on with its orders and answers. Returns whose sessions ended.
pub async fn free(pool: &Pool, student: Option<UserId>) -> Result<Vec<UserId>, Error> {
    let mut tx = pool.begin().await?;
    // Otherwise it and [`dismiss`] could each wait for sessions that the other has deleted.
    lock(&mut tx).await?;

    let freed = sqlx::query_scalar!(
        r#"delete from sessions s using users u
            where u.id = s.user_id and u.nickname is not null and ($1::uuid is null or u.id = $1)
        returning u.id as "id: UserId""#,
        student.map(|student| student.0),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(freed)
}

/// Erases the nickname of that student, or of all, and ends the sessions; returns whose. Within the
/// caller's transaction, which has the [`lock`].
pub async fn dismiss(
    connection: &mut PgConnection,
    student: Option<UserId>,
) -> Result<Vec<UserId>, Error> {
    // Disabled: a person cannot sign in as a class's user.
    let students = sqlx::query_scalar!(
        r#"update users set nickname = null, folded_nickname = null,
                disabled_at = coalesce(disabled_at, now())
            where nickname is not null and ($1::uuid is null or id = $1)
        returning id as "id: UserId""#,
        student.map(|student| student.0),
    )
    .fetch_all(&mut *connection)
    .await?;

    for student in &students {
        sessions::end_all(connection, *student, None).await?;
    }
    Ok(students)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nickname_is_short_and_visible() {
        for (typed, stored) in [
            ("Mia", "Mia"),
            ("  Anna \t Maria\n", "Anna Maria"),
            ("小明", "小明"),
            ("<b>&\"Bo\"</b>", "<b>&\"Bo\"</b>"),
            ("=1+1", "=1+1"),
            ("🦊", "🦊"),
            ("O’Neil-Weiß", "O’Neil-Weiß"),
            ("Jose\u{301}", "José"),
        ] {
            assert_eq!(clean(typed).as_deref(), Some(stored), "{typed:?}");
        }

        let longest = "名".repeat(MAX_NICKNAME);
        assert_eq!(clean(&longest), Some(longest.clone()));

        for typed in [
            "",
            " \t\n",
            "\u{3000}\u{a0}",
            &format!("{longest}名"),
            &"a".repeat(200),
            "a\0b",
            "a\u{1b}[31m",
            "\u{202e}Mia",
            "Mia\u{200b}",
            "\u{3164}",
            "a\u{e0041}",
        ] {
            assert_eq!(clean(typed), None, "{typed:?}");
        }
    }
}
