//! The page of the password and the sessions.

use holdfast_testkit::TestShop;

use crate::visitor::Visitor;

#[tokio::test(flavor = "multi_thread")]
async fn password_is_changed_on_its_page() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let other_session = Visitor::signed_in(&shop, "alice").await;
    assert!(alice.get("/account").await.text.contains("href=\"/account/security\""));
    let csrf = alice.get("/account/security").await.csrf();
    let path = "/account/security/password";
    for (fields, wrong) in
        [("old=wrong&new=long enough", "old-wrong"), ("old=alice&new=short", "new-wrong")]
    {
        let page = alice.post(path, &format!("csrf={csrf}&{fields}")).await;
        assert_eq!(page.status, 422, "{fields}");
        assert!(page.text.contains(&format!("id=\"{wrong}\"")), "{}", page.text);
    }
    let forged = alice.post(path, "csrf=wrong&old=alice&new=long enough").await;
    assert_eq!(forged.status, 403);
    let changed = alice.post(path, &format!("csrf={csrf}&old=alice&new=long enough")).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    let page = alice.get(&changed.location).await;
    assert!(page.words().contains("Your password was changed."), "{}", page.words());
    assert_eq!(page.text.matches("This session").count(), 1);
    assert!(other_session.get("/account").await.location.starts_with("/sign-in"));
    let new_session = Visitor::new(&shop).post("/sign-in", "user=alice&password=long enough").await;
    assert_eq!(new_session.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_ended_on_its_page() {
    let shop = TestShop::start(1).await;
    let alice = Visitor::signed_in(&shop, "alice").await;
    let other_session = Visitor::signed_in(&shop, "alice").await;
    assert_eq!(other_session.get("/account").await.status, 200);
    let page = alice.get("/account/security").await;
    let (csrf, session) = (page.csrf(), page.field("session"));
    let path = "/account/security/sessions";
    assert_eq!(alice.post(path, &format!("csrf=wrong&session={session}")).await.status, 403);
    let ended = alice.post(path, &format!("csrf={csrf}&session={session}")).await;
    assert_eq!((ended.status.as_u16(), ended.location.as_str()), (303, "/account/security"));
    assert!(other_session.get("/account").await.location.starts_with("/sign-in"));
    assert_eq!(
        alice.get("/account/security").await.text.matches("<button class=\"plain\"").count(),
        1
    );
}
