//! The goals, each with its measured value. `docs/PERFORMANCE.md` explains them and their source.

use serde::Serialize;

use super::measurements::{Measurement, Measurements, Spread};
use super::runs::{BASELINE, BATCHED, BenchRun, MANY_CLIENTS, ROW_LOCK, Task};

#[derive(Debug, Clone, Serialize)]
pub(super) struct Goal {
    /// Number of the goal, e.g. `P1`; `fair` for fairness.
    pub(super) id: &'static str,
    pub(super) what: String,
    pub(super) unit: &'static str,
    /// Less is better if `reach_for` is less.
    pub(super) at_least: f64,
    pub(super) reach_for: f64,
    pub(super) value: Option<Spread>,
    /// The reason why there is no value.
    pub(super) missing: Option<String>,
}

/// Returns all goals; `clients` is the number of clients of the usual runs.
pub(super) fn all(data: &Measurements, clients: usize) -> Vec<Goal> {
    let run = |strategy, task| BenchRun { strategy, task, clients };
    let hot = |strategy| BenchRun::hot(strategy, clients);
    let (batched, row_lock, owner) = (hot(BATCHED), hot(ROW_LOCK), hot(BASELINE));
    let (atomic, fenced) = (hot("atomic"), hot("fenced"));
    let many = BenchRun::hot(BATCHED, MANY_CLIENTS);
    let no_op = BenchRun::no_op;
    let rate = |upper, lower| data.ratio(upper, lower, |round| Some(round.per_second));
    let sold_out = rate(run(BATCHED, Task::SoldOut), no_op(clients));
    let p99 = |upper, lower| data.ratio(upper, lower, |round| round.p99_ms);
    let one_client = |strategy| BenchRun::hot(strategy, 1);
    let single = data.ratio(one_client(BATCHED), one_client(ROW_LOCK), |round| round.p50_ms);
    let spread = rate(run(BATCHED, Task::Spread), run(ROW_LOCK, Task::Spread));
    let pay = rate(run(BATCHED, Task::Payments), run(ROW_LOCK, Task::Payments));
    let of_batched = |metric| data.each(batched, metric);
    let same_many = format!("the same, {MANY_CLIENTS} clients");
    let many_over_n = format!("batched: {MANY_CLIENTS} clients / {clients}");
    let payments = format!("payments, {clients} users: batched / row-lock");
    let reads = of_batched(|round| Some(round.redis_reads));
    let writes = of_batched(|round| Some(round.writes));
    let jain_clients = of_batched(|round| Some(round.jain_clients));
    let jain_replicas = of_batched(|round| Some(round.jain_replicas));
    let goals = [
        ("P1", "one hot item: batched / owner", "×", [17.0, 28.0], rate(batched, owner)),
        ("P2", "one hot item: batched / row-lock", "×", [11.0, 18.0], rate(batched, row_lock)),
        ("P3", "one hot item: batched / atomic", "×", [8.0, 12.0], rate(batched, atomic)),
        ("P4", "batched / no-op", "×", [0.17, 0.22], rate(batched, no_op(clients))),
        ("P4b", &same_many, "×", [0.26, 0.33], rate(many, no_op(MANY_CLIENTS))),
        ("P5", &many_over_n, "×", [1.3, 1.6], rate(many, batched)),
        ("P6", "one client: p50 batched / p50 row-lock", "×", [0.8, 0.6], single),
        ("P7", "1,000 items evenly: batched / row-lock", "×", [1.2, 1.5], spread),
        // The lock of this project compared with the textbook's, without batching.
        ("P8", "one hot item: p99 owner / p99 fenced", "×", [8.0, 15.0], p99(owner, fenced)),
        ("P8", "one hot item: fenced / owner", "×", [2.0, 3.0], rate(fenced, owner)),
        ("P12", "batched: Redis' reads per order", "", [0.07, 0.05], reads),
        ("P12", "batched: Postgres' writing transactions", "", [0.04, 0.03], writes),
        ("P13", "batched: sold-out answers / no-op", "×", [0.4, 0.6], sold_out),
        ("P14", &payments, "×", [1.1, 1.3], pay),
        ("fair", "batched: Jain over clients", "", [0.95, 0.95], jain_clients),
        ("fair", "batched: Jain over replicas", "", [0.95, 0.95], jain_replicas),
    ];
    let goals = goals.into_iter();
    goals.map(|(id, what, unit, goals, value)| Goal::new(id, what, unit, goals, value)).collect()
}

impl Goal {
    fn new(
        id: &'static str,
        what: &str,
        unit: &'static str,
        [at_least, reach_for]: [f64; 2],
        value: Measurement,
    ) -> Self {
        let (value, missing) = match value {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        Self { id, what: what.to_owned(), unit, at_least, reach_for, value, missing }
    }

    pub(super) fn less_is_better(&self) -> bool {
        self.reach_for < self.at_least
    }

    /// Returns which goal the value reaches, or why there is none.
    pub(super) fn verdict(&self) -> &str {
        let Some(Spread { median, .. }) = self.value else {
            return self.missing.as_deref().unwrap_or("not measured");
        };
        let reaches = |goal| if self.less_is_better() { median <= goal } else { median >= goal };
        match (reaches(self.reach_for), reaches(self.at_least)) {
            (true, _) => "reached",
            (false, true) => "met",
            (false, false) => "NOT met",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_direction_decides_if_met() {
        let verdict = |goals, value: f64| {
            let value = Spread::of([value]).ok_or_else(String::new);
            Goal::new("P", "", "×", goals, value).verdict().to_owned()
        };
        assert_eq!(
            [9.0, 10.0, 16.0].map(|v| verdict([10.0, 15.0], v)),
            ["NOT met", "met", "reached"]
        );
        assert_eq!([1.4, 1.2, 0.9].map(|v| verdict([1.3, 1.0], v)), ["NOT met", "met", "reached"]);
        assert_eq!(Goal::new("P", "", "×", [1.0, 2.0], Err("why".to_owned())).verdict(), "why");
    }
}
