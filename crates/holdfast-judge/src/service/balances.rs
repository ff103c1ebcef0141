//! The four balances: the answers to the buyers against the books, and whether the books can be
//! right.

use std::collections::{HashMap, HashSet};

use anyhow::ensure;
use serde::Deserialize;

use super::buyers::{Answered, AttemptOutcome, BuyerAnswer};
use super::report::Figures;

/// The service's own books after a run.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct BookTotals {
    pub(super) stock: i64,
    pub(super) sold: i64,
    /// The orders of each key, if the file says how they are found.
    #[serde(skip)]
    pub(super) by_key: Option<HashMap<String, i64>>,
}

/// Returns the figures of a run.
pub(super) fn figures(opening: i64, outcomes: &[AttemptOutcome], books: &BookTotals) -> Figures {
    let count = |is: fn(&BuyerAnswer) -> bool| {
        outcomes.iter().filter(|outcome| is(outcome.answer())).count() as u64
    };
    let is_sold = |answer: &BuyerAnswer| *answer == BuyerAnswer::Sold;
    let sold = count(is_sold);
    let keys = outcomes.iter().filter(|outcome| is_sold(outcome.answer()));
    let keys: HashSet<String> = keys.map(|outcome| outcome.attempt.key.to_string()).collect();
    let error = answered(outcomes).find_map(|it| match &it.answer {
        BuyerAnswer::Error(error) => Some(error),
        BuyerAnswer::Sold | BuyerAnswer::SoldOut | BuyerAnswer::Unknown(_) => None,
    });
    // An answer that was lost says nothing if the order was sent again.
    let unanswered = outcomes.iter().find_map(|outcome| match outcome.answer() {
        BuyerAnswer::Unknown(error) => Some(error),
        BuyerAnswer::Sold | BuyerAnswer::SoldOut | BuyerAnswer::Error(_) => None,
    });

    // Without their keys, orders of a key that was not answered may stand in for lost ones.
    let promised = i64::try_from(sold).unwrap_or(i64::MAX);
    let lost = match &books.by_key {
        Some(by_key) => keys.iter().filter(|key| !by_key.contains_key(*key)).count() as i64,
        None => (promised - books.sold).max(0),
    };
    // And each key that was not refused may have one order.
    let possible = count_any(outcomes, |answer| *answer != BuyerAnswer::SoldOut) as i64;
    let doubled = match &books.by_key {
        Some(by_key) => by_key.values().filter(|orders| **orders > 1).count() as i64,
        None => (books.sold - possible).max(0),
    };

    Figures {
        attempts: outcomes.len() as u64,
        sold,
        sold_out: count(|answer| *answer == BuyerAnswer::SoldOut),
        unknown: count(|answer| matches!(answer, BuyerAnswer::Unknown(_))),
        errors: count_any(outcomes, |answer| matches!(answer, BuyerAnswer::Error(_))),
        error: error.or(unanswered).cloned(),
        by_count: books.by_key.is_none(),
        opening,
        stock: books.stock,
        books_sold: books.sold,
        oversold: (promised.max(books.sold) - opening).max(0),
        drift: opening - books.stock - books.sold,
        lost,
        doubled,
        gap_ms: gap_us(opening, outcomes) / 1_000,
        p99_ms: p99_us(outcomes) / 1_000,
    }
}

