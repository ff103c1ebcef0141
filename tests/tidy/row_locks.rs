//! Statements lock several rows in one order: otherwise two of them deadlock.

use crate::{code, relative, sources, statement_files};

#[test]
fn statements_lock_rows_in_order() {
    let mut ordered = 0;
    // The first shows statements in parts, and does not execute them; the second locks the row of
    // an item in a service of somebody else's.
    let others = [
        "crates/holdfast-lab/src/timeline/statement.rs",
        "crates/holdfast-judge/src/service/stage.rs",
    ];
    let is_ours = |path: &std::path::Path| !others.iter().any(|other| path.ends_with(other));
    let sources = sources().into_iter().filter(|(path, _)| is_ours(path));
    for (path, text) in sources.chain(statement_files()) {
        let code = code(&text);
        let locks =
            code.match_indices(" for update").chain(code.match_indices(" for no key update"));
        for (end, _) in locks {
            let select = &code[..end];
            let select = &select[select.rfind("select ").unwrap_or(0)..];
            let keys = [
                " where sku = $1",
                " where sku = $1 and unit = $2",
                " where user_id = $1",
                " where only_one",
            ];
            let is_one_row = keys.iter().any(|key| select.ends_with(key));
            let is_ordered = select.contains(" order by ");
            let never_waits = code[end..].starts_with(" for update skip locked");
            assert!(
                is_one_row || is_ordered || never_waits,
                "{}: {select}: in which order?",
                relative(&path)
            );
            ordered += i32::from(is_ordered);
        }
    }
    assert!(ordered >= 6, "the statements were not found");
}
