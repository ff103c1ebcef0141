//! The goals, each with its measured value. `docs/PERFORMANCE.md` has those that were missed.

use serde::Serialize;

use super::runs::{
    self, BASELINE, BATCHED, BenchRun, MANY_CLIENTS, Measurements, ROW_LOCK, Round, Spread, Task,
    UNITS,
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
    let owner = BenchRun::hot(BASELINE, clients);
    let row_lock = BenchRun::hot(ROW_LOCK, clients);
    let atomic = BenchRun::hot("atomic", clients);
    let fenced = BenchRun::hot("fenced", clients);
    let batched = BenchRun::hot(BATCHED, clients);
    let units = BenchRun::hot(UNITS, clients);
    let many = BenchRun::hot(BATCHED, MANY_CLIENTS);
    let no_op = BenchRun::no_op(clients);
    let many_no_op = BenchRun::no_op(MANY_CLIENTS);

    let one = [BATCHED, ROW_LOCK].map(|strategy| BenchRun::hot(strategy, 1));
    let one_p50 = data.ratio(one[0], one[1], |round| round.p50_ms);
    let p99 = data.ratio(owner, fenced, |round| round.p99_ms);
    let spread = data.rate(batched.with(Task::Spread), row_lock.with(Task::Spread));
    let sold_out = data.rate(batched.with(Task::SoldOut), no_op);
    let paid = data.rate(batched.with(Task::Payments), row_lock.with(Task::Payments));
    let reads = data.each(batched, |round| Some(round.costs?.redis_reads));
    let writes = data.each(batched, |round| Some(round.costs?.writes));
    let cpu = data.each(many, Round::cpu_us);
    let floor = data.rate(many, BenchRun::floor());
    let jain_clients = data.each(batched, |round| Some(round.jain_clients));
    let jain_replicas = data.each(batched, |round| Some(round.jain_replicas));

    let same_many = format!("the same, {MANY_CLIENTS} clients");
    let many_over_n = format!("batched: {MANY_CLIENTS} clients / {clients}");
    let cpu_of_order = format!("batched, {MANY_CLIENTS} clients: processor time of an order");
    let share_of_floor = format!("batched, {MANY_CLIENTS} clients / the write alone");
    let payments = format!("payments, {clients} users: batched / row-lock");
    let mut goals = vec![
        ratio("P1", "one hot item: batched / owner", [14.0, 28.0], data.rate(batched, owner)),
        ratio("P2", "one hot item: batched / row-lock", [11.0, 18.0], data.rate(batched, row_lock)),
        ratio("P3", "one hot item: batched / atomic", [8.0, 12.0], data.rate(batched, atomic)),
        ratio("P4", "batched / no-op", [0.17, 0.22], data.rate(batched, no_op)),
        ratio("P4b", &same_many, [0.26, 0.33], data.rate(many, many_no_op)),
        ratio("P5", &many_over_n, [1.3, 1.6], data.rate(many, batched)),
        ratio("P6", "one client: p50 batched / p50 row-lock", [0.8, 0.6], one_p50),
        ratio("P7", "1,000 items evenly: batched / row-lock", [1.2, 1.5], spread),
        // The lock of this project compared with the textbook's, without batching.
        ratio("P8", "one hot item: p99 owner / p99 fenced", [8.0, 15.0], p99),
        ratio("P8", "one hot item: fenced / owner", [2.0, 3.0], data.rate(fenced, owner)),
        figure("P12", "batched: Redis' reads per order", [0.07, 0.05], reads),
        figure("P12", "batched: Postgres' writing transactions", [0.04, 0.03], writes),
        ratio("P13", "batched: sold-out answers / no-op", [0.4, 0.6], sold_out),
        ratio("P14", &payments, [1.1, 1.3], paid),
        Goal { unit: "µs", ..figure("P16", &cpu_of_order, [78.0, 65.0], cpu) },
    ];
    for (replicas, bounds) in [(2, [0.9, 1.0]), (4, [0.8, 0.95])] {
        for clients in [clients, MANY_CLIENTS] {
            let what = format!("one item, {clients} clients: {replicas} replicas / 1");
            let run = BenchRun::hot(BATCHED, clients);
            let value = data.rate(run.over(replicas), run.over(1));
            goals.push(ratio("P17", &what, bounds, value));
        }
    }
    goals.extend([
        ratio("P18", &share_of_floor, [0.55, 0.7], floor),
        ratio("P19", "100,000 units: units / row-lock", [4.0, 8.0], data.rate(units, row_lock)),
        figure("fair", "batched: Jain over clients", [0.95, 0.95], jain_clients),
        figure("fair", "batched: Jain over replicas", [0.95, 0.95], jain_replicas),
    ]);
    goals.extend(mixed(data, clients));
    goals
}

/// Returns the goals of the mixed load.
pub(super) fn mixed(data: &Measurements, clients: usize) -> Vec<Goal> {
    let divided = runs::mixed(clients).into_iter().filter(|run| run.replicas > 1);
    let goals = divided.map(|run| {
        let what = format!("mixed load, {}: came back", run.division());
        figure("P20", &what, [0.2, 0.1], data.each(run, Round::returned))
    });
    goals.collect()
}

fn ratio(id: &'static str, what: &str, bounds: [f64; 2], value: Option<Spread>) -> Goal {
    Goal { unit: "×", ..figure(id, what, bounds, value) }
}

fn figure(
    id: &'static str,
    what: &str,
    [at_least, reach_for]: [f64; 2],
    value: Option<Spread>,
) -> Goal {
    Goal { id, what: what.to_owned(), unit: "", at_least, reach_for, value }
}

impl Goal {
    pub(super) fn less_is_better(&self) -> bool {
        self.reach_for < self.at_least
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.value {
            None => "no value",
            Some(value) if self.is_met(value.median, self.reach_for) => "reached",
            Some(value) if self.is_met(value.median, self.at_least) => "met",
            Some(_) => "NOT met",
        }
    }

    fn is_met(&self, median: f64, goal: f64) -> bool {
        if self.less_is_better() { median <= goal } else { median >= goal }
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
