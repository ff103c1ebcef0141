//! The goals, each with its measured value. `docs/PERFORMANCE.md` explains them and their source.

use serde::Serialize;

use super::runs::{
    BASELINE, BATCHED, BenchRun, MANY_CLIENTS, Measurements, ROW_LOCK, Spread, Task,
};

#[derive(Debug, Serialize)]
pub(super) struct Goal {
    /// Number of the goal, e.g. `P1`; `fair` for fairness.
    pub(super) id: &'static str,
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) at_least: f64,
    /// Less is better if this is less than `at_least`.
    pub(super) reach_for: f64,
    /// `None` if a run was not sound, or not made.
    pub(super) value: Option<Spread>,
}

/// Returns all goals; `clients` is the number of clients of the usual runs.
pub(super) fn all(data: &Measurements, clients: usize) -> Vec<Goal> {
    let run = |strategy, task| BenchRun { strategy, task, clients };
    let hot = |strategy| BenchRun::hot(strategy, clients);
    let one_client = |strategy| BenchRun::hot(strategy, 1);
    let many = BenchRun::hot(BATCHED, MANY_CLIENTS);
    let no_op = BenchRun::no_op;

    let rate = |upper, lower| data.ratio(upper, lower, |round| Some(round.per_second));
    let against = |task| rate(run(BATCHED, task), run(ROW_LOCK, task));
    let p50 = data.ratio(one_client(BATCHED), one_client(ROW_LOCK), |round| round.p50_ms);
    let p99 = data.ratio(hot(BASELINE), hot("fenced"), |round| round.p99_ms);
    let of_batched = |metric| data.each(hot(BATCHED), metric);
    let reads = of_batched(|round| Some(round.redis_reads));
    let writes = of_batched(|round| Some(round.writes));
    let jain_clients = of_batched(|round| Some(round.jain_clients));
    let jain_replicas = of_batched(|round| Some(round.jain_replicas));

    let same_many = format!("the same, {MANY_CLIENTS} clients");
    let many_over_n = format!("batched: {MANY_CLIENTS} clients / {clients}");
    let payments = format!("payments, {clients} users: batched / row-lock");
    let goals = [
        (
            "P1",
            "one hot item: batched / owner",
            "×",
            [17.0, 28.0],
            rate(hot(BATCHED), hot(BASELINE)),
        ),
        ("P2", "one hot item: batched / row-lock", "×", [11.0, 18.0], against(Task::Hot)),
        (
            "P3",
            "one hot item: batched / atomic",
            "×",
            [8.0, 12.0],
            rate(hot(BATCHED), hot("atomic")),
        ),
        ("P4", "batched / no-op", "×", [0.17, 0.22], rate(hot(BATCHED), no_op(clients))),
        ("P4b", &same_many, "×", [0.26, 0.33], rate(many, no_op(MANY_CLIENTS))),
        ("P5", &many_over_n, "×", [1.3, 1.6], rate(many, hot(BATCHED))),
        ("P6", "one client: p50 batched / p50 row-lock", "×", [0.8, 0.6], p50),
        ("P7", "1,000 items evenly: batched / row-lock", "×", [1.2, 1.5], against(Task::Spread)),
        // The lock of this project compared with the textbook's, without batching.
        ("P8", "one hot item: p99 owner / p99 fenced", "×", [8.0, 15.0], p99),
        ("P8", "one hot item: fenced / owner", "×", [2.0, 3.0], rate(hot("fenced"), hot(BASELINE))),
        ("P12", "batched: Redis' reads per order", "", [0.07, 0.05], reads),
        ("P12", "batched: Postgres' writing transactions", "", [0.04, 0.03], writes),
        (
            "P13",
            "batched: sold-out answers / no-op",
            "×",
            [0.4, 0.6],
            rate(run(BATCHED, Task::SoldOut), no_op(clients)),
        ),
        ("P14", &payments, "×", [1.1, 1.3], against(Task::Payments)),
        ("fair", "batched: Jain over clients", "", [0.95, 0.95], jain_clients),
        ("fair", "batched: Jain over replicas", "", [0.95, 0.95], jain_replicas),
    ];
    let goal = |(id, what, unit, [at_least, reach_for], value): (_, &str, _, [f64; 2], _)| Goal {
        id,
        what: what.to_owned(),
        unit,
        at_least,
        reach_for,
        value,
    };
    goals.map(goal).into()
}

impl Goal {
    pub(super) fn less_is_better(&self) -> bool {
        self.reach_for < self.at_least
    }

    pub(super) fn verdict(&self) -> &'static str {
        let Some(Spread { median, .. }) = self.value else { return "no value" };
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
        let verdict = |[at_least, reach_for]: [f64; 2], value: f64| {
            let value = Spread::of([value]);
            Goal { id: "P", what: String::new(), unit: "×", at_least, reach_for, value }.verdict()
        };
        assert_eq!(
            [9.0, 10.0, 16.0].map(|v| verdict([10.0, 15.0], v)),
            ["NOT met", "met", "reached"]
        );
        assert_eq!([1.4, 1.2, 0.9].map(|v| verdict([1.3, 1.0], v)), ["NOT met", "met", "reached"]);
    }
}
