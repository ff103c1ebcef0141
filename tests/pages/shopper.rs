//! What a shopper is told: after a cancellation and a refund, and of an item that is sold out.

use holdfast_testkit::{TestShop, until};

use crate::visitor::Visitor;

/// After a refund and a cancellation the page says what happened, however often it was clicked.
#[tokio::test(flavor = "multi_thread")]
async fn returned_order_says_what_came_back() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    for (action, question, english, chinese) in [
        (
            "cancel",
            "Cancel the whole order?",
            "Cancelled. The units are back in the shop, and nothing was paid.",
            "订单已取消，库存已退回，没有扣款。",
        ),
        (
            "refund",
            "Refund the whole order? $98.00 goes back",
            "Refunded. $98.00 is back on your account. Your balance is $1,000.00.",
            "已退款 $98.00，余额 $1,000.00，库存已退回。",
        ),
    ] {
        let (order, csrf) = alice.buy("deadbolt", 2).await;
        if action == "refund" {
            let pay = format!("csrf={csrf}&key={}", alice.get(&order).await.field("key"));
            assert_eq!(alice.post(&format!("{order}/pay"), &pay).await.status, 303);
        }

        let page = alice.get(&order).await;
        assert!(page.words().contains(question), "{action}: {}", page.words());
        let key = page.field("key");
        for key in [&key, &key, "0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d"] {
            let form = format!("csrf={csrf}&key={key}");
            let sent = alice.post(&format!("{order}/{action}"), &form).await;
            assert_eq!(sent.location, order);
            assert!(alice.get(&order).await.words().contains(english), "{action}");
        }
        assert!(alice.get_in("zh", &order).await.words().contains(chinese), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sold_out_says_when_a_unit_may_return() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let visitor = Visitor::new(&shop);
    visitor.fill_basket("last-lantern", 1).await;
    let pending = alice.orders("last-lantern", 1).ok().await;
    let pages = ["/items/last-lantern", "/basket"];
    let says = async |language: &str, sentence: &str| {
        for page in pages {
            // What a replica has read is shown for a second.
            until(&format!("{page}: {sentence}"), async || {
                visitor.get_in(language, page).await.words().contains(sentence)
            })
            .await;
        }
    };

    says("en", "A reserved unit may return in 14 minutes, if it is not paid.").await;
    says("zh", "预留的商品若未付款，14 分钟后可能退回。").await;
    shop.execute("update orders set expires_at = now() + interval '20 seconds'").await;
    says("en", "A reserved unit may return within a minute.").await;
    alice.pays(&pending).ok().await;
    says("en", "All units are sold. None is reserved.").await;
    says("zh", "已全部售出，没有预留。").await;
    // Nor is a page missing because this can't be found out.
    shop.execute("alter table order_lines rename to lost").await;
    says("en", "All units are sold or reserved. Units of unpaid orders return").await;
}
