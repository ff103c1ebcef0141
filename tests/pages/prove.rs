//! Where one chooses a lock, and proves it.

use holdfast_testkit::Shop;

use crate::visitor::Visitor;

#[tokio::test(flavor = "multi_thread")]
async fn course_has_the_task_of_each_level() {
    let shop = Shop::start(1).await;
    let visitor = Visitor::new(&shop);
    for (language, task) in [
        ("en", "Others get it within two leases, and no key is left."),
        ("zh", "别人要在两个租约之内拿到锁，并且不留下键。"),
    ] {
        let words = visitor.get_in(language, "/lab/course").await.words();
        assert!(words.contains(task) && !words.contains("Unknown localization key"), "{words}");
    }
}