/// Fails if the books of one buyer after the other, to whom units were sold, show that a query is
/// wrong.
pub(super) fn check_books(figures: &Figures) -> anyhow::Result<()> {
    let Figures { sold, books_sold, opening, stock, .. } = figures;
    let Figures { oversold, drift, lost, doubled, by_count, .. } = figures;
    ensure!(
        *books_sold > 0,
        "[books] sold found none of the {sold} units that were answered *sold*, one after the \
         other: does its query count the orders of `{{item}}`?"
    );
    ensure!(
        *lost < sold.cast_signed(),
        "[books] by_key returned none of the {sold} keys that were answered *sold*: its first \
         column must be the {{key}} of the order, as it was sent"
    );
    // The books are right: what was answered is not.
    ensure!(
        *lost == 0 || lost != oversold || *drift != 0,
        "{lost} of the {sold} orders that were answered *sold* are not in the books, and took no \
         stock: is a refusal (a redirect?) taken for *sold*? If both have one status, a program \
         has to buy: [order] command"
    );
    ensure!(
        *by_count || *lost > 0 || *books_sold >= sold.cast_signed(),
        "[books] by_key and [books] sold disagree: by_key found each of the {sold} keys that were \
         answered *sold*, one after the other, and sold only {books_sold} units: does its query \
         count all orders of `{{item}}`?"
    );
    // Who sells no more than there is knows what is left.
    ensure!(
        stock != opening || *oversold > 0 || *lost > 0 || *doubled > 0,
        "[books] stock found {stock} units before the first order, and {stock} after {books_sold} \
         were sold, one after the other: does its query count what is left? No order changed it"
    );
    Ok(())
}

/// Counts the keys with such an answer among their answers.
fn count_any(outcomes: &[AttemptOutcome], is: fn(&BuyerAnswer) -> bool) -> u64 {
    let has = |outcome: &&AttemptOutcome| outcome.answers.iter().any(|it| is(&it.answer));
    outcomes.iter().filter(has).count() as u64
}

