//! Properties of [`Command::decide`], on random shops and random commands.
//!
//! A [`MemoryShop`] replaces the database; commands are decided alone and in batches as in the
//! engine. A failing test prints the seed of its case.

mod memory_shop;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast_shop::Rejection;
use holdfast_shop::command::changes::{Changes, CommandResponse};
use holdfast_shop::command::state::{ShopState, StockSnapshot};
use holdfast_shop::command::{Command, MAX_AMOUNT};
use holdfast_shop::model::OrderStatus;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use memory_shop::{Amounts, MemoryShop, PlacedOrder, pick};

/// Random shops per test.
const CASES: u64 = 80;
/// Batches per shop.
const BATCHES: usize = 16;

/// Prints the seed of a case that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

struct Decision {
    command: Box<dyn Command>,
    before: ShopState,
    result: Result<Changes, Rejection>,
    after: ShopState,
}

/// Decides commands one after the other, each on the state after the previous one.
fn decide(mut state: ShopState, commands: Vec<Box<dyn Command>>) -> Vec<Decision> {
    let decisions = commands.into_iter().map(|command| {
        let before = state.clone();
        let result = command.decide(&mut state);
        Decision { command, before, result, after: state.clone() }
    });
    decisions.collect()
}

fn cases(mut case: impl FnMut(&mut StdRng)) {
    for seed in 0..CASES {
        let seed = Seed(seed);
        case(&mut StdRng::seed_from_u64(seed.0));
    }
}

/// Executes random batches, and passes each with the shop after it to `check`.
fn run_batches(amounts: Amounts, mut check: impl FnMut(&[Decision], &MemoryShop)) {
    cases(|rng| {
        let mut shop = MemoryShop::random(rng, amounts);
        for _ in 0..BATCHES {
            shop.tick(rng);
            let batch = shop.batch(rng);
            let decisions = decide(shop.read(&batch), batch);
            for changes in decisions.iter().filter_map(|decision| decision.result.as_ref().ok()) {
                shop.apply(changes);
            }
            check(&decisions, &shop);
        }
    });
}

/// Commands of all kinds on one state, from which rows may be missing.
fn run_with_missing_rows(mut check: impl FnMut(&[Decision])) {
    cases(|rng| {
        let mut shop = MemoryShop::random(rng, Amounts::Small);
        for _ in 0..BATCHES {
            shop.tick(rng);
            let alone = shop.command(rng);
            if let Ok(changes) = alone.decide(&mut shop.read([&alone])) {
                shop.apply(&changes);
            }
            let commands: Vec<_> = (0..4).map(|_| shop.command(rng)).collect();
            let mut state = shop.read(&commands);
            state.items.retain(|_, _| rng.random_ratio(7, 8));
            state.accounts.retain(|_, _| rng.random_ratio(7, 8));
            state.orders.retain(|_, _| rng.random_ratio(7, 8));
            state.purchased.retain(|_, _| rng.random_ratio(1, 2));
            state.next_entry = state.next_entry.filter(|_| rng.random_ratio(3, 4));
            check(&decide(state, commands));
        }
    });
}

/// Each change begins at the value and the version of the previous one.
fn check_chain(decisions: &[Decision]) {
    let mut state = decisions[0].before.clone();
    for Decision { result, after, .. } in decisions {
        let Ok(changes) = result else { continue };
        for change in &changes.stock {
            let row = state.items.get_mut(&change.key).unwrap();
            assert_eq!((row.stock, row.version), (change.before, change.version), "{change:?}");
            (row.stock, row.version) = (row.stock + change.delta, row.version + 1);
            assert!(row.stock >= 0, "{change:?}");
        }
        if let Some(change) = &changes.balance {
            let row = state.accounts.get_mut(&change.key).unwrap();
            let found = (row.balance_cents, row.version);
            assert_eq!(found, (change.before, change.version), "{change:?}");
            row.balance_cents += change.delta;
            row.version += 1;
            assert!(row.balance_cents >= 0, "{change:?}");
        }
        if let Some(item) = &changes.edit {
            let row = state.items.get_mut(&item.sku).unwrap();
            row.names = Arc::new(item.names());
            (row.price_cents, row.hidden) = (item.price_cents, item.hidden);
            (row.limit_per_user, row.version) = (item.limit_per_user, row.version + 1);
        }
        assert_eq!((&state.items, &state.accounts), (&after.items, &after.accounts));
    }
}

