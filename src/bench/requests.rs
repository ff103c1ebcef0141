//! What the clients of a run send.

use super::runs::{BATCHED, ROW_LOCK};
use holdfast_services::load::{PLACED_ORDER, Posts};
use holdfast_shop::Sku;

/// Number of requests after which a client's mix begins again.
pub(super) const MIX: usize = 50;

/// Returns the script of a client of the mixed load: of 50 requests 5 cancel the order placed just
/// before, 3 order two items, and 6 order the hot item by other strategies, beside which
/// [`BATCHED`] sells exactly. Only orders of one item under it are forwarded; `fenced`, cancels and
/// orders of two items need the item's lease on the replica that has the request.
pub(super) fn mixed(token: &str, [hot, other]: [&Sku; 2], from: usize) -> Posts {
    let place = |strategy, skus: &[&Sku]| {
        Posts::new("/api/orders", token, &[lock(strategy)], &[order(skus)], from)
    };
    let cancel = || {
        let path = format!("/api/orders/{PLACED_ORDER}/cancel");
        Posts::to_paths(&[path], token, &[lock(BATCHED)])
    };

    let request = |at: usize| match at {
        2 | 26 => place("fenced", &[hot]),
        10 | 34 => place(ROW_LOCK, &[hot]),
        18 | 42 => place("atomic", &[hot]),
        6 | 23 | 40 => place(BATCHED, &[hot, other]),
        _ if at % 10 == 9 => cancel(),
        _ => place(BATCHED, &[hot]),
    };
    let first = request(0);
    (1..MIX).map(request).fold(first, Posts::followed_by)
}

/// Returns the body of an order of one unit of each item.
pub(super) fn order(skus: &[&Sku]) -> String {
    let lines = skus.iter().map(|sku| format!("{{\"sku\":\"{sku}\",\"quantity\":1}}"));
    format!("{{\"lines\":[{}]}}", lines.collect::<Vec<_>>().join(","))
}

pub(super) fn lock(strategy: &str) -> String {
    format!("Holdfast-Lock: {strategy}")
}
