//! Nothing is stored of a student who has left: removed, or at the end of the class.

use holdfast_lab::progress::{self, Visitor as LabVisitor};
use holdfast_shop::students;
use holdfast_testkit::until;

use crate::join::{CLASS, class_shop, class_with_run, joined, student_id};
use crate::lab::{ID, register_runner};
use crate::visitor::Visitor;

/// Another replica still knows the session of a student who has left.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_of_a_student_who_has_left() {
    let (mut shop, code, teacher) = class_with_run().await;
    register_runner(&shop).await;
    shop.add_replica(&CLASS);
    let of_students = "select (select count(*) from lab_progress)
        + (select count(*) from lab_runs where user_id is not null)";

    for act in ["remove", "end"] {
        let mia = joined(&shop, &code, "Mia").await;
        let mia = Visitor { base: shop.replicas[1].base_url.clone(), ..mia };
        let page = mia.get(&format!("/lab/runs/{ID}")).await;
        assert!(page.text.contains("id=\"hand-in\""), "{}", page.words());
        let csrf = page.csrf();

        let student = student_id(&shop, "Mia").await;
        let (form, fields) = match act {
            "remove" => ("students", format!("act=remove&student={}", student.0)),
            _ => ("end", format!("code={code}")),
        };
        let fields = format!("csrf={}&sure=yes&{fields}", teacher.get("/lab/class").await.csrf());
        let done = teacher.post(&format!("/lab/class/{form}"), &fields).await;
        assert_eq!(done.status, 303, "{act}: {}", done.words());

        for (form, fields) in [
            ("lessons/lost-update/answers", "guess=1"),
            ("lessons/lost-update/runs", "guess=1"),
            ("lessons/fence/runs", ""),
            (&format!("runs/{ID}/hand-in"), "note=late"),
        ] {
            let sent = mia.post(&format!("/lab/{form}"), &format!("csrf={csrf}&{fields}")).await;
            assert!(sent.location.starts_with("/join"), "{act}, {form}: {}", sent.location);
            assert_eq!(shop.number(of_students).await, 0, "{act}, {form}");
        }
        mia.get(&format!("/lab/runs/{ID}")).await;
        assert_eq!(shop.number(of_students).await, 0, "{act}: a run that is looked at");

        let visitor = LabVisitor { id: student.0, user: Some(student) };
        let pool = shop.pool.clone().into();
        assert!(!progress::set_stars(&pool, "oversell", visitor, 3).await.unwrap());
        assert_eq!(shop.number(of_students).await, 0, "{act}: stars");
    }
}

/// An answer that arrives while its student is being removed waits for the end of that.
#[tokio::test(flavor = "multi_thread")]
async fn answer_waits_for_the_removal_of_its_student() {
    let (shop, code) = class_shop().await;
    joined(&shop, &code, "Mia").await;
    let student = student_id(&shop, "Mia").await;

    let mut removal = shop.pool.begin().await.unwrap();
    students::lock(&mut removal).await.unwrap();
    students::dismiss(&mut removal, Some(student)).await.unwrap();
    let pool = shop.pool.clone().into();
    let visitor = LabVisitor { id: student.0, user: Some(student) };
    let answer =
        tokio::spawn(async move { progress::answer(&pool, "lost-update", visitor, 1).await });
    until("the answer waits", async || shop.waiting_sessions().await == 1).await;

    removal.commit().await.unwrap();
    assert!(!answer.await.unwrap().unwrap());
    assert_eq!(shop.number("select count(*) from lab_progress").await, 0);
}