/// Units are in stock or in open orders, and money on accounts or in paid orders.
fn check_conservation(shop: &MemoryShop) {
    for (sku, row) in &shop.items {
        let out = shop.orders.iter().filter_map(|placed| placed.units_out.get(sku));
        let out: i128 = out.map(|units| i128::from(*units)).sum();
        assert_eq!(i128::from(row.stock) + out, shop.units_added[sku], "units of {sku}");
    }
    let balances: i128 = shop.accounts.values().map(|row| i128::from(row.balance_cents)).sum();
    let paid: i128 = shop.orders.iter().map(|placed| i128::from(placed.cents_in)).sum();
    assert_eq!(balances + paid, shop.cents_added, "cents");
    for PlacedOrder { order, row, units_out, cents_in, .. } in &shop.orders {
        let holds = matches!(row.status, OrderStatus::Pending | OrderStatus::Paid);
        let units = order.lines.iter();
        let units = units.map(|line| (line.sku.clone(), if holds { line.quantity } else { 0 }));
        assert_eq!(*units_out, units.collect::<BTreeMap<_, _>>(), "units of {order:?}");
        let cents = if row.status == OrderStatus::Paid { order.total_cents } else { 0 };
        assert_eq!(*cents_in, cents, "cents of {order:?}");
    }
}

#[test]
fn changes_form_chains_and_conserve_the_sums() {
    for amounts in [Amounts::Small, Amounts::Extreme] {
        run_batches(amounts, |decisions, shop| {
            check_chain(decisions);
            check_conservation(shop);
        });
    }
    run_with_missing_rows(check_chain);
}

#[test]
fn command_without_changes_leaves_the_state() {
    run_with_missing_rows(|decisions| {
        for Decision { command, before, result, after } in decisions {
            if result.as_ref().map_or(true, Changes::is_empty) {
                assert_eq!(before, after, "{command:?}: {result:?}");
            }
        }
    });
}

#[test]
fn batch_equals_its_commands_one_by_one() {
    cases(|rng| {
        let amounts = *pick(rng, &[Amounts::Small, Amounts::Extreme]);
        let mut shop = MemoryShop::random(rng, amounts);
        for _ in 0..BATCHES {
            shop.tick(rng);
            let batch = shop.batch(rng);
            let mut together = shop.read(&batch);
            for command in &batch {
                assert!(batch.len() == 1 || command.batch_key().is_some(), "{command:?}");
                let mut alone = shop.read([command]);
                let result = command.decide(&mut alone);
                let same = command.decide(&mut together);
                assert_eq!(format!("{result:?}"), format!("{same:?}"), "{command:?}");
                let Ok(changes) = result else { continue };
                shop.apply(&changes);
                // Only the number of the next entry differs in a new read.
                let next_entry = alone.next_entry;
                assert_eq!(alone, ShopState { next_entry, ..shop.read([command]) }, "{command:?}");
            }
            let next_entry = together.next_entry;
            assert_eq!(together, ShopState { next_entry, ..shop.read(&batch) }, "{batch:?}");
        }
    });
}

#[test]
fn order_is_paid_and_returned_at_most_once() {
    use OrderStatus::{Cancelled, Paid, Pending, Refunded};
    let paths: [&[OrderStatus]; 4] =
        [&[Pending], &[Pending, Paid], &[Pending, Paid, Refunded], &[Pending, Cancelled]];
    run_batches(Amounts::Small, |_, shop| {
        for placed in &shop.orders {
            assert!(paths.contains(&placed.history.as_slice()), "{placed:?}");
            let paid_at = placed.row.paid_at.is_some();
            assert_eq!(paid_at, placed.history.contains(&Paid), "{placed:?}");
        }
    });
}

#[test]
fn customer_limit_is_never_exceeded() {
    run_batches(Amounts::Small, |decisions, _| {
        for Decision { result, after, .. } in decisions {
            let Ok(Changes { order: Some(new), .. }) = result else { continue };
            for (line, limit) in new.order.lines.iter().zip(&new.limits) {
                let Some(limit) = limit else { continue };
                let purchased = after.purchased[&(line.sku.clone(), new.user)];
                assert!(purchased <= *limit, "{purchased} of {line:?}");
            }
        }
    });
}

#[test]
fn order_costs_at_most_what_its_customer_expects() {
    for amounts in [Amounts::Small, Amounts::Extreme] {
        run_batches(amounts, |decisions, _| {
            for Decision { command, before, result, .. } in decisions {
                let Ok(Changes { order: Some(new), .. }) = result else { continue };
                let order = &new.order;
                let prices = order.lines.iter().map(|line| line.quantity * line.unit_price_cents);
                assert_eq!(order.total_cents, prices.sum::<i64>(), "{order:?}");
                for line in &order.lines {
                    let item = &before.items[&line.sku];
                    assert_eq!(
                        (line.unit_price_cents, &line.names),
                        (item.price_cents, &item.names)
                    );
                }
                let expected = command.single_order().and_then(|it| it.expected_total_cents);
                assert!(expected.is_none_or(|expected| order.total_cents <= expected), "{order:?}");
            }
        });
    }
}

