//! The class that is taught in this shop: its code, where its teacher is, the votes that it has
//! seen, its score board, its end.
//!
//! Guarantees: one code, which stays from start to start until the class ends; everything that
//! names or describes a student is deleted then. All of it works twice, and by two teachers at
//! once. The students are led to pages of the lab alone.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::lessons::{self, LESSONS};
use crate::progress;
use holdfast_shop::db::Pool;
use holdfast_shop::students::{self, JoinResult};
use holdfast_shop::{Error, UserId};

/// Letters and digits of a code: no I, O, 0 and 1, which look alike.
const CODE_ALPHABET: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_LENGTH: usize = 6;

/// A student on the score board.
#[derive(Debug, Clone)]
pub struct Student {
    pub id: UserId,
    pub nickname: String,
    pub joined_at: OffsetDateTime,
    /// True if a device has a session under this nickname.
    pub is_here: bool,
    pub done: usize,
    pub answered: usize,
    pub right: usize,
    pub stars: i64,
    pub handed_in: usize,
}

/// The work of a student in a lesson or level.
#[derive(Debug, Clone)]
pub struct StudentActivity {
    pub student: UserId,
    pub nickname: String,
    pub activity: String,
    /// The first answer, from 0.
    pub guess: Option<usize>,
    pub answered_at: Option<OffsetDateTime>,
    /// True if the class had seen the votes before the answer.
    pub is_late: bool,
    pub done_at: Option<OffsetDateTime>,
    pub stars: Option<i16>,
    pub run: Option<Uuid>,
    pub note: Option<String>,
    pub handed_in_at: Option<OffsetDateTime>,
}

impl StudentActivity {
    /// Returns whether the answer is right, once there is one.
    pub fn is_right(&self) -> Option<bool> {
        let lesson = lessons::named(&self.activity)?;
        self.guess.map(|guess| guess == lesson.right)
    }
}

/// Returns the code of the class; begins one if there is none.
pub async fn open(pool: &Pool) -> Result<String, Error> {
    let mut connection = pool.acquire().await?;
    sqlx::query!(
        "insert into lab_class (code) values ($1) on conflict (only_one) do nothing",
        random_code(),
    )
    .execute(&mut *connection)
    .await?;

    let code = sqlx::query_scalar!("select code from lab_class").fetch_one(&mut *connection);
    Ok(code.await?)
}

/// Returns the code, if a class was begun.
pub async fn code(pool: &Pool) -> Result<Option<String>, Error> {
    let code = sqlx::query_scalar!("select code from lab_class");
    Ok(code.fetch_optional(&mut *pool.acquire().await?).await?)
}

/// Returns the page that the teacher shows, once there is one.
pub async fn page(pool: &Pool) -> Result<Option<String>, Error> {
    let page = sqlx::query_scalar!("select page from lab_class");
    Ok(page.fetch_optional(&mut *pool.acquire().await?).await?.flatten())
}

/// Says that the teacher shows a page, if it is one where the students can go. Of two teachers, the
/// one who opened a page last leads.
pub async fn lead(pool: &Pool, page: &str) -> Result<(), Error> {
    if is_shared(page) { set_page(pool, Some(page)).await } else { Ok(()) }
}

/// Says that the teacher shows nothing, until a page is opened.
pub async fn leave(pool: &Pool) -> Result<(), Error> {
    set_page(pool, None).await
}

async fn set_page(pool: &Pool, page: Option<&str>) -> Result<(), Error> {
    sqlx::query!("update lab_class set page = $1 where page is distinct from $1", page)
        .execute(&mut *pool.acquire().await?)
        .await?;
    Ok(())
}

/// Returns whether a path is that of a page of the lab that all may see.
fn is_shared(path: &str) -> bool {
    // Written as the address of a page is, and in no other way.
    let is_id = |id: &str| Uuid::parse_str(id).is_ok_and(|uuid| uuid.to_string() == id);

    match path.rsplit_once('/') {
        Some(("", "" | "lab")) => true,
        Some(("/lab/lessons", name)) => lessons::named(name).is_some(),
        Some(("/lab/runs" | "/race", id)) => is_id(id),
        _ => false,
    }
}

