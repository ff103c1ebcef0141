//! The lists as CSV: what a spreadsheet reads back is what the shop has.

use holdfast_testkit::TestShop;
use serde_json::json;

use crate::visitor::Visitor;

/// Reads CSV as RFC 4180 describes it.
fn parse(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !quoted && letters.next_if_eq(&'\n').is_some() => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            other => cell.push(other),
        }
    }
    assert!(cell.is_empty() && row.is_empty(), "the last line ends with CRLF");
    rows
}

async fn file(visitor: &Visitor, path: &str) -> Vec<Vec<String>> {
    let response = visitor.page_request(path).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/csv; charset=utf-8; header=present");
    assert!(header("content-disposition").starts_with("attachment; filename=\"holdfast-"));
    assert_eq!(header("cache-control"), "no-store");
    let bytes = response.bytes().await.unwrap();
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").expect("a byte order mark, once");
    parse(std::str::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_hold_texts_of_every_kind() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let api = shop.sign_in("admin").await;
    let evil = r#"=HYPERLINK("http://x","a, b")"#;
    for (sku, name) in [("a-formula", evil), ("a-minus", "－1"), ("a-quote", "\"引号\"")] {
        let item = json!({ "sku": sku, "name": name, "price_cents": 5, "stock": 9 });
        api.creates_item(&item).ok().await;
    }
    shop.execute("update items set description = E'第一行\\n第二行' where sku = 'a-quote'").await;
    let change = json!({ "delta": -3, "reason": "@now" });
    api.post("/api/items/a-formula/stock").json(&change).ok().await;
    let alice = shop.sign_in("alice").await;
    alice.pays(&alice.orders_all(&[("a-formula", 1), ("a-minus", 2)]).ok().await).ok().await;

    let items = file(&admin, "/admin/items.csv?search=a-").await;
    assert_eq!(items[0][..4], ["sku", "name", "name_zh", "price_cents"]);
    let defused = format!("'{evil}");
    let names: Vec<&str> = items[1..].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(names, [&defused, "'－1", "\"引号\""]);
    assert_eq!(items[3][7], "第一行\n第二行");

    let ledger = file(&admin, "/admin/items/a-formula/ledger.csv").await;
    assert_eq!(ledger[0][..6], ["seq", "at", "before", "delta", "after", "reason"]);
    assert_eq!(ledger[2][2..6], ["9", "-3", "6", "'@now"], "numbers are numbers");

    let orders = file(&admin, "/admin/orders.csv").await;
    assert_eq!(orders.len(), 3, "a row per line");
    assert_eq!(orders[1][1..4], ["alice", "paid", "15"]);
    assert_eq!(orders[2][1..4], ["alice", "paid", ""], "the total of an order, once");
    assert_eq!(orders[1][6..], ["", "", "a-formula", &defused, "", "1", "5"]);
    assert_eq!(orders[2][8..], ["a-minus", "'－1", "", "2", "5"]);
    let cancelled = alice.orders("a-minus", 1).ok().await;
    alice.cancels(&cancelled).ok().await;
    let refunded = alice.orders("a-minus", 1).ok().await;
    alice.pays(&refunded).ok().await;
    alice.refunds(&refunded).ok().await;
    let ended = file(&admin, "/admin/orders.csv").await;
    let times = |row: &[String]| [4, 5, 6, 7].map(|column: usize| row[column].len() > 10);
    assert_eq!([&ended[0][6], &ended[0][7]], ["cancelled_at", "refunded_at"]);
    assert_eq!((ended[1][2].as_str(), times(&ended[1])), ("refunded", [true, true, false, true]));
    assert_eq!((ended[2][2].as_str(), times(&ended[2])), ("cancelled", [true, false, true, false]));
    assert_eq!(file(&admin, "/admin/orders.csv?sku=a-minus&user=alice").await.len(), 5);
    for none in ["user=nemo", "user=bob", "status=pending", "id=1"] {
        assert_eq!(file(&admin, &format!("/admin/orders.csv?{none}")).await.len(), 1, "{none}");
    }

    let users = file(&admin, "/admin/users.csv?search=ali").await;
    assert_eq!((users.len(), users[1][0].as_str(), users[1][4].as_str()), (2, "alice", "99985"));
    let account = file(&admin, "/admin/users/alice/ledger.csv").await;
    let changes: Vec<&str> = account.iter().skip(1).map(|row| row[3].as_str()).collect();
    assert!(changes.ends_with(&["-15", "-5", "5"]), "{changes:?}");
    let log = file(&admin, "/admin/log.csv").await;
    assert_eq!(log[0][..4], ["seq", "at", "admin", "action"]);
    assert_eq!((log.len(), file(&admin, "/admin/log.csv?item=a-minus").await.len()), (4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_list_is_whole() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let orders = "
        with placed as (
            insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
            select ('ffff0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
                   (select id from users where name = 'bob'), 'cancelled', 0, n::text, now(), now()
              from generate_series(1, 2500) n
            returning id, token),
        lines as (
            insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
            select id, 'deadbolt', 1, 0, 'Bolt', 1000000 + token::bigint from placed)
        insert into stock_ledger (seq, sku, before, delta, after, version, reason, order_id, request_id)
        select 1000000 + token::bigint, 'deadbolt', 2, -1, 1, 1, 'order', id, id from placed";
    shop.execute(orders).await;

    let rows = file(&admin, "/admin/orders.csv").await;
    assert_eq!(rows.len(), 2_501);
    let mut ids: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
    assert!(ids.is_sorted_by(|one, other| one > other), "newest first, each once");
    ids.dedup();
    assert_eq!(ids.len(), 2_500);
    // A page further back than the first: the export does not depend on the page that is shown.
    assert_eq!(file(&admin, "/admin/items/deadbolt/ledger.csv").await.len(), 2_502);
}
