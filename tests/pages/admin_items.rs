//! The admin pages of items: they are added, edited, corrected and hidden by forms, once per
//! form; two admins do not overwrite each other.

use holdfast_testkit::TestShop;
use serde_json::json;

use crate::visitor::{Page, Visitor};

const ITEM: &str = "/admin/items/deadbolt";
const LAB_SKU: &str = "lab-0190a6e4000070008000000000000000";

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
    let shop = TestShop::start(2).await;
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
    let logged = added.words();
    let logged = logged.split("Log").last().unwrap();
    assert!(logged.contains("description: One Two &#60;i&#62;"), "{logged}");
    assert!(logged.contains("limit: 2"), "{logged}");

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
    assert!(ledger.contains("7 at the start + 5 restocked = 0 sold"), "{ledger}");

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
    let shop = TestShop::start(1).await;
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
    let shop = TestShop::start(1).await;
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
        (stock("1", "Cancelled!"), "The shop’s own reasons (order, refund …) are reserved."),
        (stock("1", "已退款"), "The shop’s own reasons (order, refund …) are reserved."),
        (stock("1", "Payment"), "The shop’s own reasons (order, refund …) are reserved."),
        (stock("1", "top+up"), "The shop’s own reasons (order, refund …) are reserved."),
        (stock("1", "welcome"), "The shop’s own reasons (order, refund …) are reserved."),
        (add("No", "1"), "1 to 64 characters: a–z, 0–9 and dash."),
        (add("deadbolt", "1"), "There already is an item with this sku."),
        (add(LAB_SKU, "1"), "name items of the lab. Choose another sku."),
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

#[tokio::test(flavor = "multi_thread")]
async fn all_wrong_fields_are_told_at_once() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let page = admin.get(ITEM).await;
    let session = format!("csrf={}&key={}", page.csrf(), page.field("key"));
    let wrong = [("name", ""), ("price", "x"), ("limit_per_user", "0")];
    let all = ["name", "price", "limit"];
    for (path, form, fields) in [
        (format!("{ITEM}/edit"), page.settings(&wrong), &all[..]),
        (
            "/admin/items".to_owned(),
            format!("{session}&sku=No&name=&price=x&stock=-1&limit_per_user=many"),
            &["sku", "name", "price", "limit", "stock"],
        ),
        (
            format!("{ITEM}/stock"),
            format!("{session}&delta=many&reason=Order"),
            &["delta", "reason"],
        ),
        (format!("{ITEM}/stock"), format!("{session}&delta=0&reason=+"), &["delta", "reason"]),
    ] {
        let rejected = admin.post(&path, &form).await;
        assert_eq!(rejected.status, 422, "{form}");
        for field in fields {
            let beside = format!("id=\"{field}-wrong\"");
            assert!(rejected.text.contains(&beside), "{form}: {beside} {}", rejected.words());
        }
    }

    // Two admins: every setting that the other one has changed since.
    let (first, second) = (admin.get(ITEM).await, admin.get(ITEM).await);
    let inputs = |price| [("name", "Bolt"), ("price", price), ("description", "New")];
    assert_eq!(
        admin.post(&format!("{ITEM}/edit"), &first.settings(&inputs("5"))).await.status,
        303
    );
    let mut late = inputs("6");
    late[0].1 = "Other";
    let rejected = admin.post(&format!("{ITEM}/edit"), &second.settings(&late)).await;
    let words = rejected.words();
    assert!(words.contains("It is now “Bolt”.") && words.contains("It is now “$5.00”."), "{words}");
    assert!(!rejected.text.contains("id=\"description-wrong\""), "both wrote the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_ended_session_keeps_its_text() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let edit = format!("{ITEM}/edit");
    let old = admin.get(ITEM).await;
    let form = old.settings(&[("name", "Bolt & \"nut\""), ("description", "One\r\nTwo")]);

    let csrf = old.csrf();
    assert_eq!(admin.post("/sign-out", &format!("csrf={csrf}")).await.status, 303);
    let asked = admin.post(&edit, &form).await;
    assert_eq!(asked.status, 401);
    assert!(asked.words().contains("what you typed is kept"), "{}", asked.words());
    let kept = asked.text.split("name=\"kept").skip(1).map(|field| {
        let (name, rest) = field.split_once('"').unwrap();
        let value = rest.split('"').nth(1).unwrap();
        (format!("kept{name}"), crate::visitor::unescaped(value))
    });
    let kept: Vec<(String, String)> = kept.collect();

    let sign_in = async |password: &str| {
        let mut sent = form_urlencoded::Serializer::new(String::new());
        sent.extend_pairs([("user", "admin"), ("password", password)]).extend_pairs(&kept);
        admin.post("/sign-in", &sent.finish()).await
    };
    let wrong = sign_in("nut").await;
    assert!(wrong.status == 401 && wrong.text.contains("name=\"kept_description\""));
    let shown = sign_in("admin").await;
    assert_eq!(shown.status, 200, "{}", shown.words());
    let has_text = |page: &Page| page.text.contains("One\r\nTwo</textarea>");
    assert!(shown.words().contains("Not saved yet") && has_text(&shown), "{}", shown.text);
    assert_eq!(shop.number("select count(*) from admin_log").await, 0);

    // A form of the first session is shown again, too; now it is sent.
    let stale = admin.post(&edit, &form).await;
    assert!(stale.status == 403 && has_text(&stale), "{}", stale.words());
    let csrf = shown.csrf();
    let form = form.replace(&format!("csrf={}", old.csrf()), &format!("csrf={csrf}"));
    let sent = admin.post(&edit, &form).await;
    assert_eq!((sent.status.as_u16(), sent.location), (303, format!("{ITEM}?done=edit")));

    // Its names in Chinese are another text than the form's.
    let translated = |page: &Page| page.text.contains("id=\"stored\"");
    let keys = admin.get_in("zh", "/admin/items/key-ring").await;
    assert!(translated(&keys) && keys.words().contains("这是示例商品"));
    assert!(!translated(&admin.get("/admin/items/key-ring").await), "here it is the same");
    assert!(!translated(&admin.get_in("zh", ITEM).await), "edited");
    // The ledger's sum of losses, and the list by the beginning of a sku in any case.
    let key = "0b6f4c1e-0f0e-4c3e-9c39-5d4f1a2b3c4d";
    let lost = format!("csrf={csrf}&key={key}&delta=-3&reason=two+broke");
    assert_eq!(admin.post(&format!("{ITEM}/stock"), &lost).await.status, 303);
    let ledger = admin.get("/items/deadbolt/ledger").await.words();
    assert!(ledger.contains("40 at the start − 3 written off = 0 sold"), "{ledger}");
    assert!(ledger.contains("“two broke”"), "an admin's own words: {ledger}");
    for search in ["EY-R", "ring,+HAND", "%E9%92%A5%E5%8C%99%E5%9C%88"] {
        let list = admin.get(&format!("/admin?search={search}")).await;
        let is_found = list.text.contains("id=\"item-key-ring\"");
        assert!(is_found && !list.text.contains("item-deadbolt"), "{search}: {}", list.words());
    }
    for none in ["%25", "d.adbolt", "%00"] {
        let list = admin.get(&format!("/admin?search={none}")).await;
        assert!(list.words().contains("No item matches."), "{none}: {}", list.words());
    }
    let whole = admin.get("/admin/log?item=deadbolt").await.words();
    assert!(whole.contains("Log of deadbolt") && whole.contains("Whole log"), "{whole}");
    for nobody in ["deadbolt", "%00"] {
        let log = admin.get(&format!("/admin/log?user={nobody}")).await.words();
        assert!(log.contains("Nothing was changed yet."), "{nobody}: {log}");
    }
}

