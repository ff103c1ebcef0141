//! Replicas that are rejected for their strategy, and how replicas are registered.

use crate::{TestShop, until};

impl TestShop {
    /// Fails if the replica starts. Returns what it printed.
    pub fn try_start_rejected(&mut self, flags: &[&str], env: &[(&str, &str)]) -> String {
        let result = self.try_add_replica(flags, env);
        result.expect_err("it starts")
    }

    pub async fn until_registered(&self, replicas: i64) {
        let registered = "select count(*) from pg_locks
                           where locktype = 'advisory' and objid = 2 and mode = 'ShareLock'
                             and database = (select oid from pg_database
                                              where datname = current_database())";
        until("the replicas are registered", async || self.number(registered).await == replicas)
            .await;
    }

    /// Ends the sessions by which replicas are registered.
    pub async fn end_registrations(&self) {
        let end = "select count(*) filter (where pg_terminate_backend(pid, 10000)) from pg_stat_activity
                    where datname = current_database() and application_name like 'holdfast replica%'";
        assert!(self.number(end).await > 0);
    }
}
