//! The check of the students' nicknames. The shop folds names, and Postgres cannot compare them.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::super::{Error, names};
use crate::db::Pool;

pub(super) const NAME: &str = "nicknames";
pub(super) const RULE: &str =
    "each nickname is stored in the form in which it is compared, and is one student's";

/// Returns what is wrong with the nicknames of a database, and what to do.
pub async fn find(pool: &Pool) -> Result<Vec<String>, Error> {
    conflicts(&mut *pool.acquire().await?).await
}

/// The same within a snapshot. A nickname is stored in another form than this build folds it to
/// after a change by hand, or under another version of Unicode; two that are one by now stay two
/// students.
pub(super) async fn conflicts(connection: &mut PgConnection) -> Result<Vec<String>, Error> {
    let students = sqlx::query!(
        r#"select nickname as "nickname!", folded_nickname from users
            where nickname is not null order by nickname"#
    )
    .fetch_all(connection)
    .await?;

    let mut conflicts = Vec::new();
    let mut known = HashMap::<String, &str>::new();
    for student in &students {
        let nickname = student.nickname.as_str();
        let folded = names::folded(nickname);
        let stored = student.folded_nickname.as_deref().unwrap_or_default();

        if let Some(other) = known.get(&folded) {
            conflicts.push(format!(
                "the students {other} and {nickname} have the same nickname: remove one of them at \
                 /lab/class"
            ));
        } else if stored != folded {
            conflicts.push(format!(
                "the nickname {nickname} is stored as {stored}, and compared as {folded}: remove \
                 the student at /lab/class, who can join again"
            ));
        }
        known.entry(folded).or_insert(nickname);
    }
    Ok(conflicts)
}
