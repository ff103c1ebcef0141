//! Queries of the admin log.

use crate::Shop;
use crate::failure::Error;
use crate::model::{AdminAction, LoggedChange};

macro_rules! entries {
    ($rows:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            LoggedChange,
            r#"select l.seq, l.at, a.name as admin, l.action as "action: AdminAction",
                      l.subject, u.name as "user?", l.before, l.after, l.request_id
                 from admin_log l join users a on a.id = l.admin
                 left join orders o on o.id = case when l.action like '%-order'
                                                   then l.subject::uuid end
                 left join users u
                   on u.id = case when l.action like '%-order' then o.user_id
                                  when l.action not like '%-item' then l.subject::uuid end "#
                + $rows,
            $($argument),+
        )
    };
}

/// Returns the entries, newest first, older than `before`: all of them, or those of one item (its
/// sku), user or order (the id).
pub async fn changes(
    shop: &Shop,
    subject: Option<&str>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<LoggedChange>, Error> {
    let before = before.unwrap_or(i64::MAX);
    let db = &mut *shop.connection().await?;

    // Two statements: with `$1 is null or …`, the plan for any value would use no index.
    let changes = match subject {
        None => {
            let all = entries!("where l.seq < $1 order by l.seq desc limit $2", before, limit);
            all.fetch_all(db).await?
        }
        Some(subject) => {
            let of_subject = entries!(
                "where l.subject = $1 and l.seq < $2 order by l.seq desc limit $3",
                subject,
                before,
                limit,
            );
            of_subject.fetch_all(db).await?
        }
    };
    Ok(changes)
}
