//! The visitor as the scheduler: interleavings that are possible without a lock, and not with one.

use std::sync::Arc;

use holdfast::lab::interleaving::{Game, GameRules, GameView, Games};
use holdfast::probe::{PauseBoard, Point};
use holdfast::shop::{Strategy, UserId};

use crate::common::{Shop, until};

/// A shop in this process with a visitor.
struct Play {
    scheduler: Games,
    game: Arc<Game>,
    _shop: Shop,
}

impl Play {
    async fn begin(strategy: &str, short_lease: bool, orders: usize) -> Self {
        let shop = Shop::start(1).await;
        let domain = shop.in_process("batched");
        let id = sqlx::query_scalar("select id from users where name = 'admin'");
        let user = UserId(id.fetch_one(&shop.pool).await.unwrap());
        let scheduler = Games::new(&domain, &PauseBoard::default());
        let rules = GameRules { strategy: Strategy::named(strategy).unwrap(), short_lease, orders };
        let game = scheduler.begin(user, rules).await.unwrap();
        Self { scheduler, game, _shop: shop }
    }

    async fn view(&self) -> GameView {
        self.scheduler.view(&self.game).await.unwrap()
    }

    /// Steps the requests in this order.
    async fn go(&self, script: &str) {
        for who in script.chars() {
            assert!(
                self.scheduler.step(&self.game, who, None).await,
                "{who} of {script} is not held"
            );
        }
    }

    async fn at(&self, who: usize) -> Option<Point> {
        self.view().await.positions[who].held
    }

    /// Steps all requests in turn until each has a response.
    async fn to_the_end(&self) -> GameView {
        loop {
            let view = self.view().await;
            if view.positions.iter().all(|position| position.result.is_some()) {
                return view;
            }
            for position in view.positions {
                let _ = self.scheduler.step(&self.game, position.name, None).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_steps_oversell_without_a_lock() {
    let play = Play::begin("none", false, 2).await;
    assert_eq!(play.at(0).await, Some(Point::Wait));
    play.go("ABAAABB").await;
    let view = play.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "seven steps are not enough");
    play.go("B").await;
    let view = play.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (2, 1));
    assert_eq!(view.audit.forks.len(), 1);
    assert_eq!(view.steps.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_order_waits_under_a_lock() {
    for strategy in ["owner", "fenced", "row-lock"] {
        let play = Play::begin(strategy, false, 2).await;
        // A as far as its read; B as far as it comes.
        let reads = if strategy == "row-lock" { "A" } else { "AA" };
        play.go(reads).await;
        assert_eq!(play.at(0).await, Some(Point::Read), "{strategy}");
        play.go("B").await;
        assert_eq!(play.at(1).await, None, "{strategy}: B waits");
        let view = play.to_the_end().await;
        assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "{strategy}");
        assert!(view.audit.ok, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_oversells_after_lease_expiry() {
    let play = Play::begin("owner", true, 2).await;
    play.go("AAB").await;
    // B gets the lock when the lease of A has run out.
    until("B has the lock", async || play.at(1).await == Some(Point::Held)).await;
    let view = play.to_the_end().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_lock_breaks_owner_but_not_fenced() {
    for (strategy, oversold) in [("owner", 1), ("fenced", 0)] {
        let play = Play::begin(strategy, false, 2).await;
        play.go("AAB").await;
        play.scheduler.delete_lock(&play.game).await.unwrap();
        until("B has the lock", async || play.at(1).await == Some(Point::Held)).await;
        let view = play.to_the_end().await;
        assert_eq!(view.audit.oversold, oversold, "{strategy}: {:?}", view.steps);
        assert_eq!(view.audit.sold, 1 + oversold, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_click_is_one_step() {
    let play = Play::begin("none", false, 2).await;
    let since = play.view().await.positions[0].since_us;
    assert!(play.scheduler.step(&play.game, 'A', since).await);
    assert!(!play.scheduler.step(&play.game, 'A', since).await);
    assert_eq!(play.at(0).await, Some(Point::Read));
    assert_eq!(play.view().await.steps.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_game_ends_the_previous_one() {
    let play = Play::begin("owner", false, 3).await;
    play.go("AA").await;
    let again = play.scheduler.begin(play.game.user, play.game.rules).await.unwrap();
    assert_ne!(again.id, play.game.id);
    assert!(play.scheduler.game(play.game.id, play.game.user).is_none());
    until("the first game is over", async || {
        play.view().await.positions.iter().all(|position| position.result.is_some())
    })
    .await;
}
