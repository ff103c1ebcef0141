//! Two requests under a schedule, without a service.

use futures_util::future::{join, join3};
use holdfast_services::Statement;

use super::*;

const READ: &str = "select stock from goods";
const WRITE: &str = "update goods set stock = 0";

/// Returns an exchange on the connection of its instance's backend of the same number.
fn exchange(connection: u64, number: u64, text: &str) -> Exchange {
    let mut exchange = Exchange::default();
    (exchange.connection, exchange.number) = (connection, number);
    exchange.backend = i32::try_from(connection).expect("a small number");
    exchange.in_transaction = text != "commit";
    exchange.statements = vec![Statement { text: text.into(), ..Statement::default() }];
    exchange
}

/// Sends statements on one connection, each when the last one was answered. `answer` ends with
/// the answer of one.
async fn send(steps: &Steps, request: usize, texts: &[&str], mut answer: impl AsyncFnMut(&str)) {
    for (number, text) in (0..).zip(texts) {
        let sent = exchange(request as u64 + 1, number, text);
        pass(steps, request, &sent).await;
        answer(text).await;
        steps.answered(request, &sent);
    }
    steps.end_request(request);
}

/// Returns a command to Redis, on a connection with the number of one to Postgres.
fn command(connection: u64, number: u64, words: &str) -> Exchange {
    let mut words = words.split(' ').map(str::to_owned);
    let text = words.next().unwrap_or_default().into();
    let values = words.map(Some).collect();
    let mut command = exchange(connection, number, "commit");
    command.server = ServerKind::Redis;
    command.statements = vec![Statement { text, values, ..Statement::default() }];
    command
}

/// Waits until what is sent goes on to its server.
async fn pass(steps: &Steps, request: usize, sent: &Exchange) {
    let held = steps.hold(request, std::slice::from_ref(sent)).expect("it is scheduled");
    held.await.expect("it goes");
}

/// Asks for a lock until it is free, writes, and releases it.
async fn write_under_lock(steps: &Steps, request: usize, is_locked: &Mutex<bool>) {
    let connection = request as u64 + 1;
    for number in 0.. {
        let ask = command(connection, number, "SET lock token NX");
        pass(steps, request, &ask).await;
        let was_locked = std::mem::replace(&mut *is_locked.lock(), true);
        steps.answered(request, &ask);
        if !was_locked {
            break;
        }
    }
    let write = exchange(connection, 0, WRITE);
    pass(steps, request, &write).await;
    steps.answered(request, &write);

    let release = command(connection, u64::MAX, "DEL lock");
    pass(steps, request, &release).await;
    *is_locked.lock() = false;
    steps.answered(request, &release);
    steps.end_request(request);
}

fn requests(passed: &[Passed]) -> Vec<usize> {
    passed.iter().map(|passed| passed.request).collect()
}

#[tokio::test]
async fn statements_pass_as_the_schedule_says() {
    for (first, switches, expected) in [
        (0, vec![], [0, 0, 0, 1, 1, 1]),
        (0, vec![1], [0, 1, 1, 1, 0, 0]),
        (1, vec![1, 2], [1, 0, 0, 1, 1, 0]),
        (0, vec![1; 6], [0, 1, 0, 1, 0, 1]),
    ] {
        let steps = Steps::default();
        steps.begin();
        let schedule = Schedule { first, switches, patient: false };
        let sending = [0, 1].map(|it| send(&steps, it, &[READ, WRITE, "commit"], async |_| {}));
        let [one, other] = sending;
        let following = steps.follow(&schedule, async |_| Ok(false));
        let (followed, ..) = join3(following, one, other).await;
        assert!(followed.expect("an end"));
        assert_eq!(requests(&steps.end()), expected, "{schedule:?}");
    }
}

/// Its write waits until the other one has committed; then it is its turn again.
#[tokio::test]
async fn request_that_waits_for_a_lock_lets_the_other_go_on() {
    let steps = Steps::default();
    steps.begin();
    let committed = Notify::new();
    let first = send(&steps, 0, &[WRITE, "commit"], async |text| {
        if text == "commit" {
            committed.notify_one();
        }
    });
    let second = send(&steps, 1, &[WRITE, "commit"], async |text| {
        if text == WRITE {
            committed.notified().await;
        }
    });
    let schedule = Schedule { first: 0, switches: vec![1], patient: false };
    let asked = Mutex::new(Vec::new());
    let following = steps.follow(&schedule, async |backends| {
        asked.lock().extend(backends.clone());
        Ok(backends == [2])
    });
    let (followed, ..) = join3(following, first, second).await;
    assert!(followed.expect("an end"));
    assert_eq!(requests(&steps.end()), [0, 1, 0, 1]);
    assert!(asked.lock().contains(&2));
}

/// Its wait ends by a timeout, and it does something else: only a patient schedule lets it.
#[tokio::test]
async fn request_that_waits_may_give_up_before_the_other_goes_on() {
    for (patient, expected) in [(true, [0, 1, 1, 0]), (false, [0, 1, 0, 1])] {
        let steps = Steps::default();
        steps.begin();
        let given_up = Notify::new();
        let first = send(&steps, 0, &[WRITE, "commit"], async |_| {});
        let second = send(&steps, 1, &[WRITE, READ], async |text| {
            if text == WRITE {
                given_up.notified().await;
            }
        });
        let schedule = Schedule { first: 0, switches: vec![1], patient };
        let mut asked = 0;
        let following = steps.follow(&schedule, async |backends| {
            asked += 1;
            if asked == 5 {
                given_up.notify_one();
            }
            Ok(backends == [2])
        });
        let (followed, ..) = join3(following, first, second).await;
        assert!(followed.expect("an end"));
        assert_eq!(requests(&steps.end()), expected, "{schedule:?}");
    }
}

