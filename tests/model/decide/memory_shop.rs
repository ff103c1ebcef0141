//! A shop in memory: read as the engine reads rows, and written as the store writes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_shop::command::changes::{Changes, CommandResponse};
use holdfast_shop::command::edit_item::{EditItem, ItemFields};
use holdfast_shop::command::expire_orders::ExpireOrders;
use holdfast_shop::command::pay_order::PayOrder;
use holdfast_shop::command::place_order::{MAX_QUANTITY, PlaceOrder};
use holdfast_shop::command::restock::{Restock, RestockRequest};
use holdfast_shop::command::return_order::{ReturnOrder, ReturnedBy};
use holdfast_shop::command::state::{BalanceSnapshot, NextLedgerEntry, OrderSnapshot};
use holdfast_shop::command::state::{ShopState, StockSnapshot};
use holdfast_shop::command::top_up::TopUp;
use holdfast_shop::command::{Command, MAX_AMOUNT, MAX_BALANCE};
use holdfast_shop::model::{Order, OrderStatus, RequestedLine};
use holdfast_shop::{IdempotencyKey, OrderId, Sku, UserId};
use rand::RngExt as _;
use rand::rngs::StdRng;
use time::OffsetDateTime;
use uuid::Uuid;

/// The largest stock that the schema allows.
const MAX_STOCK: i64 = 2 * MAX_AMOUNT;

/// The amounts of a new shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amounts {
    /// Small, so that stock, limits and balances are exhausted.
    Small,
    /// Zero, one, and the largest ones.
    Extreme,
}

/// An order and what was written about it.
#[derive(Debug, Clone)]
pub struct PlacedOrder {
    pub user: UserId,
    /// As placed.
    pub order: Order,
    pub row: OrderSnapshot,
    /// Each status it had.
    pub history: Vec<OrderStatus>,
    /// Units that the ledger took for it, minus those returned.
    pub units_out: BTreeMap<Sku, i64>,
    /// Cents that the ledger took for it, minus those returned.
    pub cents_in: i64,
}

impl PlacedOrder {
    pub fn is_open(&self) -> bool {
        matches!(self.row.status, OrderStatus::Pending | OrderStatus::Paid)
    }

    fn units(&self) -> (OrderId, Vec<(Sku, i64)>) {
        (self.order.id, self.order.units())
    }
}

#[derive(Debug, Clone)]
pub struct MemoryShop {
    pub now: OffsetDateTime,
    pub items: BTreeMap<Sku, StockSnapshot>,
    pub descriptions: BTreeMap<Sku, String>,
    pub accounts: BTreeMap<UserId, BalanceSnapshot>,
    /// In the order in which they were placed.
    pub orders: Vec<PlacedOrder>,
    /// Units per item in the beginning, and restocked since.
    pub units_added: BTreeMap<Sku, i128>,
    /// Cents in the beginning, and topped up since.
    pub cents_added: i128,
    seq: i64,
    keys: u64,
    amounts: Amounts,
}

pub fn pick<'t, T>(rng: &mut StdRng, from: &'t [T]) -> &'t T {
    &from[rng.random_range(0..from.len())]
}

impl MemoryShop {
    pub fn random(rng: &mut StdRng, amounts: Amounts) -> Self {
        let mut items = BTreeMap::new();
        for name in ["cup", "pot", "tea", "tin"] {
            let (price_cents, stock) = match amounts {
                Amounts::Small => (rng.random_range(0..500), rng.random_range(0..12)),
                Amounts::Extreme => (
                    *pick(rng, &[0, 1, MAX_AMOUNT, i64::MAX / 2, i64::MAX]),
                    *pick(rng, &[0, 1, MAX_AMOUNT - 1, MAX_AMOUNT, MAX_STOCK]),
                ),
            };
            let limit_per_user = rng.random_bool(0.5).then(|| rng.random_range(1..6));
            let version = rng.random_range(0..9);
            let row = StockSnapshot {
                names: Arc::default(),
                price_cents,
                stock,
                limit_per_user,
                hidden: rng.random_ratio(1, 8),
                version,
                fence: 0,
                is_updated: false,
            };
            items.insert(Sku::try_from(name.to_owned()).unwrap(), row);
        }
        let accounts = (1..=3).map(|user| {
            let balance_cents = match amounts {
                Amounts::Small => rng.random_range(0..3_000),
                Amounts::Extreme => {
                    *pick(rng, &[0, 1, MAX_BALANCE - 1, MAX_BALANCE, i64::MAX - 1, i64::MAX])
                }
            };
            let version = rng.random_range(0..9);
            let row = BalanceSnapshot { balance_cents, version, fence: 0, is_updated: false };
            (UserId(Uuid::from_u128(user)), row)
        });
        let accounts: BTreeMap<UserId, BalanceSnapshot> = accounts.collect();
        let units = items.iter().map(|(sku, row)| (sku.clone(), row.stock.into()));
        Self {
            now: OffsetDateTime::UNIX_EPOCH,
            units_added: units.collect(),
            descriptions: items.keys().map(|sku| (sku.clone(), String::new())).collect(),
            cents_added: accounts.values().map(|row| i128::from(row.balance_cents)).sum(),
            items,
            accounts,
            orders: Vec::new(),
            seq: 0,
            keys: 0,
            amounts,
        }
    }