/// Returns the longest time without a sale while units were left, if there were any buyers.
fn gap_us(opening: i64, outcomes: &[AttemptOutcome]) -> u64 {
    let began = answered(outcomes).map(|it| it.sent_us).min().unwrap_or_default();
    let ended = answered(outcomes).map(|it| it.answered_us).max().unwrap_or_default();
    let sales = outcomes.iter().filter_map(|outcome| {
        let sale = outcome.answers.iter().find(|it| it.answer == BuyerAnswer::Sold)?;
        Some(sale.answered_us)
    });
    let mut times: Vec<u64> = sales.collect();
    times.sort_unstable();

    // After the last unit no buyer can buy one.
    let units = usize::try_from(opening).unwrap_or_default();
    if times.len() < units {
        times.push(ended);
    }
    times.truncate(units);
    times.insert(0, began);
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

fn p99_us(outcomes: &[AttemptOutcome]) -> u64 {
    let times = answered(outcomes).map(|it| it.answered_us - it.sent_us);
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    let place = (times.len() * 99).div_ceil(100);
    times.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

fn answered(outcomes: &[AttemptOutcome]) -> impl Iterator<Item = &Answered> {
    outcomes.iter().flat_map(|outcome| &outcome.answers)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::service::buyers::OrderAttempt;
    use crate::service::report::Imbalance;

    fn outcome(number: u64, answers: &[(BuyerAnswer, u64)]) -> AttemptOutcome {
        let attempt =
            OrderAttempt { buyer: number, key: Uuid::from_u64_pair(0, number), instance: 0 };
        let answers = answers.iter().cloned();
        let answers = answers.map(|(answer, answered_us)| Answered {
            instance: 0,
            answer,
            sent_us: 0,
            answered_us,
        });
        AttemptOutcome { attempt, answers: answers.collect() }
    }

    fn books(stock: i64, keys: &[(u64, i64)]) -> BookTotals {
        let key = |number: u64| Uuid::from_u64_pair(0, number).to_string();
        let by_key: HashMap<_, _> = keys.iter().map(|(it, orders)| (key(*it), *orders)).collect();
        BookTotals { stock, sold: by_key.values().sum(), by_key: Some(by_key) }
    }

    #[test]
    fn each_balance_is_found_alone() {
        let unknown = || BuyerAnswer::Unknown("gone".to_owned());
        let two = [outcome(1, &[(BuyerAnswer::Sold, 10)]), outcome(2, &[(unknown(), 20)])];
        let found = |opening, books| figures(opening, &two, &books).found();

        assert_eq!(found(2, books(0, &[(1, 1), (2, 1)])), []);
        assert_eq!(found(1, books(-1, &[(1, 1), (2, 1)])), [Imbalance::Oversold]);
        assert_eq!(found(2, books(0, &[(1, 1)])), [Imbalance::Drift]);
        assert_eq!(found(2, books(1, &[(2, 1)])), [Imbalance::Lost]);
        assert_eq!(found(3, books(0, &[(1, 2), (2, 1)])), [Imbalance::Doubled]);
    }

    #[test]
    fn wrong_queries_are_named() {
        let sold = |number| outcome(number, &[(BuyerAnswer::Sold, 10)]);
        let sold = [sold(1), sold(2)];
        let both = [(1, 1), (2, 1)];
        let check = |opening, books: &BookTotals| {
            let checked = check_books(&figures(opening, &sold, books));
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check(2, &books(0, &both)), "");
        for (opening, books, expected) in [
            (2, BookTotals { sold: 0, ..books(2, &both) }, "sold found none of the 2 units"),
            (2, books(1, &[(3, 1)]), "by_key returned none of the 2 keys"),
            // More was answered *sold* than there was, and the books are right.
            (1, books(0, &[(1, 1)]), "1 of the 2 orders that were answered *sold* are not in"),
            (
                2,
                BookTotals { sold: 1, ..books(0, &both) },
                "by_key and [books] sold disagree: by_key",
            ),
            (2, books(2, &both), "[books] stock found 2 units before the first order, and 2 after"),
        ] {
            let said = check(opening, &books);
            assert!(said.contains(expected), "{expected}: {said}");
        }
        // The service may be wrong itself: it takes nothing, or too much.
        assert_eq!(check(1, &books(1, &both)), "");
        assert_eq!(check(3, &books(0, &both)), "");
    }

    /// The one that was not answered may have an order.
    #[test]
    fn orders_without_keys_are_counted() {
        let gone = BuyerAnswer::Unknown("gone".to_owned());
        let three = [
            outcome(1, &[(BuyerAnswer::Sold, 10)]),
            outcome(2, &[(gone, 20)]),
            outcome(3, &[(BuyerAnswer::SoldOut, 30)]),
        ];
        let found = |sold: i64| {
            let books = BookTotals { stock: 3 - sold, sold, by_key: None };
            figures(3, &three, &books).found()
        };
        assert_eq!(found(0), [Imbalance::Lost]);
        assert_eq!(found(1), []);
        assert_eq!(found(2), []);
        assert_eq!(found(3), [Imbalance::Doubled]);
    }

    #[test]
    fn errors_are_counted_beside_a_sale() {
        let failed = BuyerAnswer::Error("status 500".to_owned());
        let gone = BuyerAnswer::Unknown("gone".to_owned());
        let sent = [
            outcome(1, &[(gone.clone(), 10), (BuyerAnswer::Sold, 20)]),
            outcome(2, &[(BuyerAnswer::Sold, 10), (failed, 20)]),
        ];
        let figures_of = |sent: &[AttemptOutcome]| {
            let figures = figures(2, sent, &books(0, &[(1, 1), (2, 1)]));
            (figures.sold, figures.unknown, figures.errors, figures.error)
        };
        assert_eq!(figures_of(&sent), (2, 0, 1, Some("status 500".to_owned())));
        // The first one was sent again, so that its lost answer is none to speak of.
        assert_eq!(figures_of(&sent[..1]), (1, 0, 0, None));
        let silent = [outcome(1, &[(gone, 10)])];
        assert_eq!(figures_of(&silent), (0, 1, 0, Some("gone".to_owned())));
    }

    #[test]
    fn attempt_is_sold_if_one_of_its_answers_says_so() {
        let sent = outcome(1, &[(BuyerAnswer::Sold, 30), (BuyerAnswer::SoldOut, 40)]);
        let figures = figures(
            5,
            &[sent, outcome(2, &[(BuyerAnswer::Sold, 9_000)])],
            &books(3, &[(1, 1), (2, 1)]),
        );
        assert_eq!((figures.sold, figures.sold_out, figures.found().len()), (2, 0, 0));
        // Units were left, and no buyer bought one after that.
        assert_eq!((figures.gap_ms, figures.p99_ms), (8, 9));
    }
}