/// However often it asks in between, that counts once, and again when the lock may be free.
#[tokio::test]
async fn request_asks_for_a_lock_of_redis_until_it_is_free() {
    for switches in [vec![1], vec![1, 1], vec![1; 6]] {
        let steps = Steps::default();
        steps.begin();
        let is_locked = Mutex::new(false);
        let schedule = Schedule { first: 0, switches, patient: false };
        let [one, other] = [0, 1].map(|it| write_under_lock(&steps, it, &is_locked));
        let following = steps.follow(&schedule, async |_| Ok(false));
        let (followed, ..) = join3(following, one, other).await;
        assert!(followed.expect("an end"));
        assert_eq!(requests(&steps.end()), [0, 1, 0, 0, 1, 1, 1], "{schedule:?}");
    }
}

/// The second one waits in a command, or asleep after one, until the first one has sent what
/// frees it. Then it is still its turn.
#[tokio::test]
async fn request_that_redis_frees_goes_on_at_once() {
    for (waiting, freeing, is_command) in
        [("SET lock token NX", "DEL lock", false), ("BLPOP lock 0", "RPUSH lock 1", true)]
    {
        let steps = Steps::default();
        steps.begin();
        let freed = Notify::new();
        let first = async {
            for (number, words) in (0..).zip(["GET tea", "INCR cup", freeing, "GET tea"]) {
                let sent = command(1, number, words);
                pass(&steps, 0, &sent).await;
                if words == freeing {
                    freed.notify_one();
                }
                steps.answered(0, &sent);
            }
            steps.end_request(0);
        };
        let second = async {
            let sent = command(2, 0, waiting);
            pass(&steps, 1, &sent).await;
            if is_command {
                freed.notified().await;
            }
            steps.answered(1, &sent);
            if !is_command {
                freed.notified().await;
                // It wakes up later.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            let sent = command(2, 1, waiting);
            pass(&steps, 1, &sent).await;
            steps.answered(1, &sent);
            steps.end_request(1);
        };

        let schedule = Schedule { first: 0, switches: vec![1], patient: false };
        let following = steps.follow(&schedule, async |_| Ok(false));
        let (followed, ..) = join3(following, first, second).await;
        assert!(followed.expect("an end"));
        assert_eq!(requests(&steps.end()), [0, 1, 0, 0, 1, 0], "{waiting}");
    }
}

#[tokio::test]
async fn both_servers_have_connections_of_their_own() {
    let steps = Steps::default();
    steps.begin_idle();
    assert!(steps.hold(0, &[command(1, 0, "GET job")]).is_none());
    steps.begin();
    assert!(steps.hold(0, &[command(1, 1, "GET job")]).is_none());
    assert!(steps.hold(0, &[command(1, 2, "PING")]).is_none());

    let read = command(1, 3, "GET tea");
    let held = steps.hold(0, std::slice::from_ref(&read)).expect("it is scheduled");
    steps.pass(0);
    held.await.expect("it goes");
    steps.answered(0, &exchange(1, 3, READ));
    steps.closed(0, ServerKind::Postgres, 1);
    assert!(steps.is_running(0));
    steps.answered(0, &read);
    assert!(!steps.is_running(0));
}

#[tokio::test]
async fn request_runs_until_its_last_answer_or_its_close() {
    let steps = Steps::default();
    steps.begin();
    let [read, write] = [exchange(1, 0, READ), exchange(1, 1, WRITE)];
    let held = steps.hold(0, &[read.clone(), write.clone()]).expect("it is scheduled");
    steps.pass(0);
    held.await.expect("it goes");
    steps.answered(0, &read);
    assert!(steps.is_running(0));
    steps.answered(0, &write);
    assert!(!steps.is_running(0));

    let held = steps.hold(0, &[exchange(1, 2, READ)]).expect("it is scheduled");
    steps.pass(0);
    held.await.expect("it goes");
    let waiting = steps.hold(0, &[exchange(1, 3, WRITE)]).expect("it is scheduled");
    steps.closed(0, ServerKind::Postgres, 1);
    assert!(!steps.is_running(0));
    waiting.await.expect_err("its connection is closed");
}

/// A job commits, too.
#[tokio::test]
async fn what_is_sent_without_a_request_is_not_scheduled() {
    let steps = Steps::default();
    steps.begin_idle();
    for text in ["select job", "commit"] {
        assert!(steps.hold(0, &[exchange(9, 0, text)]).is_none());
    }
    steps.begin();
    let (own, of_job) = (exchange(1, 0, WRITE), exchange(9, 0, "select job"));
    assert!(steps.hold(0, &[of_job]).is_none());
    assert!(steps.hold(0, &[exchange(9, 1, "commit")]).is_none());
    let order = steps.hold(0, &[own]).expect("it is scheduled");
    assert!(steps.hold(0, &[exchange(1, 1, "commit")]).is_some());

    // At the end all go on.
    let (passed, _) = join(async { steps.end() }, order).await;
    assert!(passed.is_empty());
}