/// Shows the class how many chose each answer to a lesson. The first time counts.
pub async fn show_votes(pool: &Pool, lesson: &str) -> Result<(), Error> {
    sqlx::query!(
        "update lab_class set shown = jsonb_build_object($1::text, now()) || shown",
        lesson,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Returns when the class saw how many chose each answer to a lesson, if it did.
pub async fn votes_shown_at(pool: &Pool, lesson: &str) -> Result<Option<OffsetDateTime>, Error> {
    let shown_at = sqlx::query_scalar!(
        "select (shown ->> $1)::timestamptz as shown_at from lab_class",
        lesson,
    );
    Ok(shown_at.fetch_optional(&mut *pool.acquire().await?).await?.flatten())
}

/// Begins a session of a student; see [`students::join`]. `None` if the code is wrong.
pub async fn join(pool: &Pool, code: &str, nickname: &str) -> Result<Option<JoinResult>, Error> {
    let mut tx = pool.begin().await?;
    students::lock(&mut tx).await?;
    // Under the lock: the class may end at any time.
    let is_right = sqlx::query_scalar!(
        r#"select exists (select from lab_class where code = $1) as "is_right!""#,
        clean_code(code),
    )
    .fetch_one(&mut *tx)
    .await?;
    if !is_right {
        return Ok(None);
    }

    let result = students::join(&mut tx, nickname).await?;
    tx.commit().await?;
    Ok(Some(result))
}

/// Returns the code as a person may have typed it, as it is stored: `abc-234` is `ABC234`.
pub fn clean_code(typed: &str) -> String {
    let plain = typed.chars().filter(char::is_ascii_alphanumeric);
    plain.map(|c| c.to_ascii_uppercase()).take(CODE_LENGTH + 1).collect()
}

fn random_code() -> String {
    let random = Uuid::new_v4();
    // The first bytes are random; 256 is a multiple of the 32 characters, so each is as likely.
    let letter = |byte: &u8| char::from(CODE_ALPHABET[usize::from(*byte) % CODE_ALPHABET.len()]);
    random.as_bytes()[..CODE_LENGTH].iter().map(letter).collect()
}

/// Returns the students with their scores, the best first: by lessons done, right answers, stars.
pub async fn board(pool: &Pool) -> Result<Vec<Student>, Error> {
    let rows = sqlx::query!(
        r#"select u.id as "id: UserId", u.nickname as "nickname!", u.created_at, exists (
                  select from sessions s where s.user_id = u.id and s.expires_at > clock_timestamp()
              ) as "is_here!"
             from users u where u.nickname is not null"#
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    let mut by_student = BTreeMap::<Uuid, Vec<StudentActivity>>::new();
    for activity in activities(pool).await? {
        by_student.entry(activity.student.0).or_default().push(activity);
    }

    let mut students: Vec<Student> = rows
        .into_iter()
        .map(|row| {
            let all = by_student.remove(&row.id.0).unwrap_or_default();
            let count = |is: fn(&StudentActivity) -> bool| all.iter().filter(|a| is(a)).count();
            Student {
                done: count(|a| a.done_at.is_some() && lessons::named(&a.activity).is_some()),
                answered: count(|a| a.guess.is_some()),
                right: count(|a| a.is_right() == Some(true)),
                stars: all.iter().filter_map(|a| a.stars).map(i64::from).sum(),
                handed_in: count(|a| a.handed_in_at.is_some()),
                id: row.id,
                nickname: row.nickname,
                joined_at: row.created_at,
                is_here: row.is_here,
            }
        })
        .collect();

    students.sort_by(|a, b| {
        let score = |s: &Student| (s.done, s.right, s.stars);
        score(b).cmp(&score(a)).then_with(|| a.nickname.cmp(&b.nickname))
    });
    Ok(students)
}

/// Returns everything that the students did, by nickname, in the order of the lessons.
pub async fn activities(pool: &Pool) -> Result<Vec<StudentActivity>, Error> {
    let rows = sqlx::query!(
        r#"select u.id as "student: UserId", u.nickname as "nickname!", p.activity, p.guess,
                  p.answered_at, p.done_at, p.stars, p.run_id, p.note, p.handed_in_at,
                  coalesce(p.answered_at > (select (shown ->> p.activity)::timestamptz
                                              from lab_class), false) as "is_late!"
             from lab_progress p join users u on u.id = p.user_id
            where u.nickname is not null"#
    )
    .fetch_all(&mut *pool.acquire().await?)
    .await?;

    let mut all: Vec<StudentActivity> = rows
        .into_iter()
        .map(|row| StudentActivity {
            student: row.student,
            nickname: row.nickname,
            activity: row.activity,
            guess: row.guess.and_then(progress::place),
            answered_at: row.answered_at,
            is_late: row.is_late,
            done_at: row.done_at,
            stars: row.stars,
            run: row.run_id,
            note: row.note,
            handed_in_at: row.handed_in_at,
        })
        .collect();

    // Levels of the game come behind the lessons.
    let number = |name: &str| LESSONS.iter().position(|lesson| lesson.name == name);
    let place = |a: &StudentActivity| number(&a.activity).unwrap_or(LESSONS.len());
    all.sort_by(|a, b| {
        let names = || a.nickname.cmp(&b.nickname);
        names().then_with(|| (place(a), &a.activity).cmp(&(place(b), &b.activity)))
    });
    Ok(all)
}

/// Deletes what the students did: answers, lessons done, stars, hand-ins. They stay in the class,
/// which has then seen no votes and no page.
pub async fn reset(pool: &Pool) -> Result<(), Error> {
    leave(pool).await?;
    sqlx::query!(
        "with hidden as (update lab_class set shown = '{}')
         delete from lab_progress p using users u
          where u.id = p.user_id and u.nickname is not null"
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(())
}

/// Removes a student with what the student did; returns who was removed.
pub async fn remove(pool: &Pool, student: UserId) -> Result<Vec<UserId>, Error> {
    let mut tx = pool.begin().await?;
    students::lock(&mut tx).await?;
    let removed = students::dismiss(&mut tx, Some(student)).await?;
    forget(&mut tx, &removed).await?;
    tx.commit().await?;
    Ok(removed)
}

/// Ends the class of that code: the students' nicknames, sessions and answers are deleted, and
/// another code applies. Orders, accounts and ledgers stay. Returns the students who left: none if
/// that class has ended already.
pub async fn end(pool: &Pool, code: &str) -> Result<Vec<UserId>, Error> {
    let mut tx = pool.begin().await?;
    students::lock(&mut tx).await?;
    let ended = sqlx::query!("delete from lab_class where code = $1", code).execute(&mut *tx);
    if ended.await?.rows_affected() == 0 {
        return Ok(Vec::new());
    }

    let removed = students::dismiss(&mut tx, None).await?;
    forget(&mut tx, &removed).await?;
    sqlx::query!("insert into lab_class (code) values ($1)", random_code())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(removed)
}

async fn forget(connection: &mut PgConnection, students: &[UserId]) -> Result<(), Error> {
    let ids: Vec<Uuid> = students.iter().map(|student| student.0).collect();
    sqlx::query!("delete from lab_progress where user_id = any($1)", &ids[..])
        .execute(connection)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_led_to_pages_of_the_lab_alone() {
        let run = "/lab/runs/01a2006d-5253-7170-b37f-df609d0c5d2e";
        let race = "/race/01a2006d-5253-7170-b37f-df609d0c5d2e";
        for page in ["/", "/lab", "/lab/lessons/lost-update", run, race] {
            assert!(is_shared(page), "{page}");
        }
        for page in [
            "",
            "//evil.example",
            "https://evil.example/lab",
            "/lab/",
            "/lab/class",
            "/lab/lessons/none",
            "/lab/lessons/lost-update?present",
            "/lab/runs/1",
            "/lab/runs/{01a2006d-5253-7170-b37f-df609d0c5d2e}",
            "/race/01a2006d-5253-7170-b37f-df609d0c5d2e/file",
            "/orders/01a2006d-5253-7170-b37f-df609d0c5d2e",
        ] {
            assert!(!is_shared(page), "{page}");
        }
    }

    #[test]
    fn code_is_read_as_people_type_it() {
        for typed in ["ABC234", "abc 234", " abc-234 ", "A b C\t2 3 4"] {
            assert_eq!(clean_code(typed), "ABC234", "{typed:?}");
        }
        // Longer, or other, text is never a code.
        for typed in ["", "ABC2345678", "АВС234"] {
            assert_ne!(clean_code(typed), "ABC234", "{typed:?}");
        }
        let code = random_code();
        assert_eq!(clean_code(&code), code);
    }
}
