//! What the judge knows of the stock of a service: which tables have it, and which statements
//! write it.

use super::sql::{Access, access, fingerprint};

#[derive(Debug, Clone, Default)]
pub(super) struct Learned {
    /// The tables that the query of the stock reads, in lower case.
    pub(super) tables: Vec<String>,
    /// Names of columns of its results, and of what they are computed from.
    pub(super) columns: Vec<String>,
    /// Statements without their values that write one of the tables and do not say so: a trigger
    /// or a function does it.
    pub(super) hidden_writes: Vec<String>,
}

impl Learned {
    /// Returns what a statement does with the stock.
    pub(super) fn access(&self, sql: &str) -> Option<Access> {
        let is_hidden_write =
            !self.hidden_writes.is_empty() && self.hidden_writes.contains(&fingerprint(sql));
        if is_hidden_write { Some(Access::Write) } else { access(sql, &self.tables) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_whose_trigger_writes_is_a_write() {
        let mut learned = Learned { tables: vec!["goods".to_owned()], ..Learned::default() };
        let sale = |item: &str| format!("INSERT into sales (item) values ('{item}')");
        let take = "select take(id) from goods";
        assert_eq!(
            (learned.access(&sale("tea")), learned.access(take)),
            (None, Some(Access::Read))
        );
        learned.hidden_writes = [sale("tea").as_str(), take].map(fingerprint).to_vec();
        for sql in [sale("coffee").as_str(), take, "update goods set stock = 0"] {
            assert_eq!(learned.access(sql), Some(Access::Write), "{sql}");
        }
        assert_eq!(learned.access("insert into sales (buyer) values (1)"), None);
    }
}
