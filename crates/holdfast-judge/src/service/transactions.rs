//! The transactions of a run: what was sent in each, and whether any two were open at once.

use std::collections::BTreeMap;

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
        // One connection meets nobody.
        let pipelined = [seen(0, 1, (10, 20), false), seen(0, 1, (11, 21), false)];
        assert!(are_one_by_one(&pipelined));
    }
}