    /// The rows that `commands` read, as one statement reads them for a batch.
    pub fn read<'c>(&self, commands: impl IntoIterator<Item = &'c Box<dyn Command>>) -> ShopState {
        let mut state = ShopState::at(self.now);
        for command in commands {
            let reads = command.reads();
            for sku in &reads.items {
                let Some(row) = self.items.get(sku) else { continue };
                state.items.insert(sku.clone(), row.clone());
                if reads.descriptions {
                    state.descriptions.insert(sku.clone(), self.descriptions[sku].clone());
                }
                if let (Some(_), Some(user)) = (row.limit_per_user, reads.buyer) {
                    state.purchased.insert((sku.clone(), user), self.purchased(sku, user));
                }
            }
            let account = reads.account.and_then(|user| self.accounts.get_key_value(&user));
            state.accounts.extend(account.map(|(user, row)| (*user, *row)));
            let orders =
                self.orders.iter().filter(|placed| reads.orders.contains(&placed.order.id));
            state.orders.extend(orders.map(|placed| (placed.order.id, placed.row)));
            if reads.next_entry {
                let (seq, fence, request_id) = (self.seq + 1, None, Uuid::nil());
                state.next_entry = Some(NextLedgerEntry { seq, fence, request_id });
            }
        }
        state
    }

    /// Units of an item in a customer's pending and paid orders.
    pub fn purchased(&self, sku: &Sku, user: UserId) -> i64 {
        let open = self.orders.iter().filter(|placed| placed.user == user && placed.is_open());
        let lines = open.flat_map(|placed| &placed.order.lines);
        lines.filter(|line| line.sku == *sku).map(|line| line.quantity).sum()
    }

    /// Writes what a command has decided, without a check.
    pub fn apply(&mut self, changes: &Changes) {
        if let Some(new) = &changes.order {
            let row = OrderSnapshot {
                status: OrderStatus::Pending,
                expires_at: new.order.expires_at,
                paid_at: None,
                expired: false,
            };
            self.orders.push(PlacedOrder {
                user: new.user,
                order: new.order.clone(),
                row,
                history: vec![row.status],
                units_out: BTreeMap::new(),
                cents_in: 0,
            });
        }
        let expired = matches!(changes.response, CommandResponse::Expired(_));
        for change in &changes.transitions {
            let placed = self.placed(change.order);
            assert_eq!(placed.row.status, change.from, "compare-and-set of {}", change.order);
            placed.row.status = change.to;
            placed.row.paid_at = change.paid_at.or(placed.row.paid_at);
            placed.row.expired |= expired;
            placed.history.push(change.to);
        }
        for change in &changes.stock {
            let row = self.items.get_mut(&change.key).unwrap();
            (row.stock, row.version) = (change.before + change.delta, change.version + 1);
            match change.order {
                Some(order) => {
                    let out = &mut self.placed(order).units_out;
                    *out.entry(change.key.clone()).or_default() -= change.delta;
                }
                None => *self.units_added.get_mut(&change.key).unwrap() += i128::from(change.delta),
            }
            self.seq = change.seq.unwrap_or(self.seq);
        }
        if let Some(change) = &changes.balance {
            let row = self.accounts.get_mut(&change.key).unwrap();
            (row.balance_cents, row.version) = (change.before + change.delta, change.version + 1);
            if let Some(order) = change.order {
                self.placed(order).cents_in -= change.delta;
            }
            self.seq = change.seq.unwrap_or(self.seq);
        }
        self.cents_added += i128::from(changes.top_up_cents.unwrap_or(0));
        if let Some(item) = &changes.edit {
            let row = self.items.get_mut(&item.sku).unwrap();
            row.names = Arc::new(item.names());
            (row.price_cents, row.hidden) = (item.price_cents, item.hidden);
            (row.limit_per_user, row.version) = (item.limit_per_user, row.version + 1);
            self.descriptions.insert(item.sku.clone(), item.description.clone());
        }
    }

    fn placed(&mut self, order: OrderId) -> &mut PlacedOrder {
        self.orders.iter_mut().find(|placed| placed.order.id == order).unwrap()
    }

    pub fn tick(&mut self, rng: &mut StdRng) {
        self.now += Duration::from_secs(rng.random_range(0..6));
    }

    /// One command, or several that may be executed together.
    pub fn batch(&mut self, rng: &mut StdRng) -> Vec<Box<dyn Command>> {
        let size = rng.random_range(1..6);
        let user = self.user(rng);
        let (own, sku) = (self.orders_of(user), self.sku(rng));
        match rng.random_range(0..10) {
            0..=2 => (0..size).map(|_| self.place(rng, std::slice::from_ref(&sku))).collect(),
            3..=4 if !own.is_empty() => (0..size).map(|_| self.pay(rng, user, &own)).collect(),
            _ => vec![self.command(rng)],
        }
    }

    pub fn command(&mut self, rng: &mut StdRng) -> Box<dyn Command> {
        let (user, sku, key) = (self.user(rng), self.sku(rng), self.key());
        let own = self.orders_of(user);
        match rng.random_range(0..13) {
            0 => {
                let skus: Vec<Sku> = (0..3).map(|_| self.sku(rng)).collect();
                self.place(rng, &skus)
            }
            1 => self.place(rng, &[sku]),
            2..=3 if !own.is_empty() => self.pay(rng, user, &own),
            kind @ 4..=7 if !own.is_empty() => {
                let refund_to = (kind >= 6).then_some(user);
                let order = self.as_read(pick(rng, &own), rng);
                let by = match rng.random_bool(0.5) {
                    true => ReturnedBy::Customer(user),
                    false => ReturnedBy::admin(self.user(rng), "arrived broken").unwrap(),
                };
                Box::new(ReturnOrder::new(by, order, refund_to, Some(key)))
            }
            8 => {
                let amount = self.amount(rng, 800, MAX_AMOUNT);
                Box::new(TopUp::new(user, amount, key).unwrap())
            }
            9 => {
                let delta = self.amount(rng, 8, MAX_AMOUNT);
                let delta = if rng.random_bool(0.5) { delta } else { -delta };
                let what = RestockRequest { delta, reason: "restock".to_owned() };
                Box::new(Restock::new(user, sku, &what, key).unwrap())
            }
            10 => {
                let limit = rng.random_bool(0.7).then(|| rng.random_range(1..6));
                let set = ItemFields {
                    name: rng.random_bool(0.3).then(|| "another name".to_owned()),
                    price_cents: rng.random_bool(0.3).then(|| rng.random_range(0..500)),
                    hidden: rng.random_bool(0.3).then(|| rng.random_ratio(1, 8)),
                    limit_per_user: rng.random_bool(0.7).then_some(limit),
                    ..ItemFields::default()
                };
                Box::new(EditItem::new(user, sku, set, ItemFields::default(), key).unwrap())
            }
            _ => self.expire(rng),
        }
    }

    fn place(&mut self, rng: &mut StdRng, skus: &[Sku]) -> Box<dyn Command> {
        let most = if skus.len() == 1 { 4 } else { 2 };
        let lines = skus.iter().map(|sku| {
            let quantity = self.amount(rng, most, MAX_QUANTITY);
            RequestedLine { sku: sku.clone(), quantity }
        });
        let lines: Vec<RequestedLine> = lines.collect();
        let hold = Duration::from_secs(rng.random_range(0..60));
        let expected = rng.random_bool(0.3).then(|| rng.random_range(0..2_000));
        Box::new(PlaceOrder::new(self.user(rng), self.key(), &lines, expected, hold).unwrap())
    }

    fn pay(&mut self, rng: &mut StdRng, user: UserId, own: &[PlacedOrder]) -> Box<dyn Command> {
        let order = self.as_read(pick(rng, own), rng);
        Box::new(PayOrder::new(user, user, order, self.key()))
    }

    /// Orders of any status, due or not, perhaps one of them twice.
    fn expire(&self, rng: &mut StdRng) -> Box<dyn Command> {
        let some = (0..rng.random_range(0..5)).filter(|_| !self.orders.is_empty());
        Box::new(ExpireOrders::new(some.map(|_| pick(rng, &self.orders).units()).collect()))
    }

    /// The order as it is, or as it was when it was placed.
    fn as_read(&self, placed: &PlacedOrder, rng: &mut StdRng) -> Order {
        let mut order = placed.order.clone();
        if rng.random_bool(0.5) {
            order.status = placed.row.status;
            (order.paid_at, order.expired) = (placed.row.paid_at, placed.row.expired);
        }
        order
    }

    fn orders_of(&self, user: UserId) -> Vec<PlacedOrder> {
        self.orders.iter().filter(|placed| placed.user == user).cloned().collect()
    }

    fn amount(&self, rng: &mut StdRng, small: i64, largest: i64) -> i64 {
        match self.amounts {
            Amounts::Small => rng.random_range(1..=small),
            Amounts::Extreme => *pick(rng, &[1, 2, largest - 1, largest]),
        }
    }

    fn user(&self, rng: &mut StdRng) -> UserId {
        UserId(Uuid::from_u128(rng.random_range(1..=3)))
    }

    /// A known item, mostly.
    fn sku(&self, rng: &mut StdRng) -> Sku {
        let names = ["cup", "pot", "tea", "tin"];
        let name = if rng.random_ratio(1, 40) { "unknown" } else { pick(rng, &names) };
        Sku::try_from(name.to_owned()).unwrap()
    }

    fn key(&mut self) -> IdempotencyKey {
        self.keys += 1;
        IdempotencyKey::try_from(format!("key-{:016}", self.keys)).unwrap()
    }
}
