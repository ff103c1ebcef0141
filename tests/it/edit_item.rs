//! Items are created, edited, hidden and corrected by admins: once per key, with one entry in the
//! admin log or the ledger, and exact beside orders and other edits.

use holdfast_shop::command::edit_item::ItemFields;
use holdfast_shop::model::Item;
use holdfast_shop::strategy::STRATEGIES;
use holdfast_shop::{Failure, IdempotencyKey, Rejection, RequestContext, Sku, engine};
use holdfast_testkit::{TestShop, User, assert_has, fresh_key};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::customer_limits::under;

const ENTRIES: &str = "select count(*) from admin_log";

async fn log(admin: &User) -> Vec<Value> {
    admin.reads("/api/admin/log").await["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_item_is_replayed_byte_for_byte() {
    let shop = TestShop::start(2).await;
    let (admin, visitor) = (shop.sign_in("admin").await, shop.anonymous());
    let key = fresh_key();
    let set = json!({ "name": "Dead bolt", "price_cents": 5_000, "description": "Two\nlines",
                      "limit_per_user": 3 });
    let edit = admin.edits("deadbolt", &set).key(&key);
    let first = edit.clone().await;
    assert_eq!((first.status, first.is_replayed()), (200, false), "{first}");
    assert_has(&first.body, set);
    assert_eq!(first.body, visitor.reads("/api/items/deadbolt").await);
    admin.at(1).edits("deadbolt", &json!({ "price_cents": 4_800 })).ok().await;
    edit.await.replays(&first);
    let again = admin.at(1).edits("deadbolt", &json!({ "price_cents": 1 })).key(&key);
    again.fails(422, "idempotency-key-mismatch").await;
    assert_eq!(visitor.reads("/api/items/deadbolt").await["price_cents"], 4_800);

    // Only what changed is in the log, with what it was.
    let entries = log(&admin).await;
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_has(
        &entries[0],
        json!({ "admin": "admin", "action": "edit-item", "subject": "deadbolt",
                "before": { "price_cents": 5_000 }, "after": { "price_cents": 4_800 } }),
    );
    assert_eq!(entries[1]["before"]["limit_per_user"], Value::Null);
    assert_eq!(entries[1]["after"]["limit_per_user"], 3);
    let one = admin.reads("/api/admin/log?limit=1").await;
    let next = one["next"].as_str().unwrap();
    let rest = admin.reads(&format!("/api/admin/log?after={next}")).await;
    assert_eq!([&one["items"][0], &rest["items"][0]], [&entries[0], &entries[1]]);

    // An edit without a change has a response of its own key, and no entry.
    let unchanged = admin.edits("deadbolt", &json!({})).key(&fresh_key());
    let first = unchanged.clone().await;
    assert_eq!(first.status, 200, "{first}");
    unchanged.await.replays(&first);
    assert_eq!(shop.number(ENTRIES).await, 2);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admins_edit_within_the_ranges() {
    let shop = TestShop::start(1).await;
    let (admin, alice) = (shop.sign_in("admin").await, shop.sign_in("alice").await);
    let set = json!({ "price_cents": 1 });
    alice.edits("deadbolt", &set).fails(403, "forbidden").await;
    shop.anonymous().edits("deadbolt", &set).fails(401, "unauthenticated").await;
    alice.get("/api/admin/items").fails(403, "forbidden").await;
    alice.get("/api/admin/log").fails(403, "forbidden").await;
    admin.edits("deadbolt", &set).without_key().fails(400, "idempotency-key-missing").await;
    admin.edits("nothing", &set).fails(404, "not-found").await;

    let long = "x".repeat(201);
    for (field, bad) in [
        ("name", json!(" ")),
        ("name", json!(long)),
        ("name", json!("two\nlines")),
        ("name", Value::Null),
        ("price_cents", json!(-1)),
        ("price_cents", json!(1_000_000_001)),
        ("price_cents", json!("14.50")),
        ("description", json!("x".repeat(2_001))),
        ("description", json!("a\ttab")),
        ("hidden", json!("yes")),
        ("limit_per_user", json!(0)),
        ("limit_per_user", json!(1_001)),
        ("stock", json!(5)),
        ("sku", json!("other")),
    ] {
        let rejected = admin.edits("deadbolt", &json!({ field: bad })).succeeds(422).await;
        let detail = rejected["detail"].as_str().unwrap();
        assert!(detail.contains(field), "{field}: {bad}: {rejected}");
    }
    assert_eq!(shop.number(ENTRIES).await, 0);
    assert_eq!(shop.number("select count(*) from idempotency").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_different_fields_both_hold() {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    for price in 1..=10 {
        let name = format!("Bolt {price}");
        let (renamed, priced) = tokio::join!(
            admin.edits("deadbolt", &json!({ "name": name })).ok(),
            admin.at(1).edits("deadbolt", &json!({ "price_cents": price })).ok(),
        );
        let item = admin.reads("/api/items/deadbolt").await;
        assert_has(&item, json!({ "name": name, "price_cents": price }));
        // The second one of the two has seen the first.
        assert!([renamed, priced].contains(&item), "{item}");
    }
    assert_eq!(shop.number(ENTRIES).await, 20);
    shop.assert_sound().await;
}

/// The read of an order is paused, the price changes, and the order goes on.
#[tokio::test(flavor = "multi_thread")]
async fn order_uses_price_and_visibility_at_commit() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    let set = json!({ "price_cents": 250 });
    let hide = json!({ "hidden": true });

    let order = |sku: &str, strategy| under(strategy)(alice.at(1).orders(sku, 1));
    let sku = shop.shop_item(50, 100).await;
    let paused = shop.pause(&admin, order(&sku, "version"), "read").await;
    admin.edits(&sku, &set).ok().await;
    let placed = shop.resume(&admin, paused).await.succeeds(201);
    assert_eq!(placed["total_cents"], 250, "{placed}");
    let paused = shop.pause(&admin, order(&sku, "version"), "read").await;
    admin.edits(&sku, &hide).ok().await;
    let rejected = shop.resume(&admin, paused).await.fails(404, "not-found");
    assert_eq!(rejected["detail"], format!("{sku} is no longer sold"));

    // Where an order excludes others from its read on, the change waits for it.
    for strategy in ["batched", "fenced", "row-lock", "atomic"] {
        let sku = shop.shop_item(50, 100).await;
        let paused = shop.pause(&admin, order(&sku, strategy), "read").await;
        let edit = admin.edits(&sku, &json!({ "price_cents": 250, "hidden": true })).send();
        let placed = shop.resume(&admin, paused).await.succeeds(201);
        assert_eq!(placed["total_cents"], 100, "{strategy}");
        edit.succeeds(200).await;
        order(&sku, strategy).fails(404, "not-found").await;
    }
    shop.assert_sound().await;
}

/// In this process, where `redlock` has no servers. The second edit under `expire-only` would wait
/// for the lease of the first.
#[tokio::test(flavor = "multi_thread")]
async fn item_is_edited_under_every_strategy() {
    let shop = TestShop::without_replicas().await;
    let admin = shop.user_id("admin").await;
    let sku = Sku::try_from("deadbolt".to_owned()).unwrap();
    let mut price_cents = 4_900;
    let strategies = STRATEGIES
        .iter()
        .filter(|it| !["redlock", "expire-only"].contains(&it.name) && !it.has_own_items());
    for strategy in strategies.clone() {
        let domain = shop.in_process(strategy.name);
        let context = RequestContext::new(&domain, Uuid::now_v7());
        let key = || IdempotencyKey::try_from(fresh_key()).unwrap();
        let edit = async |set: ItemFields, was: ItemFields| {
            engine::edit_item(&domain, &context, admin, sku.clone(), set, was, key()).await
        };
        let price =
            |price_cents| ItemFields { price_cents: Some(price_cents), ..Default::default() };
        let (was, now) = (price_cents, price_cents + 1);
        let edited: Item = edit(price(now), price(was)).await.unwrap().response.read().unwrap();
        assert_eq!((edited.price_cents, edited.stock), (now, 40), "{}", strategy.name);
        // What the admin saw is no longer so.
        let Err(Failure::Rejected(Rejection::Invalid(field, why))) =
            edit(price(now + 5), price(was)).await
        else {
            panic!("{}: the second one overwrote the first", strategy.name);
        };
        assert_eq!(field, "price_cents", "{}", strategy.name);
        let why = why.english();
        assert_eq!(why, format!("it is {now} now: somebody has changed it since"));
        // To what it is already: nobody's change is lost.
        edit(price(now), price(was)).await.unwrap();
        price_cents = now;
    }
    let edits = i64::try_from(strategies.count()).unwrap();
    assert_eq!(shop.number(ENTRIES).await, edits);
    assert_eq!(shop.number("select count(*) from idempotency").await, 2 * edits);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_item_takes_no_new_orders_but_keeps_its_old_ones() {
    let shop = TestShop::start(2).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let place = async || alice.orders("deadbolt", 1).ok().await;
    let [paid, cancelled, refunded] = [place().await, place().await, place().await];
    alice.pays(&refunded).ok().await;
    let hidden = admin.at(1).edits("deadbolt", &json!({ "hidden": true })).ok().await;
    assert_eq!(hidden["hidden"], true);

    alice.orders("deadbolt", 1).fails(404, "not-found").await;
    alice.at(1).orders_all(&[("deadbolt", 1), ("key-ring", 1)]).fails(404, "not-found").await;
    let listed = |list: &Value| {
        list["items"].as_array().unwrap().iter().any(|item| item["sku"] == "deadbolt")
    };
    assert!(!listed(&alice.reads("/api/items").await));
    assert!(listed(&admin.reads("/api/admin/items").await));
    assert_eq!(alice.reads("/api/items/deadbolt").await, hidden);

    alice.pays(&paid).ok().await;
    alice.cancels(&cancelled).ok().await;
    alice.refunds(&refunded).ok().await;
    admin.restocks("deadbolt", 5).ok().await;
    admin.edits("deadbolt", &json!({ "hidden": false })).ok().await;
    let shown = alice.reads("/api/items/deadbolt").await;
    assert_has(&shown, json!({ "stock": 44, "hidden": null }));
    place().await;
    shop.assert_sound().await;
}

/// The write fails in its last part: nothing of it may be there.
#[tokio::test(flavor = "multi_thread")]
async fn edit_and_its_log_entry_are_one_write() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let before = shop.number("select version from items where sku = 'deadbolt'").await;
    shop.execute(
        "create function refuse() returns trigger language plpgsql as
         $$ begin raise exception 'refused'; end $$",
    )
    .await;
    shop.execute(
        "create trigger refuse before insert on admin_log for each row execute function refuse()",
    )
    .await;
    let item = json!({ "sku": "new", "name": "New", "price_cents": 1, "stock": 1 });
    for call in [admin.edits("deadbolt", &json!({ "price_cents": 1 })), admin.creates_item(&item)] {
        assert_eq!(call.await.status, 500);
    }
    assert_eq!(shop.number("select price_cents from items where sku = 'deadbolt'").await, 4_900);
    assert_eq!(shop.number("select version from items where sku = 'deadbolt'").await, before);
    assert_eq!(shop.number("select count(*) from items").await, 8);
    assert_eq!(shop.number("select count(*) from idempotency").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn item_is_created_once_per_key() {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    for number in 0..5 {
        let sku = format!("new-{number}");
        let item = json!({ "sku": sku, "name": "New", "price_cents": 1, "stock": 3,
                           "description": "Of brass" });
        let key = fresh_key();
        let create = admin.creates_item(&item).key(&key);
        let (first, second) =
            tokio::join!(create.clone().into_future(), create.clone().into_future());
        assert_eq!((first.status, second.status), (201, 201), "{first}, {second}");
        assert_eq!(first.bytes, second.bytes);
        assert_ne!(first.is_replayed(), second.is_replayed());
        admin.at(1).creates_item(&item).key(&key).await.replays(&first);
        // Another key is another command.
        admin.creates_item(&item).fails(409, "exists").await;
    }
    let entries = "select count(*) from stock_ledger where sku like 'new-%'";
    assert_eq!((shop.number(entries).await, shop.number(ENTRIES).await), (5, 5));
    assert_eq!(log(&admin).await[0]["after"]["stock"], 3);
    shop.assert_sound().await;
}

/// The shop takes an item for the lab's by the form of its sku in places where its row is not read:
/// the expiry of its orders, and its audit.
#[tokio::test(flavor = "multi_thread")]
async fn shop_item_has_no_lab_items_sku() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let item = |sku: &str| json!({ "sku": sku, "name": "Coat", "price_cents": 1, "stock": 1 });
    let lab = shop.lab_item(1).await;
    for sku in [lab.as_str(), "lab-0190a6e4000070008000000000000000"] {
        let rejected = admin.creates_item(&item(sku)).succeeds(422).await;
        assert_eq!(rejected["errors"][0]["field"], "sku", "{rejected}");
        assert!(rejected["detail"].as_str().unwrap().contains("items of the lab"), "{rejected}");
    }
    admin.creates_item(&item("lab-coat")).succeeds(201).await;
    assert_eq!(shop.number("select count(*) from items where sku like 'lab-%'").await, 2);
}

/// A lesson changes the price of its item: the admin log has only what the shop sells.
#[tokio::test(flavor = "multi_thread")]
async fn edit_of_lab_item_is_not_logged() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let lab = shop.lab_item(1).await;
    let edited = admin.edits(&lab, &json!({ "price_cents": 250 })).ok().await;
    assert_eq!(edited["price_cents"], 250, "{edited}");
    assert_eq!(shop.number(ENTRIES).await, 0);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn correction_below_zero_changes_nothing() {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    let rejected = admin.restocks("deadbolt", -41).succeeds(422).await;
    assert_eq!(rejected["errors"][0]["field"], "delta", "{rejected}");
    // Two that fit alone, and not together.
    let (first, second) = tokio::join!(
        admin.restocks("deadbolt", -25).into_future(),
        admin.at(1).restocks("deadbolt", -25).into_future(),
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 422], "{first}, {second}");
    assert_eq!(shop.stock("deadbolt").await, 15);
    let entries = "select count(*) from stock_ledger where sku = 'deadbolt'";
    assert_eq!(shop.number(entries).await, 2);
    shop.assert_sound().await;
}
