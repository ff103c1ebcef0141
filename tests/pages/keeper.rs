//! The keeper's pages of items: they are added, edited, corrected and hidden by forms, once per
//! form; two keepers do not overwrite each other.

use holdfast_testkit::Shop;

use crate::visitor::{Page, Visitor};

const ITEM: &str = "/admin/items/deadbolt";

async fn post_in_chinese(who: &Visitor, path: &str, form: &str) -> Page {
    let request = who.form_request(path, form).header("Accept-Language", "zh");
    Page::read(request.send().await.unwrap()).await
}

/// Returns the English words of a text, but those that are values of the API.
fn english_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    words.filter(|word| word.len() > 3 && !["order", "refund"].contains(word)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_is_executed_once() {
    let shop = Shop::start(2).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let other = Visitor { http: admin.http.clone(), base: shop.replicas[1].base_url.clone() };
    let send_twice = async |path: &str, form: &str, place: &str| {
        let (first, second) = tokio::join!(admin.post(path, form), other.post(path, form));
        for page in [first, second] {
            let sent = (page.status.as_u16(), page.location.as_str());
            assert_eq!(sent, (303, place), "{path}: {}", page.words());
        }
        let done = admin.get(place).await;
        assert!(done.text.contains("id=\"done\""), "{place}: {}", done.words());
        done
    };

    let list = admin.get("/admin").await;
    let add = format!(
        "csrf={}&key={}&sku=bolt&name=%3Cb%3E%3D1%2B1&price=14.5&stock=7&limit_per_user=2\
         &description=One%0D%0ATwo+%3Ci%3E",
        list.csrf(),
        list.field("key")
    );
    let added = send_twice("/admin/items", &add, "/admin/items/bolt?done=create").await;
    assert!(added.text.contains("&#60;b&#62;=1+1"), "{}", added.text);
    assert_eq!(added.field("was_price"), "14.50");

    let edit = added.settings(&[("name", "Bolt"), ("price", "0"), ("hidden", "yes")]);
    let edited = send_twice("/admin/items/bolt/edit", &edit, "/admin/items/bolt?done=edit").await;
    assert!(edited.words().contains("Bolt hidden"), "{}", edited.words());
    assert!(edited.words().contains("price: $14.50 → $0.00"), "{}", edited.words());

    // Any fresh key: that of the other form, which was not sent.
    let (csrf, key) = (edited.csrf(), edited.field("key"));
    let correct = format!("csrf={csrf}&key={key}&delta=%2B5&reason=correction");
    let place = "/admin/items/bolt?done=stock";
    let corrected = send_twice("/admin/items/bolt/stock", &correct, place).await;
    assert!(corrected.words().contains("Stock 12"), "{}", corrected.words());
    let ledger = admin.get("/items/bolt/ledger").await.words();
    assert!(ledger.contains("7 +5 → 12 correction"), "{ledger}");

    let log = "select count(*) from admin_log where subject = 'bolt'";
    let entries = "select count(*) from stock_ledger where sku = 'bolt'";
    assert_eq!((shop.number(log).await, shop.number(entries).await), (2, 2));
    for page in ["/admin", "/admin/log", "/items/bolt"] {
        let page = admin.get(page).await;
        assert!(!page.text.contains("<b>="), "{}", page.text);
    }
    // Hidden: not in the shop, and its page has nothing to buy.
    assert!(!admin.get("/shop").await.text.contains("/items/bolt"));
    let item = admin.get("/items/bolt").await;
    assert!(item.words().contains("One Two &#60;i&#62; This item is no longer sold."));
    assert!(!item.text.contains("id=\"buy\""));
    let form = format!("csrf={}&sku=bolt&quantity=1", item.csrf());
    let gone = admin.post("/basket/lines", &form).await;
    assert_eq!(gone.status, 404);
    assert!(gone.words().contains("Bolt is no longer sold") || gone.words().contains("bolt is no"));
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_page_overwrites_only_what_it_changes() {
    let shop = Shop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let stale = admin.get(ITEM).await;
    let save = async |page: &Page, inputs: &[(&str, &str)]| {
        admin.post(&format!("{ITEM}/edit"), &page.settings(inputs)).await
    };
    assert_eq!(save(&admin.get(ITEM).await, &[("price", "50.00")]).await.status, 303);

    // Another setting, from a page with the old price: both hold.
    assert_eq!(save(&stale, &[("name", "Bolt")]).await.status, 303);
    let item = admin.get(ITEM).await;
    assert_eq!([item.field("was_name"), item.field("was_price")], ["Bolt", "50.00"]);

    // The same setting: the second one is told, and may replace it on purpose.
    let first = admin.get(ITEM).await;
    let second = admin.get(ITEM).await;
    assert_eq!(save(&first, &[("price", "51.00")]).await.status, 303);
    let rejected = save(&second, &[("price", "52.00")]).await;
    assert_eq!(rejected.status, 422);
    let words = rejected.words();
    assert!(words.contains("It is now “$51.00”. Save again to replace it."), "{words}");
    assert!(rejected.text.contains("name=\"price\"") && rejected.text.contains("value=\"52.00\""));
    assert_eq!(rejected.field("was_price"), "51.00");
    assert_eq!(save(&rejected, &[("price", "52.00")]).await.status, 303);
    assert_eq!(shop.number("select price_cents from items where sku = 'deadbolt'").await, 5_200);
    assert_eq!(shop.number("select count(*) from admin_log").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_form_explains_its_field_in_the_language_of_the_page() {
    let shop = Shop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let page = admin.get(ITEM).await;
    let (csrf, key) = (page.csrf(), page.field("key"));
    let edit = |input, text| (format!("{ITEM}/edit"), page.settings(&[(input, text)]));
    let stock = |delta: &str, reason: &str| {
        let form = format!("csrf={csrf}&key={key}&delta={delta}&reason={reason}");
        (format!("{ITEM}/stock"), form)
    };
    let add = |sku: &str, stock: &str| {
        let form = format!("csrf={csrf}&key={key}&sku={sku}&name=New&price=1&stock={stock}");
        ("/admin/items".to_owned(), form)
    };
    let long = "x".repeat(2_001);
    for ((path, form), why) in [
        (edit("name", " "), "Enter 1 to 200 characters on one line."),
        (edit("price", "1,5"), "Enter an amount from 0 to 10,000,000.00 without commas"),
        (edit("price", "10000000.01"), "Enter an amount from 0 to 10,000,000.00"),
        (edit("description", &long), "At most 2,000 characters."),
        (edit("limit_per_user", "0"), "Enter 1 to 1000, or leave it blank for no limit."),
        (stock("-41", "damaged"), "Only 40 in stock: you can remove 40 at most."),
        (stock("1000000000", "restock"), "40 in stock, and at most 1,000,000,000 can be."),
        (stock("0", "restock"), "Enter a whole number from −1,000,000,000 to 1,000,000,000"),
        (stock("9999999999", "restock"), "but not 0."),
        (stock("many", "restock"), "Enter a whole number such as 20 or −3."),
        (stock("1", "order"), "The shop’s own reasons (order, refund …) are reserved."),
        (add("No", "1"), "1 to 64 characters: a–z, 0–9 and dash."),
        (add("deadbolt", "1"), "There already is an item with this sku."),
        (add("new", "-1"), "Enter a whole number from 0 to 1,000,000,000."),
    ] {
        let rejected = admin.post(&path, &form).await;
        assert_eq!(rejected.status, 422, "{form}: {}", rejected.words());
        assert!(rejected.words().contains(why), "{form}: {}", rejected.words());

        let rejected = post_in_chinese(&admin, &path, &form).await;
        let wrong = rejected.text.split("class=\"wrong\"").nth(1).unwrap();
        let wrong = wrong.split("</p>").next().unwrap().split("</span>").nth(1).unwrap();
        assert_eq!(english_in(wrong), [""; 0], "{form}: {wrong}");
        assert!(wrong.contains(holdfast_base::messages::is_chinese), "{form}: {wrong}");
    }
    assert_eq!(shop.number("select count(*) from admin_log").await, 0);
    assert_eq!(shop.item_audit("deadbolt").await["stock"], 40);
}