#[test]
fn order_is_paid_before_it_expires() {
    run_batches(Amounts::Small, |decisions, _| {
        for Decision { before, result, .. } in decisions {
            let Ok(changes) = result else { continue };
            let expires = matches!(changes.response, CommandResponse::Expired(_));
            for change in &changes.transitions {
                let found = before.orders[&change.order];
                let due = found.expires_at <= before.now;
                assert_eq!(found.status, change.from);
                assert!(change.to != OrderStatus::Paid || !due && !found.expired, "{change:?}");
                assert!(!expires || due && found.status == OrderStatus::Pending, "{change:?}");
            }
        }
    });
}

#[test]
fn rejection_matches_the_state() {
    run_batches(Amounts::Small, |decisions, _| {
        for Decision { command, before, result, .. } in decisions {
            let (id, user) = (command.order(), command.idempotency().user);
            let found = id.and_then(|id| before.orders.get(&id));
            let Err(rejection) = result else { continue };
            let is_true = match rejection {
                Rejection::SoldOut { sku, requested, available } => {
                    before.items[sku].stock == *available && available < requested
                }
                Rejection::PriceChanged { expected_total_cents, total_cents } => {
                    let update = command.conditional_update().unwrap();
                    let prices = update.stock.iter();
                    let prices = prices.map(|(sku, delta)| -delta * before.items[sku].price_cents);
                    *total_cents == prices.sum::<i64>() && total_cents > expected_total_cents
                }
                Rejection::LimitReached { sku, limit, already, requested } => {
                    before.items[sku].limit_per_user == Some(*limit)
                        && before.purchased[&(sku.clone(), user)] == *already
                        && already + requested > *limit
                }
                Rejection::InsufficientFunds { needed_cents, balance_cents, in_lab: false } => {
                    before.accounts[&user].balance_cents == *balance_cents
                        && balance_cents < needed_cents
                }
                Rejection::OrderState { status, action } => {
                    let is_refund = *action == "refund";
                    let demanded = if is_refund { OrderStatus::Paid } else { OrderStatus::Pending };
                    found.is_some_and(|found| found.status == *status) && *status != demanded
                }
                Rejection::OrderExpired => {
                    found.is_some_and(|found| found.expired || found.expires_at <= before.now)
                }
                Rejection::NotFound(_) => {
                    let takes_order = command.reads().buyer.is_some();
                    let is_gone = |item: &StockSnapshot| takes_order && item.hidden;
                    let items = command.reads().items.into_iter();
                    items.map(|sku| before.items.get(&sku)).any(|item| item.is_none_or(is_gone))
                }
                Rejection::Invalid(..) => {
                    let stock = command.reads().items.first().map(|sku| before.items[sku].stock);
                    let update = command.conditional_update().unwrap();
                    let delta = update.stock.first().map(|(_, delta)| *delta);
                    stock
                        .zip(delta)
                        .is_some_and(|(stock, delta)| !(0..=MAX_AMOUNT).contains(&(stock + delta)))
                }
                _ => false,
            };
            assert!(is_true, "{command:?}: {rejection:?}");
        }
    });
}

#[test]
fn random_shops_produce_every_result() {
    let mut counts: HashMap<String, usize> = HashMap::new();
    run_batches(Amounts::Small, |decisions, _| {
        for Decision { result, .. } in decisions {
            let shown = match result {
                Ok(changes) if changes.is_empty() => "Empty".to_owned(),
                Ok(changes) => format!("{:?}", changes.response),
                Err(rejection) => format!("{rejection:?}"),
            };
            let name = shown.split(|c: char| !c.is_alphabetic()).next().unwrap().to_owned();
            *counts.entry(name).or_default() += 1;
        }
    });
    let results = [
        "Placed",
        "Paid",
        "Returned",
        "Restocked",
        "ToppedUp",
        "Edited",
        "Expired",
        "Empty",
        "SoldOut",
        "PriceChanged",
        "LimitReached",
        "InsufficientFunds",
        "OrderState",
        "OrderExpired",
        "NotFound",
        "Invalid",
    ];
    for result in results {
        let count = counts.get(result).copied().unwrap_or(0);
        assert!(count >= 10, "{result}: {count} of {counts:?}");
    }
}