/// Also through the API, where a new name alone removes that of the old thing.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_item_is_asked_for_its_chinese_name() {
    let shop = TestShop::start(1).await;
    let admin = Visitor::signed_in(&shop, "admin").await;
    let api = shop.sign_in("admin").await;
    let titles = async || {
        let mut titles = Vec::new();
        for language in ["en", "zh"] {
            let page = admin.get_in(language, "/items/deadbolt").await.text;
            let title = page.split("<h1><bdi>").nth(1).unwrap().split('<').next().unwrap();
            titles.push(title.to_owned());
        }
        titles
    };
    assert_eq!(titles().await, ["Deadbolt, single cylinder", "单锁芯门闩锁"]);

    for (name, name_zh, expected) in [
        ("Red bolt", "红色门闩", ["Red bolt", "红色门闩"]),
        ("Red bolt", "赤色门闩", ["Red bolt", "赤色门闩"]),
        ("Bolt, red", "赤色门闩", ["Bolt, red", "赤色门闩"]),
        ("Bolt", "", ["Bolt", "Bolt"]),
    ] {
        let form = admin.get(ITEM).await.settings(&[("name", name), ("name_zh", name_zh)]);
        assert_eq!(admin.post(&format!("{ITEM}/edit"), &form).await.status, 303, "{expected:?}");
        assert_eq!(titles().await, expected);
    }
    let log = admin.get(ITEM).await.words();
    assert!(log.contains("Chinese name: 红色门闩 → 赤色门闩"), "{log}");

    for (set, expected) in [
        (json!({ "name_zh": "门闩" }), ["Bolt", "门闩"]),
        (json!({ "price_cents": 5 }), ["Bolt", "门闩"]),
        (json!({ "name": "Kettle" }), ["Kettle", "Kettle"]),
        (json!({ "name": "Kettle", "name_zh": "水壶" }), ["Kettle", "水壶"]),
        (json!({ "name_zh": null }), ["Kettle", "Kettle"]),
    ] {
        api.edits("deadbolt", &set).ok().await;
        assert_eq!(titles().await, expected, "{set}");
    }
    api.edits("deadbolt", &json!({ "name_zh": " " })).fails(422, "invalid-request").await;
    let item =
        json!({ "sku": "cup", "name": "Cup", "name_zh": "杯", "price_cents": 1, "stock": 1 });
    assert_eq!(api.creates_item(&item).ok().await["name_zh"], "杯");
}
