//! The transactions of a run: what was sent in each, and whether any two were open at once.

use std::collections::BTreeMap;

use holdfast_services::Statement;

use super::strike::Struck;
use super::watch::Seen;

/// Returns the exchanges of each transaction. One outside of a transaction stands alone.
pub(super) fn transactions(seen: &[Seen]) -> Vec<Vec<&Seen>> {
    let mut transactions: Vec<Vec<&Seen>> = Vec::new();
    let mut open = BTreeMap::new();
    for seen in seen {
        let connection = connection_of(seen);
        let place = *open.entry(connection).or_insert(transactions.len());
        if place == transactions.len() {
            transactions.push(Vec::new());
        }
        transactions[place].push(seen);
        if !seen.exchange.in_transaction {
            open.remove(&connection);
        }
    }
    transactions
}

pub(super) fn connection_of(seen: &Seen) -> (usize, u64) {
    (seen.instance, seen.exchange.connection)
}

/// Leaves out what an instance sends after it was struck, and started again, as far as it is of no
/// order: the judge asks it whether it is ready.
pub(super) fn leave_out_restart(
    transactions: &mut Vec<Vec<&Seen>>,
    struck: Struck,
    is_of_order: impl Fn(&Statement) -> bool,
) {
    transactions.retain(|exchanges| {
        let is_after = exchanges.first().is_some_and(|first| {
            first.instance == struck.instance && first.exchange.sent_us > struck.at_us
        });
        let mut statements = exchanges.iter().flat_map(|seen| &seen.exchange.statements);
        !is_after || statements.any(&is_of_order)
    });
}

/// Returns whether each transaction, and each statement outside of one, had ended before another
/// connection sent its next. One that stays open ends with the last that was seen of it.
pub(super) fn are_one_by_one(seen: &[Seen]) -> bool {
    let times = transactions(seen).into_iter().filter_map(|exchanges| {
        let (first, last) = (exchanges.first()?, exchanges.last()?);
        Some((first.exchange.sent_us, last.exchange.answered_us, connection_of(first)))
    });
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    // Neighbours are enough, as one connection is answered in the order of its statements.
    times.windows(2).all(|pair| {
        let [(_, ended, connection), (began, _, next)] = pair else { return true };
        ended <= began || connection == next
    })
}

#[cfg(test)]
mod tests {
    use holdfast_services::Exchange;

    use super::*;

    fn seen(
        instance: usize,
        connection: u64,
        (sent_us, answered_us): (u64, u64),
        in_transaction: bool,
    ) -> Seen {
        let mut exchange = Exchange::default();
        (exchange.connection, exchange.in_transaction) = (connection, in_transaction);
        (exchange.sent_us, exchange.answered_us) = (sent_us, answered_us);
        Seen { instance, exchange }
    }

    #[test]
    fn question_of_the_judge_is_no_order() {
        let sent = |instance: usize, connection: u64, sent_us: u64, text: &str| {
            let in_transaction = text == "begin";
            let mut seen = seen(instance, connection, (sent_us, sent_us), in_transaction);
            seen.exchange.statements =
                vec![Statement { text: text.into(), ..Statement::default() }];
            seen
        };
        let all = [
            sent(0, 1, 10, "select stock"),
            // Of the other instance, of the judge, and of an order.
            sent(1, 1, 30, "select stock"),
            sent(0, 2, 30, "select stock"),
            sent(0, 3, 31, "begin"),
            sent(0, 3, 32, "update of tea"),
        ];
        let mut left = transactions(&all);
        let struck = Struck { instance: 0, at_us: 20 };
        leave_out_restart(&mut left, struck, |it| it.text.contains("tea"));
        let numbers: Vec<_> = left.iter().map(|it| connection_of(it[0])).collect();
        assert_eq!(numbers, [(0, 1), (1, 1), (0, 3)]);
    }

    #[test]
    fn orders_that_never_meet_are_one_by_one() {
        let both = |first, second| [seen(0, 1, (10, first), false), seen(1, 1, second, false)];
        assert!(are_one_by_one(&both(20, (20, 30))));
        assert!(!are_one_by_one(&both(20, (19, 30))));
        assert!(are_one_by_one(&[]));

        // The first one has a transaction open, in which no statement runs.
        let commit = seen(0, 1, (40, 50), false);
        let open = [seen(0, 1, (10, 20), true), seen(0, 2, (25, 30), false), commit.clone()];
        assert!(!are_one_by_one(&open));
        let closed = [seen(0, 1, (10, 20), false), seen(0, 2, (25, 30), false), commit];
        assert!(are_one_by_one(&closed));
        // One connection does not overlap with any other.
        let pipelined = [seen(0, 1, (10, 20), false), seen(0, 1, (11, 21), false)];
        assert!(are_one_by_one(&pipelined));
    }
}
